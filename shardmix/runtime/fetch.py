"""Planned rows → records in memory.

Rule 1: a lane is a cursor (order/plan.py says what leaves next) and what it holds (held.py). Asked for the rows where its cursor
stands it goes on; elsewhere it seeks: it reads what the shuffle buffer holds there, nothing else.
Rule 2: arrivals are read in blocks as large as what is asked for, or an eighth of the shuffle buffer if that is more; memory then
stays near what is held. A block of one lane is one buffer, one read for each of its tracks, one check of all its frames.
Rule 3: a row that only fills up a batch (`is_pad`) may be of any lane; it is read by itself and moves no cursor.

Knows nothing of examples, parsers or torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError
from ..format.records import Bytes, IntArray, RecordBlock
from ..format.spans import starts_of
from ..order.plan import EpochPlan, Plan
from ..order.schedule import BatchRows
from .held import BLOCK, LENGTH, NUM_FIELDS, RECORD, SHARD, START, HeldRecords, Released
from .reads import Piece, RecordReader, TrackFile


class Fetched(NamedTuple):
    """The asked-for rows, in the order asked for."""

    block: RecordBlock
    damages: dict[int, CorruptShardError]  # row → what is wrong with it: a hole, its payload is not to be looked at


class LaneReader:
    """One lane of one epoch, from a position on."""

    def __init__(self, reader: RecordReader, order: EpochPlan, lane: int, position: int, block_size: int) -> None:
        self._reader, self._order, self._lane = reader, order, lane
        self._block_size = block_size
        self._size = order.lane_size(lane)
        self._tracks = [TrackFile(reader.index) for _ in range(order.cycle_length)]
        self._held = HeldRecords(reader.pool)
        self._departures = order.departures(lane, position)
        self._read_upto = self._departures.taken_in
        self._missing = self._departures.held()  # taken in before the seek, not read yet

    @property
    def position(self) -> int:
        """The place in the lane's order of the next row."""
        return self._departures.position

    @property
    def num_open(self) -> int:
        """Descriptors that it holds."""
        return sum(track.is_open for track in self._tracks)

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind what it holds."""
        return self._held.buffer_bytes

    def take(self, num_rows: int) -> Released:
        """The next rows of the lane."""
        arrivals = self._departures.take(num_rows)
        size = max(num_rows, self._block_size)
        for first in range(0, len(self._missing), size):
            self._read_missing(self._missing[first : first + size])
        self._missing = self._missing[:0]
        while self._read_upto < self._departures.taken_in:
            self._read_on(min(self._read_upto + size, self._size))
        if self._read_upto == self._size:
            self.close()
        return self._held.release(arrivals)

    def close(self) -> None:
        """Close the files. What is held stays."""
        for track in self._tracks:
            track.close()

    def _read_on(self, stop: int) -> None:
        """Read the arrivals up to stop-1, track by track."""
        order, lane = self._order, self._lane
        arrivals = np.arange(self._read_upto, stop)
        before, after = order.slot_counts(lane, self._read_upto), order.slot_counts(lane, stop)
        pieces = [
            Piece(slot, *piece)
            for slot, bounds in enumerate(zip(before.tolist(), after.tolist(), strict=True))
            for piece in order.slot_pieces(lane, slot, *bounds)
        ]
        slot, position = order.slot_of(lane, arrivals)
        place = (starts_of(after - before) - before)[slot] + position
        self._held.add(arrivals, self._reader.read(self._tracks, pieces), place)
        self._read_upto = stop

    def _read_missing(self, arrivals: IntArray) -> None:
        """Read some arrivals, ascending, and none between them."""
        slot, position = self._order.slot_of(self._lane, arrivals)
        shard, number = self._order.addresses(self._lane, arrivals)
        by_track = np.lexsort((position, slot))
        key = np.stack([slot, shard, number])[:, by_track]
        step = np.diff(key)
        cuts = np.flatnonzero((step[0] != 0) | (step[1] != 0) | (step[2] != 1)) + 1
        first, last = key[:, [0, *cuts]], key[2, [*(cuts - 1), -1]]
        pieces = list(map(Piece, *first.tolist(), (last + 1).tolist()))
        place = np.empty_like(by_track)
        place[by_track] = np.arange(len(by_track))
        self._held.add(arrivals, self._reader.read(self._tracks, pieces), place)


class RowReader:
    """All lanes that a worker hosts, at one epoch."""

    def __init__(self, reader: RecordReader, plan: Plan) -> None:
        self._reader, self._plan = reader, plan
        self._order: EpochPlan | None = None
        self._lanes: dict[int, LaneReader] = {}

    @property
    def num_open(self) -> int:
        """Files that are open."""
        return sum(lane.num_open for lane in self._lanes.values())

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the held records."""
        return sum(lane.buffer_bytes for lane in self._lanes.values())

    def fetch(self, epoch: int, rows: BatchRows) -> Fetched:
        """Read some rows. After an error all cursors are void, and the next call seeks.

        Raises StaleIndexError, OSError, and ValueError where a lane has no such rows.
        """
        try:
            return self._fetch(epoch, rows)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close files, drop what is held."""
        for lane in self._lanes.values():
            lane.close()
        self._lanes.clear()

    def _fetch(self, epoch: int, rows: BatchRows) -> Fetched:
        if self._order is None or self._order.epoch != epoch:
            self.close()
            self._order = self._plan.epoch(epoch)
        order = self._order
        table = np.empty((NUM_FIELDS, len(rows.lane)), np.int64)
        buffers: list[Bytes] = []
        damages: dict[int, CorruptShardError] = {}
        for run in _split_runs(rows):
            released = self._take(order, int(rows.lane[run[0]]), int(rows.position[run[0]]), len(run))
            released.table[BLOCK] += len(buffers)
            table[:, run] = released.table
            buffers += released.buffers
            damages |= {int(run[row]): damage for row, damage in released.damages.items()}
        for row in np.flatnonzero(rows.is_pad).tolist():
            released = self._take_alone(order, int(rows.lane[row]), int(rows.position[row]))
            table[:, row] = [len(buffers), *released.table[START:, 0]]
            buffers += released.buffers
            damages.update((row, damage) for damage in released.damages.values())
        block = RecordBlock(
            tuple(buffers), table[BLOCK], table[START], table[LENGTH], table[SHARD], table[RECORD], self._reader.index
        )
        return Fetched(block, damages)

    def _take(self, order: EpochPlan, lane: int, position: int, num_rows: int) -> Released:
        """Consecutive rows of a lane, by its cursor."""
        reader = self._lanes.get(lane)
        if reader is None or reader.position != position:
            if reader is not None:
                reader.close()
            reader = LaneReader(self._reader, order, lane, position, self._plan.lane_buffer_size // 8)
            self._lanes[lane] = reader
        return reader.take(num_rows)

    def _take_alone(self, order: EpochPlan, lane: int, position: int) -> Released:
        """One row of any lane; no cursor moves."""
        arrival = order.departures(lane, position).take(1)
        shard, number = order.addresses(lane, arrival)
        track = TrackFile(self._reader.index)
        try:
            read = self._reader.read([track], [Piece(0, int(shard[0]), int(number[0]), int(number[0]) + 1)])
        finally:
            track.close()
        table = np.stack([np.zeros(1, np.int64), read.start, read.length, read.shard, read.record])
        return Released([read.buffer], table, read.damages)


def _split_runs(rows: BatchRows) -> list[IntArray]:
    """The rows that move cursors, as runs of consecutive positions of one lane."""
    mine = np.flatnonzero(~rows.is_pad)
    mine = mine[np.argsort(rows.lane[mine], kind="stable")]
    if not len(mine):
        return []
    cut = (np.diff(rows.lane[mine]) != 0) | (np.diff(rows.position[mine]) != 1)
    return np.split(mine, np.flatnonzero(cut) + 1)
