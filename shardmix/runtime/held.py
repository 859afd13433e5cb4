"""The records that a lane holds: read, and not yet asked for.

Rule 1: arrays indexed by arrival; no Python object per record.
Rule 2: records lie in the buffers they were read into, one a block. A block less than half wanted is copied into a smaller
buffer, so that what is held takes at most twice its bytes; a block goes when its last record leaves.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError
from ..format import backend
from ..format.framing import FRAME_BYTES
from ..format.records import Bytes, IntArray
from ..format.spans import starts_of
from .buffers import BufferPool
from .reads import RecordsRead

BLOCK, START, LENGTH, SHARD, RECORD = range(5)  # rows of the table
NUM_FIELDS = 5
_NOT_HELD = -1
_SMALL_BYTES = 1 << 14  # a block that small is left as it is


class Released(NamedTuple):
    """Records that leave, in the order in which they were asked for."""

    buffers: list[Bytes]
    table: IntArray  # (5, rows): which of the buffers, start, length, shard, record
    damages: dict[int, CorruptShardError]  # row → what is wrong with it


class _Block:
    """One buffer, and what of it is still wanted."""

    __slots__ = ("buffer", "first", "frame_bytes", "stop", "wanted_bytes", "wanted_rows")

    def __init__(self, buffer: Bytes, first: int, stop: int, rows: int, num_bytes: int, frame_bytes: int) -> None:
        self.buffer = buffer
        self.first, self.stop = first, stop  # its arrivals are among these
        self.wanted_rows, self.wanted_bytes = rows, num_bytes
        self.frame_bytes = frame_bytes  # beside each payload

    def is_mostly_unwanted(self) -> bool:
        wanted = self.wanted_bytes + self.frame_bytes * self.wanted_rows
        return self.buffer.size > _SMALL_BYTES and 2 * wanted < self.buffer.size


class HeldRecords:
    """The held records of one lane."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._first = self._stop = 0  # the arrivals that the table spans
        self._table: IntArray = np.empty((NUM_FIELDS, 0), np.int64)
        self._blocks: dict[int, _Block] = {}
        self._next_block = 0
        self._damages: dict[int, CorruptShardError] = {}

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the held records."""
        return sum(block.buffer.size for block in self._blocks.values())

    def add(self, arrivals: IntArray, read: RecordsRead, order: IntArray) -> None:
        """Hold what was read. arrivals: (rows,) ascending, later than all held. order: (rows,) the place of each in the read."""
        if not len(arrivals):
            return
        first, stop = int(arrivals[0]), int(arrivals[-1]) + 1
        self._reserve(first, stop)
        at: slice | IntArray = slice(first - self._first, stop - self._first)
        if stop - first > len(arrivals):
            at = arrivals - self._first
        number = self._next_block
        self._next_block += 1
        self._table[BLOCK, at] = number
        for field, values in ((START, read.start), (LENGTH, read.length), (SHARD, read.shard), (RECORD, read.record)):
            self._table[field, at] = values[order]
        if read.damages:
            place = np.empty_like(order)
            place[order] = arrivals
            self._damages |= {int(place[row]): damage for row, damage in read.damages.items()}
        block = _Block(read.buffer, first, stop, len(arrivals), int(read.length.sum()), FRAME_BYTES)
        self._blocks[number] = block
        if block.is_mostly_unwanted():
            self._compact(number, block)

    def release(self, arrivals: IntArray) -> Released:
        """Take records out, in the order asked for. They must be held; their buffers live as long as somebody looks at them."""
        at = arrivals - self._first
        table = self._table[:, at]
        self._table[BLOCK, at] = _NOT_HELD
        which = table[BLOCK]
        which -= (lowest := int(which.min()))
        rows, sizes = np.bincount(which), np.bincount(which, table[LENGTH])
        used = np.flatnonzero(rows)
        rank = np.empty_like(rows)
        rank[used] = np.arange(len(used))
        table[BLOCK] = rank[which]
        leaving = zip((used + lowest).tolist(), rows[used].tolist(), sizes[used].tolist(), strict=True)
        buffers = []
        for number, num_rows, num_bytes in leaving:
            block = self._blocks[number]
            buffers.append(block.buffer)
            block.wanted_rows -= num_rows
            block.wanted_bytes -= int(num_bytes)
            if not block.wanted_rows:
                del self._blocks[number]
            elif block.is_mostly_unwanted():
                self._compact(number, block)
        damages = {}
        if self._damages:
            damages = {row: self._damages.pop(a) for row, a in enumerate(arrivals.tolist()) if a in self._damages}
        return Released(buffers, table, damages)

    def _compact(self, number: int, block: _Block) -> None:
        """Copy the wanted payloads of a block into a buffer of their size."""
        low = block.first - self._first
        low = max(low, 0)
        at = np.flatnonzero(self._table[BLOCK, low : block.stop - self._first] == number) + low
        start, length = self._table[START, at], self._table[LENGTH, at]
        out = self._pool.take(int(length.sum()))
        out_start = starts_of(length)
        backend.copy_spans(block.buffer, start, length, out, out_start)
        self._table[START, at] = out_start
        block.buffer, block.frame_bytes = out, 0

    def _reserve(self, first: int, stop: int) -> None:
        """Make the table span arrivals up to stop-1; what lies before the first held one is dropped when room is short."""
        used = self._stop - self._first
        if not used:
            self._first = self._stop = first
        if stop - self._first > self._table.shape[1]:
            is_held = self._table[BLOCK, :used] != _NOT_HELD
            lead = int(is_held.argmax()) if used and is_held.any() else used
            kept = self._table[:, lead:used]
            self._first = self._first + lead if lead < used else first
            needed = stop - self._first
            if 2 * needed > self._table.shape[1]:
                self._table = np.empty((NUM_FIELDS, 2 * needed), np.int64)
            self._table[:, : kept.shape[1]] = kept
            used = kept.shape[1]
        self._table[BLOCK, used : stop - self._first] = _NOT_HELD
        self._stop = stop
