"""The examples in the docstrings about records run."""

from __future__ import annotations

import doctest

import pytest

from shardmix.format import crc32c, framing, shard_names, storage


@pytest.mark.parametrize("module", [crc32c, framing, shard_names, storage], ids=lambda module: module.__name__)
def test_examples(module):
    failed, attempted = doctest.testmod(module)
    assert attempted > 0
    assert failed == 0
