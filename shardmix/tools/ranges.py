"""Records of a corpus by ranges: which shards they lie in, and reading them framed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import StaleIndexError
from ..format.index import Index
from ..format.records import IntArray
from ..format.scan import FrameBlock, frame_offsets, walk_frames
from ..format.storage import open_shard
from .findings import Finding


class ShardRange(NamedTuple):
    """Consecutive records of one shard; all that is needed to read them, on any machine."""

    path: str
    compression: str
    entries: tuple[tuple[int, int], ...]
    first: int
    stop: int
    offset: int  # byte at which the frame of `first` begins, in the inflated bytes
    number: int  # of `first`, counted over the corpus


def find_ranges(index: Index, first: int, stop: int) -> list[ShardRange]:
    """The records first … stop-1 of the corpus, counted in listing order. Raises StaleIndexError where a shard has changed."""
    ends = np.cumsum(index.counts)
    ranges = []
    for shard in range(int(np.searchsorted(ends, first, side="right")), len(index)):
        start = int(ends[shard] - index.counts[shard])
        if start >= stop:
            break
        begin, end = max(first - start, 0), min(stop - start, int(index.counts[shard]))
        if begin < end:
            index.check(shard)
            place = index.offset(shard, begin)
            ranges.append(
                ShardRange(index.path(shard), index.compression(shard), index.entries(shard), begin, end, place, start + begin)
            )
    return ranges


def walk_range(one: ShardRange, findings: list[Finding], on_corrupt: str) -> Iterator[FrameBlock]:
    """The sound frames of a range, a block at a time. Payload damage is raised, or added to `findings` for on_corrupt="skip".

    Raises CorruptShardError, StaleIndexError where the shard is no longer as it was indexed, OSError.
    """
    file = open_shard(one.path, one.compression, entries=one.entries)
    record = one.first
    try:
        for block in walk_frames(file, record=one.first, offset=one.offset):
            room = one.stop - block.first
            if len(block.lengths) > room:
                block = _cut(block, room)
            if len(block.lengths):
                yield block
            record = block.first + len(block.lengths)
            if record >= one.stop:
                return
            if block.damage is not None:
                if on_corrupt == "raise" or block.passed_length is None:
                    raise block.damage
                findings.append(Finding.of_damage(block.damage))
                record += 1
                if record >= one.stop:
                    return
    finally:
        file.close()
    raise StaleIndexError(f"it ends before record {one.stop}, which its index has; it was cut", path=one.path, record=record)


def _cut(block: FrameBlock, stop: int) -> FrameBlock:
    """The first frames of a block, without what comes behind."""
    lengths: IntArray = block.lengths[:stop]
    size = int(frame_offsets(lengths)[-1])
    return block._replace(data=block.data[:size], lengths=lengths, damage=None, passed_length=None)


