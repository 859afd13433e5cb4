"""Fixtures for the tests of the index."""

from __future__ import annotations

import os

import pytest

from tests.format.small_shards import COUNTS, write_shard


@pytest.fixture
def four_shards(tmp_path, monkeypatch):
    """A folder with shards of 3, 0, 5 and 1 records of 0, 1, 2 … bytes; the user's cache directory is beside it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    folder = tmp_path / "corpus"
    folder.mkdir()
    for shard, count in enumerate(COUNTS):
        write_shard(folder / f"{shard}.tfrecord", range(count))
    return folder


@pytest.fixture
def scanned(monkeypatch):
    """The names of the shards that were scanned, in this process."""
    from shardmix.format import index_scan

    names = []
    scan = index_scan.scan_shard

    def counting(path, **settings):
        names.append(os.path.basename(path))
        return scan(path, **settings)

    monkeypatch.setattr(index_scan, "scan_shard", counting)
    return names
