"""The records that the lanes of a worker hold: read, and not yet asked for.

Rule 1: one table for all lanes, a ring of cells each, indexed by arrival; no Python object per record, no loop over lanes.
Rule 2: records lie in the buffers they were read into, one a block; a block goes when its last record leaves. Where the buffers
take more than a quarter above what is held, and READ_SLACK_BYTES, blocks less than half wanted are copied into smaller ones.
Rule 3: rings grow when two records that are held would share a cell, all to the same size.
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
from .needs import READ_SLACK_BYTES
from .reads import RecordsRead

BLOCK, START, LENGTH, SHARD, RECORD, ARRIVAL = range(6)  # fields of a cell
NUM_FIELDS = 6
_FREE = -1
_FIRST_RING = 64
_SMALL_BYTES = 1 << 14  # a block that small is left as it is


class Released(NamedTuple):
    """Records that leave, in the order in which they were asked for."""

    buffers: list[Bytes]
    table: IntArray  # (fields, rows): which of the buffers, start, length, shard, record, arrival
    damages: dict[int, CorruptShardError]  # row → what is wrong with it


class _Block:
    """One buffer, and what of it is still wanted."""

    __slots__ = ("buffer", "cells", "frame_bytes", "wanted_bytes", "wanted_rows")

    def __init__(self, buffer: Bytes, cells: IntArray, num_bytes: int, frame_bytes: int) -> None:
        self.buffer = buffer
        self.cells = cells  # of its records, those that left included
        self.wanted_rows, self.wanted_bytes = len(cells), num_bytes
        self.frame_bytes = frame_bytes  # beside each payload

    def is_mostly_unwanted(self) -> bool:
        wanted = self.wanted_bytes + self.frame_bytes * self.wanted_rows
        return self.buffer.size > _SMALL_BYTES and 2 * wanted < self.buffer.size


class HeldRecords:
    """The held records of some lanes, numbered from 0."""

    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._num_lanes, self._ring = 0, _FIRST_RING
        self._table: IntArray = np.empty((0, NUM_FIELDS), np.int64)
        self._blocks: dict[int, _Block] = {}
        self._next_block = 0
        self._buffer_bytes = self._wanted_bytes = 0  # of all blocks
        self._damages: dict[tuple[int, int], CorruptShardError] = {}  # of (lane, arrival)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the held records."""
        return self._buffer_bytes

    @property
    def num_cells(self) -> int:
        """Cells of the table."""
        return len(self._table)

    def add(self, lanes: IntArray, arrivals: IntArray, read: RecordsRead) -> None:
        """Hold what was read: row i is arrival arrivals[i] of lane lanes[i]."""
        if not len(arrivals):
            return
        cells = self._free_cells(lanes, arrivals)
        number, self._next_block = self._next_block, self._next_block + 1
        rows = np.empty((len(cells), NUM_FIELDS), np.int64)
        rows[:, BLOCK] = number
        for field, values in enumerate((read.start, read.length, read.shard, read.record, arrivals), START):
            rows[:, field] = values
        self._table[cells] = rows
        for row, damage in read.damages.items():
            self._damages[int(lanes[row]), int(arrivals[row])] = damage
        block = self._blocks[number] = _Block(read.buffer, cells, int(read.length.sum()), FRAME_BYTES)
        self._buffer_bytes += block.buffer.size
        self._wanted_bytes += block.wanted_bytes
        self._compact_where_needed()

    def release(self, lanes: IntArray, arrivals: IntArray) -> Released:
        """Take records out, in the order asked for. They must be held; their buffers live as long as somebody looks at them."""
        cells = lanes * self._ring + arrivals % self._ring
        table = np.ascontiguousarray(self._table[cells].T)
        if not np.array_equal(table[ARRIVAL], arrivals) or (table[BLOCK] == _FREE).any():
            raise RuntimeError("a record was asked for that is not held")
        self._table[cells, BLOCK] = _FREE
        table[BLOCK], numbers = self._leave(table[BLOCK], table[LENGTH])
        buffers = [self._blocks[number].buffer for number in numbers]
        self._drop_empty(numbers)
        self._compact_where_needed()
        return Released(buffers, table, self._take_damages(lanes, arrivals))

    def drop(self, lane: int) -> None:
        """Forget what one lane holds."""
        if lane >= self._num_lanes:
            return
        ring = slice(lane * self._ring, (lane + 1) * self._ring)
        held = self._table[ring][self._table[ring, BLOCK] != _FREE]
        self._table[ring, BLOCK] = _FREE
        if len(held):
            self._drop_empty(self._leave(held[:, BLOCK], held[:, LENGTH])[1])
        for key in [key for key in self._damages if key[0] == lane]:
            del self._damages[key]

    def _leave(self, block: IntArray, length: IntArray) -> tuple[IntArray, list[int]]:
        """Count records off their blocks. Returns the block of each among those that lose some, and the numbers of those."""
        lowest = int(block.min())
        which = block - lowest
        rows, sizes = np.bincount(which), np.bincount(which, length)
        used = np.flatnonzero(rows)
        rank = np.empty_like(rows)
        rank[used] = np.arange(len(used))
        numbers: list[int] = (used + lowest).tolist()
        for number, num_rows, num_bytes in zip(numbers, rows[used].tolist(), sizes[used].tolist(), strict=True):
            self._blocks[number].wanted_rows -= num_rows
            self._blocks[number].wanted_bytes -= int(num_bytes)
            self._wanted_bytes -= int(num_bytes)
        return rank[which], numbers

    def _drop_empty(self, numbers: list[int]) -> None:
        for number in numbers:
            if not self._blocks[number].wanted_rows:
                self._buffer_bytes -= self._blocks.pop(number).buffer.size

    def _compact_where_needed(self) -> None:
        """Make room where the buffers take much more than what is held: the emptiest first, which cost least and give most."""
        limit = self._wanted_bytes + self._wanted_bytes // 4 + READ_SLACK_BYTES
        if self._buffer_bytes <= limit:
            return
        emptiest = [item for item in self._blocks.items() if item[1].is_mostly_unwanted()]
        emptiest.sort(key=lambda item: item[1].wanted_bytes / item[1].buffer.size)
        for number, block in emptiest:
            if self._buffer_bytes <= limit:
                return
            self._compact(number, block)

    def _take_damages(self, lanes: IntArray, arrivals: IntArray) -> dict[int, CorruptShardError]:
        if not self._damages:
            return {}
        keys = enumerate(zip(lanes.tolist(), arrivals.tolist(), strict=True))
        return {row: self._damages.pop(key) for row, key in keys if key in self._damages}

    def _compact(self, number: int, block: _Block) -> None:
        """Copy the wanted payloads of a block into a buffer of their size."""
        cells = block.cells[self._table[block.cells, BLOCK] == number]
        start, length = self._table[cells, START], self._table[cells, LENGTH]
        out = self._pool.take(int(length.sum()))
        out_start = starts_of(length)
        backend.copy_spans(block.buffer, start, length, out, out_start)
        self._table[cells, START] = out_start
        self._buffer_bytes += out.size - block.buffer.size
        block.buffer, block.cells, block.frame_bytes = out, cells, 0

    def _free_cells(self, lanes: IntArray, arrivals: IntArray) -> IntArray:
        """A cell for each arrival; rings grow until none is taken and none is named twice."""
        self._resize(max(self._num_lanes, int(lanes.max()) + 1), self._ring)
        while True:
            cells = lanes * self._ring + arrivals % self._ring
            if (self._table[cells, BLOCK] == _FREE).all():
                self._table[cells, ARRIVAL] = arrivals  # of two with one cell, one finds the other's number
                if np.array_equal(self._table[cells, ARRIVAL], arrivals):
                    return cells
            self._resize(self._num_lanes, 2 * self._ring)

    def _resize(self, num_lanes: int, ring: int) -> None:
        """Give every lane a ring of that many cells; what is held moves."""
        if (num_lanes, ring) == (self._num_lanes, self._ring):
            return
        held = np.flatnonzero(self._table[:, BLOCK] != _FREE)
        moved = np.full(len(self._table), _FREE, np.int64)
        moved[held] = held // self._ring * ring + self._table[held, ARRIVAL] % ring
        table = np.full((num_lanes * ring, NUM_FIELDS), _FREE, np.int64)
        table[moved[held]] = self._table[held]
        for number, block in self._blocks.items():
            block.cells = moved[block.cells[self._table[block.cells, BLOCK] == number]]
        self._table, self._num_lanes, self._ring = table, num_lanes, ring
