"""Where single records lie in their shards.

The index knows every 1024th offset, and all lengths: the offset of one record is a sum of up to 1024 of them. Who reads records
one by one keeps the sums.

Rule 1: offsets are kept by block of BLOCK_RECORDS records of a shard, MAX_BLOCKS of them (4 MB); the one that was not asked about
for longest makes room.
"""

from __future__ import annotations

import numpy as np

from ..format.framing import FRAME_BYTES
from ..format.index import Index
from ..format.records import IntArray

BLOCK_RECORDS = 1024
MAX_BLOCKS = 512


class RecordPlaces:
    """The places of records of one corpus."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._offsets = np.empty((MAX_BLOCKS, BLOCK_RECORDS + 1), np.int64)  # of a block, and where its last record ends
        self._rows: dict[tuple[int, int], int] = {}  # (shard, block) → row of the table; the one asked about last at the end

    def find(self, shard: IntArray, record: IntArray) -> tuple[IntArray, IntArray]:
        """(where the frame begins, bytes of the payload) of some records."""
        block, place = np.divmod(record, BLOCK_RECORDS)
        keys, which = np.unique(shard << 32 | block, return_inverse=True)
        if len(keys) > MAX_BLOCKS:
            return self._index.spans_of(shard, record, record + 1)
        row = np.array([self._row_of(key >> 32, key & 0xFFFFFFFF) for key in keys.tolist()], np.int64)[which]
        offset = self._offsets[row, place]
        return offset, self._offsets[row, place + 1] - offset - FRAME_BYTES

    def _row_of(self, shard: int, block: int) -> int:
        """The row of a block in the table."""
        row = self._rows.pop((shard, block), None)
        if row is None:
            row = len(self._rows) if len(self._rows) < MAX_BLOCKS else self._rows.pop(next(iter(self._rows)))
            first = block * BLOCK_RECORDS
            stop = min(first + BLOCK_RECORDS, int(self._index.counts[shard]))
            begin, lengths = self._index.spans(shard, first, stop)
            self._offsets[row, 0] = 0
            np.cumsum(lengths + FRAME_BYTES, out=self._offsets[row, 1 : stop - first + 1])
            self._offsets[row, : stop - first + 1] += begin
        self._rows[shard, block] = row
        return row
