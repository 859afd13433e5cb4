"""Read planned records into memory: one buffer for all, one read for each run of records that lie side by side.

Rule 1: what is read is what is wanted: a run ends where the next record is not the next of its track. Only the gaps that `split`
leaves inside a run are read with it, up to MAX_GAP_BYTES each.
Rule 2: every frame is judged: of plain local shards by the call that reads it, while it is in the cache; of others all of a
buffer at once. Damage is noted by row, not raised: whether it stops the pass is the caller's.
Rule 3: bytes that do not fit the index are no damage: the file was changed after it was indexed, and that always stops.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypedDict

import numpy as np

from ..errors import CorruptShardError, StaleIndexError
from ..format import backend
from ..format.framing import FRAME_BYTES, HEADER_BYTES, Damage, describe_damage, frame_error
from ..format.index import Index
from ..format.local import advise, read_error
from ..format.records import Bytes, IntArray
from ..format.runs import Runs
from ..format.spans import expand_spans, starts_of
from ..format.storage import local_path
from ..order.plan import Plan
from ..order.split import Split
from .buffers import BufferPool
from .files import Files
from .places import RecordPlaces

MAX_GAP_BYTES = 1 << 14  # reading on costs less than another system call
LATE_BYTES = 1 << 13  # of a frame, on average: from there on a system call costs clearly less than holding the bytes


class Share(NamedTuple):
    """A named set of a split: what `ShardDataset.split` gives. Sets of sets are a chain of them, the innermost last."""

    split: Split
    name: str


class RecordsRead(NamedTuple):
    """Records in memory, piece by piece."""

    buffer: Bytes
    start: IntArray  # (rows,) where the payload begins in the buffer
    length: IntArray  # (rows,) bytes of the payload
    shard: IntArray  # (rows,)
    record: IntArray  # (rows,) number in the shard
    damages: dict[int, CorruptShardError]  # row → what is wrong with it


class _Place(TypedDict):
    path: str
    record: int
    offset: int


class Pieces(NamedTuple):
    """Runs of records: numbers first … stop-1 of those of the shard that are in the set. All int64 (runs,)."""

    track: IntArray  # which of the tracks
    shard: IntArray
    first: IntArray
    stop: IntArray


class _Runs(NamedTuple):
    """Runs that are read at once."""

    track: IntArray  # (runs,)
    shard: IntArray  # (runs,)
    offset: IntArray  # (runs,) byte of the shard at which the first frame begins
    num_records: IntArray  # (runs,)
    record: IntArray  # (records,)
    length: IntArray  # (records,)
    stride: IntArray  # (records,) bytes from the beginning of a frame to that of the next that is wanted


@dataclass(frozen=True)
class RecordReader:
    """Reads records of one corpus, or of a set of it."""

    index: Index
    shares: tuple[Share, ...]
    verify: str
    pool: BufferPool

    def read(self, files: Files, pieces: Pieces) -> RecordsRead:
        """Read pieces of tracks, those of a track in its order.

        Raises StaleIndexError where the bytes are not those of the index, OSError where they cannot be read.
        """
        return self._read(files, self._locate_in_set(pieces) if self.shares else self._locate(pieces))

    def read_each(self, files: Files, shard: IntArray, record: IntArray) -> RecordsRead:
        """Read single records, given by their numbers in the set. Plain local shards alone. Raises what `read` does."""
        record = self._number_in_shard(shard, record)
        offset, length = self._places.find(shard, record)
        each = np.ones_like(record)
        return self._read(files, _Runs(each, shard, offset, each, record, length, length + FRAME_BYTES))

    def advise_each(self, files: Files, shard: IntArray, record: IntArray) -> None:
        """Tell the system that records will be read; neighbours, and those with a small gap between them, as one run."""
        record = self._number_in_shard(shard, record)
        offset, length = self._places.find(shard, record)
        starts, stride = _join_neighbours(shard, offset, length + FRAME_BYTES)
        num_bytes = np.add.reduceat(stride, starts)
        for number, begin, size in zip(shard[starts].tolist(), offset[starts].tolist(), num_bytes.tolist(), strict=True):
            advise(files.open(0, number).descriptor, begin, size)

    @cached_property
    def is_plain(self) -> bool:
        return is_plain(self.index)

    @cached_property
    def _places(self) -> RecordPlaces:
        return RecordPlaces(self.index)

    def _read(self, files: Files, runs: _Runs) -> RecordsRead:
        """Read runs into one buffer."""
        start = starts_of(runs.stride)
        rows = np.concatenate(([0], np.cumsum(runs.num_records)))
        bounds = np.append(start, int(runs.stride.sum()))[rows]
        start += HEADER_BYTES
        shard = np.repeat(runs.shard, runs.num_records)
        read = RecordsRead(self.pool.take(int(bounds[-1])), start, runs.length, shard, runs.record, {})
        asked = Runs(np.empty_like(runs.offset), runs.offset, bounds, rows)
        (self._read_plain if self.is_plain else self._read_streams)(files, runs, asked, read)
        return read

    def _read_plain(self, files: Files, runs: _Runs, asked: Runs, read: RecordsRead) -> None:
        """Read and judge as many runs by one call as can be open at once: mostly all."""
        first, count = 0, len(asked.offset)
        while first < count:
            descriptor = files.open_many(runs.track[first:], runs.shard[first:])
            stop = first + len(descriptor)
            asked.descriptor[first:stop] = descriptor
            self._read_open(runs, asked, first, stop, read)
            first = stop

    def _read_open(self, runs: _Runs, asked: Runs, first: int, stop: int, read: RecordsRead) -> None:
        """Read and judge the runs first … stop-1, whose files are open."""
        rows = slice(int(asked.rows[first]), int(asked.rows[stop]))
        part = asked.part(first, stop)
        done = backend.read_runs(part, read.start[rows], read.length[rows], read.buffer, verify=self.verify)
        for short in np.flatnonzero(done.got < np.diff(part.bounds)).tolist():
            run, got = first + short, int(done.got[short])
            if short == done.failed:
                raise read_error(done.error, int(runs.offset[run]) + got, local_path(self.index.path(int(runs.shard[run]))))
            self._note_short_run(read, range(int(asked.rows[run]), int(asked.rows[run + 1])), int(asked.bounds[run]) + got, None)
        self._note_damages(read, done.codes, rows.start)

    def _read_streams(self, files: Files, runs: _Runs, asked: Runs, read: RecordsRead) -> None:
        """Read run by run, then judge all frames."""
        places = zip(pairwise(asked.bounds.tolist()), pairwise(asked.rows.tolist()), strict=True)
        for run, ((begin, end), (first, stop)) in enumerate(places):
            file = files.open(int(runs.track[run]), int(runs.shard[run]))
            got, text = file.read_sound(int(runs.offset[run]), read.buffer[begin:end])
            if got < end - begin:
                self._note_short_run(read, range(first, stop), begin + got, text)
        self._note_damages(read, backend.check_frames(read.buffer, read.start, read.length, verify=self.verify))

    def _locate(self, pieces: Pieces) -> _Runs:
        """A run a piece."""
        count = pieces.stop - pieces.first
        offset, length = self.index.spans_of(pieces.shard, pieces.first, pieces.stop)
        record = expand_spans(pieces.first, count)
        return _Runs(pieces.track, pieces.shard, offset, count, record, length, length + FRAME_BYTES)

    def _locate_in_set(self, pieces: Pieces) -> _Runs:
        """In a set of a split a piece is one run for each stretch without a large gap."""
        count = pieces.stop - pieces.first
        piece = np.repeat(np.arange(len(count)), count)
        record = self._number_in_shard(pieces.shard[piece], expand_spans(pieces.first, count))
        ends = np.cumsum(count)
        first, stop = record[ends - count], record[ends - 1] + 1
        begin, all_lengths = self.index.spans_of(pieces.shard, first, stop)
        at = starts_of(stop - first)  # where the lengths of a piece begin
        place = starts_of(all_lengths + FRAME_BYTES)
        each = record + (at - first)[piece]
        length, offset = all_lengths[each], place[each] + (begin - place[at])[piece]
        starts, stride = _join_neighbours(piece, offset, length + FRAME_BYTES)
        num_records = np.diff(np.append(starts, len(record)))
        of_run = piece[starts]
        return _Runs(pieces.track[of_run], pieces.shard[of_run], offset[starts], num_records, record, length, stride)

    def _number_in_shard(self, shard: IntArray, record: IntArray) -> IntArray:
        """The numbers in their shards of records that are numbered in the set."""
        for share in reversed(self.shares):
            record = share.split.records(share.name, shard, record)
        return record

    def _note_short_run(self, read: RecordsRead, rows: range, got: int, text: str | None) -> None:
        """A run gave bytes up to `got` of the buffer, and no more: those of its rows that do not end there are lost."""
        ends = read.start[rows] + read.length[rows] + FRAME_BYTES - HEADER_BYTES
        lost = rows[int(np.searchsorted(ends, got, side="right")) :]
        if text is None:
            text = "the file ends before this record does; it was cut after it was indexed, build the index again"
            raise StaleIndexError(text, **self._place(read, lost[0]))
        read.damages.update((row, CorruptShardError(text, **self._place(read, row))) for row in lost)

    def _note_damages(self, read: RecordsRead, codes: IntArray, first: int = 0) -> None:
        """Add to the damages of the read what the check of the rows from `first` on says."""
        for row in (np.flatnonzero(codes) + first).tolist():
            if row in read.damages:
                continue
            damage, length = Damage(int(codes[row - first])), int(read.length[row])
            begin = int(read.start[row]) - HEADER_BYTES
            frame = read.buffer.data[begin : begin + length + FRAME_BYTES]
            place = self._place(read, row)
            if damage == Damage.LENGTH_DIFFERS:
                raise StaleIndexError(describe_damage(damage, frame, len(frame), length), **place)
            read.damages[row] = frame_error(damage, frame, remaining=len(frame), **place)

    def _place(self, read: RecordsRead, row: int) -> _Place:
        """Where a row is, for an error."""
        shard, record = int(read.shard[row]), int(read.record[row])
        return {"path": self.index.path(shard), "record": record, "offset": self.index.offset(shard, record)}


def _join_neighbours(group: IntArray, offset: IntArray, frame: IntArray) -> tuple[IntArray, IntArray]:
    """Frames of ascending groups as runs, without a large gap: (the first frame of each run, the stride of each frame)."""
    ahead = np.diff(offset)
    is_last = np.append((np.diff(group) != 0) | (ahead < 0) | (ahead - frame[:-1] > MAX_GAP_BYTES), True)
    return np.append(0, np.flatnonzero(is_last[:-1]) + 1), np.where(is_last, frame, np.append(ahead, 0))


def is_plain(index: Index) -> bool:
    """Whether all shards are local files that hold the frames as they are."""
    return not (index.compressed.any() or index.corpus.is_remote)


def reads_late(index: Index, plan: Plan) -> bool:
    """Whether each record is read by itself, when it leaves the shuffle buffer: large ones, of plain local shards."""
    num_bytes = int(np.maximum(index.sizes, 0).sum())
    return plan.lane_buffer_size > 0 and is_plain(index) and num_bytes >= LATE_BYTES * index.num_records
