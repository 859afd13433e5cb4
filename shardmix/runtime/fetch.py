"""Planned rows → records in memory.

Rule 1: a lane is a cursor: order/plan.py says what leaves its shuffle buffer next, shelves.py where that is until then. Asked for
the rows where its cursor stands it goes on; elsewhere it seeks: it takes in what the shuffle buffer holds there, nothing else.
Rule 2: arrivals are taken in in blocks as large as what is asked for, or an eighth of the shuffle buffer if that is more; memory
then stays near what is held. A block is of all lanes. Where records are read as they leave, that comes first, and the next block
is told of ahead.
Rule 3: a row that only fills up a batch (`is_pad`) may be of any lane; it is read by itself and moves no cursor.

Knows nothing of examples, parsers or torch.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError
from ..format.records import Bytes, IntArray, RecordBlock
from ..order.plan import EpochPlan, Plan
from ..order.schedule import BatchRows
from .files import TrackFiles
from .held import BLOCK, LENGTH, NUM_FIELDS, RECORD, SHARD, START, Released
from .reads import Pieces, RecordReader, RecordsRead
from .shelves import Leaving, make_shelf


class Fetched(NamedTuple):
    """The asked-for rows, in the order asked for."""

    block: RecordBlock
    damages: dict[int, CorruptShardError]  # row → what is wrong with it: a hole, its payload is not to be looked at


class _Lane:
    """The cursor of one lane in one epoch."""

    def __init__(self, number: int, order: EpochPlan, lane: int, position: int) -> None:
        self.number = number  # among the lanes of the worker
        self.lane = lane
        self.size = order.lane_size(lane)
        self.departures = order.departures(lane, position)
        self.read_upto = self.departures.taken_in
        self.missing = self.departures.held()  # taken in before the seek, not read yet


class RowReader:
    """All lanes that a worker hosts, at one epoch."""

    def __init__(self, reader: RecordReader, plan: Plan) -> None:
        self._reader, self._plan = reader, plan
        self._order: EpochPlan | None = None
        self._lanes: dict[int, _Lane] = {}
        self._shelf = make_shelf(reader, plan)

    @property
    def num_open(self) -> int:
        """Files that are open: at most one a track, two where records are read as they leave."""
        return self._shelf.num_open

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the held records."""
        return self._shelf.buffer_bytes

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
        self._shelf.close()
        self._lanes.clear()

    def _fetch(self, epoch: int, rows: BatchRows) -> Fetched:
        if self._order is None or self._order.epoch != epoch:
            self.close()
            self._order = self._plan.epoch(epoch)
        order = self._order
        table = np.empty((NUM_FIELDS, len(rows.lane)), np.int64)
        buffers: list[Bytes] = []
        damages: dict[int, CorruptShardError] = {}
        for runs in _split_runs(rows):
            mine = np.concatenate(runs)
            released = self._take(order, [(int(rows.lane[run[0]]), int(rows.position[run[0]]), len(run)) for run in runs])
            released.table[BLOCK] += len(buffers)
            table[:, mine] = released.table
            buffers += released.buffers
            damages |= {int(mine[row]): damage for row, damage in released.damages.items()}
        for row in np.flatnonzero(rows.is_pad).tolist():
            read = self._read_alone(order, int(rows.lane[row]), int(rows.position[row]))
            table[BLOCK, row] = len(buffers)
            for field, values in enumerate((read.start, read.length, read.shard, read.record), START):
                table[field, row] = values[0]
            buffers.append(read.buffer)
            damages.update((row, damage) for damage in read.damages.values())
        block = RecordBlock(
            tuple(buffers), table[BLOCK], table[START], table[LENGTH], table[SHARD], table[RECORD], self._reader.index
        )
        return Fetched(block, damages)

    def _take(self, order: EpochPlan, runs: list[tuple[int, int, int]]) -> Released:
        """Consecutive rows of different lanes, (lane, position, number of rows) each, by their cursors."""
        lanes = [self._find_lane(order, lane, position) for lane, position, _ in runs]
        counts = [num_rows for _, _, num_rows in runs]
        arrivals = [lane.departures.take(num_rows) for lane, num_rows in zip(lanes, counts, strict=True)]
        leaving = Leaving(
            lane=np.repeat([lane.lane for lane in lanes], counts),
            number=np.repeat([lane.number for lane in lanes], counts),
            arrival=np.concatenate(arrivals),
        )
        size = max(self._plan.lane_buffer_size // 8, *counts)
        if self._shelf.is_late:
            released = self._shelf.leave(order, leaving)
            self._take_in(order, lanes, size, ahead=size)
            return released
        self._take_in(order, lanes, size)
        return self._shelf.leave(order, leaving)

    def _take_in(self, order: EpochPlan, lanes: list[_Lane], size: int, ahead: int = 0) -> None:
        """Let arrive what the cursors need, and some more: at most `size` of a lane at a time."""
        for lane in lanes:
            for first in range(0, len(lane.missing), size):
                self._shelf.arrive(np.array([lane.number]), order.reads_of(lane.lane, lane.missing[first : first + size]))
            lane.missing = lane.missing[:0]
        while behind := [lane for lane in lanes if lane.read_upto < min(lane.departures.taken_in + ahead, lane.size)]:
            begin = np.array([lane.read_upto for lane in behind])
            stop = np.array([min(lane.read_upto + size, lane.size) for lane in behind])
            wanted = order.reads(np.array([lane.lane for lane in behind]), begin, stop)
            self._shelf.arrive(np.array([lane.number for lane in behind]), wanted)
            for lane, read_upto in zip(behind, stop.tolist(), strict=True):
                lane.read_upto = read_upto
        for lane in lanes:
            if (lane.departures.position if self._shelf.is_late else lane.read_upto) == lane.size:
                self._shelf.end_lane(lane.number)

    def _find_lane(self, order: EpochPlan, lane: int, position: int) -> _Lane:
        """The cursor of a lane, at a position."""
        found = self._lanes.get(lane)
        if found is not None and found.departures.position == position:
            return found
        number = len(self._lanes) if found is None else found.number
        if found is not None:
            self._shelf.forget(number)
        self._lanes[lane] = _Lane(number, order, lane, position)
        return self._lanes[lane]

    def _read_alone(self, order: EpochPlan, lane: int, position: int) -> RecordsRead:
        """One row of any lane; no cursor moves."""
        shard, number = order.locate(np.array([lane]), np.array([position]))
        files = TrackFiles(self._reader.index)
        try:
            return self._reader.read(files, Pieces(np.zeros(1, np.int64), shard, number, number + 1))
        finally:
            files.close()


def _split_runs(rows: BatchRows) -> list[list[IntArray]]:
    """The rows that move cursors, as runs of consecutive positions of one lane; in groups in which no lane has two."""
    mine = np.flatnonzero(~rows.is_pad)
    mine = mine[np.argsort(rows.lane[mine], kind="stable")]
    if not len(mine):
        return []
    cut = (np.diff(rows.lane[mine]) != 0) | (np.diff(rows.position[mine]) != 1)
    groups: list[list[IntArray]] = []
    seen: dict[int, int] = {}
    for run in np.split(mine, np.flatnonzero(cut) + 1):
        lane = int(rows.lane[run[0]])
        nth = seen[lane] = seen.get(lane, -1) + 1
        if nth == len(groups):
            groups.append([])
        groups[nth].append(run)
    return groups
