"""Where new shards begin, counted in records, and how they are cut into buckets that fit in memory."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from ..format.index import Index
from ..format.records import IntArray
from ..format.scan import frame_offsets
from .scatter import RECORD_OVERHEAD


def cut_shards(
    index: Index, num_shards: int | None = None, shard_records: int | None = None, shard_bytes: int | None = None
) -> IntArray:
    """(new shards + 1,) with which record each new shard begins, counted in listing order.

    Raises ValueError when more than one size is given, or one below 1, or there are no records.
    """
    given = [size for size in (num_shards, shard_records, shard_bytes) if size is not None]
    if len(given) > 1 or (given and given[0] < 1):
        raise ValueError("give one of num_shards, shard_records and shard_bytes, at least 1, or none of them")
    total = index.num_records
    if not total:
        raise ValueError(f"{index.corpus.parent}: no records, so there is nothing to write")
    if shard_bytes is None:
        number = num_shards or (-(-total // shard_records) if shard_records else int((index.counts > 0).sum()))
        return np.arange(number + 1, dtype=np.int64) * total // number
    ends = np.array([index.offset(shard, int(count)) for shard, count in enumerate(index.counts)], np.int64)
    sizes = np.concatenate(([0], np.cumsum(ends)))
    number = -(-int(sizes[-1]) // shard_bytes)
    cuts = [_record_at(index, sizes, int(sizes[-1]) * shard // number) for shard in range(1, number)]
    return np.unique(np.array([0, *cuts, total], np.int64))


def _record_at(index: Index, sizes: IntArray, place: int) -> int:
    """The first record that begins at a byte of the corpus or behind it; `sizes` (shards + 1,): the bytes before each shard."""
    shard = int(np.searchsorted(sizes, place, side="right")) - 1
    starts = frame_offsets(index.lengths(shard, 0, int(index.counts[shard])))
    return int(index.counts[:shard].sum()) + int(np.searchsorted(starts, place - sizes[shard]))


def cut_buckets(index: Index, bounds: IntArray, bucket_bytes: int) -> list[IntArray]:
    """For each new shard the places where its buckets begin, and where it ends; a bucket takes about `bucket_bytes` of memory."""
    frames = sum(index.offset(shard, int(count)) for shard, count in enumerate(index.counts))
    record_bytes = frames / index.num_records + RECORD_OVERHEAD
    cuts = []
    for first, stop in pairwise(bounds.tolist()):
        number = max(1, -int(-(stop - first) * record_bytes // bucket_bytes))
        cuts.append(first + np.arange(number + 1, dtype=np.int64) * (stop - first) // number)
    return cuts
