"""The examples in the docstrings of samples, marks, Ragged and pool_batches run as they stand."""

from __future__ import annotations

import doctest
from types import ModuleType

import pytest
import torch
from torch.utils.data import DataLoader

import shardmix
from shardmix.runtime import marks, pool, ragged, samples


@pytest.mark.parametrize("module", [marks, pool, ragged, samples], ids=lambda module: module.__name__)
def test_docstring_examples_run(module: ModuleType) -> None:
    names = {**vars(module), "shardmix": shardmix, "torch": torch, "DataLoader": DataLoader}
    failed, attempted = doctest.testmod(module, globs=names)
    assert attempted
    assert not failed
