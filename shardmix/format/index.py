"""The index of a corpus: record counts and lengths, so that the order is known before the first payload byte is read.

Per shard: name, size, mtime (or etag), compression, count, record lengths, every 1024th offset, gzip member starts. One hidden file
per corpus, memory-mapped, written atomically under a lock, beside the data, or in the user's cache directory when that is read-only
or index="cache". One process per node scans, others wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor

import numpy as np
from numpy.typing import NDArray

from .corpus import Corpus, ShardsLike
from .records import IntArray


class Index:
    """Counts and places of the records of a corpus. Pickles small: workers map the file again. A `records.Places`."""

    corpus: Corpus
    counts: IntArray  # (shards,) records a shard
    compressed: NDArray[np.bool_]  # (shards,) gzip or zlib

    def path(self, shard: int) -> str:
        """The path or URL of a shard."""
        raise NotImplementedError

    def offset(self, shard: int, record: int) -> int:
        """The byte at which the record's frame begins (in the inflated bytes)."""
        raise NotImplementedError

    def compression(self, shard: int) -> str:
        """"none", "gzip" or "zlib"."""
        raise NotImplementedError

    def entries(self, shard: int) -> tuple[tuple[int, int], ...]:
        """(compressed offset, inflated offset) where gzip members begin."""
        raise NotImplementedError

    def lengths(self, shard: int, first: int, stop: int) -> IntArray:
        """Payload lengths of the records first … stop-1."""
        raise NotImplementedError

    def check(self, shard: int) -> None:
        """Raise StaleIndexError when the file on disk is no longer the one that was indexed (size, mtime)."""
        raise NotImplementedError


def open_index(
    shards: ShardsLike | Corpus,
    *,
    compression_type: str = "auto",
    on_corrupt: str = "raise",
    index: str = "auto",
    cache_dir: str | None = None,
    executor: Executor | None = None,
    progress: bool | Callable[[int, int], None] | None = None,
) -> Index:
    """The index of a corpus: read when it is there and describes the shards, else built (only what changed is scanned)."""
    raise NotImplementedError


def make_index(counts: IntArray, lengths: list[IntArray] | int, paths: Corpus | None = None) -> Index:
    """An index of given numbers with no data behind it: for tests and benchmarks of the order. `lengths` may be one number for
    every record, held compactly."""
    raise NotImplementedError
