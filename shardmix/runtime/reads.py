"""Read planned records into memory: one buffer for all, one read for each run of records that lie side by side.

Rule 1: what is read is what is wanted: a run ends where the next record is not the next of its track. Only the gaps that `split`
leaves inside a run are read with it, up to MAX_GAP_BYTES each.
Rule 2: every frame is judged: of plain local shards by the call that reads it, while it is in the cache; of others all of a
buffer at once. Damage is noted by row, not raised: whether it stops the pass is the caller's.
Rule 3: bytes that do not fit the index are no damage: the file was changed after it was indexed, and that always stops.
Rule 4: a track has one file open at a time, opened when first needed; a pickled or forked reader opens its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple, TypedDict

import numpy as np

from ..errors import CorruptShardError, StaleIndexError
from ..format import backend
from ..format.framing import FRAME_BYTES, HEADER_BYTES, Damage, describe_damage, frame_error
from ..format.index import Index
from ..format.local import read_error
from ..format.records import Bytes, IntArray
from ..format.runs import Runs
from ..format.spans import expand_spans, starts_of
from ..format.storage import ShardFile, local_path, open_shard
from ..order.split import Split
from .buffers import BufferPool

MAX_GAP_BYTES = 1 << 14  # reading on costs less than another system call


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


class TrackFile:
    """The one shard that a track has open."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._shard = -1
        self._file: ShardFile | None = None

    @property
    def is_open(self) -> bool:
        """Whether it holds a descriptor."""
        return self._file is not None

    def would_close(self, shard: int) -> bool:
        """Whether opening a shard closes the file of another."""
        return self._file is not None and self._shard != shard

    def open(self, shard: int) -> ShardFile:
        """The file of a shard; that of another is closed. Raises StaleIndexError when it is not the one that was indexed."""
        if self._file is None or self._shard != shard:
            self.close()
            index = self._index
            index.check(shard)
            self._file = open_shard(index.path(shard), index.compression(shard), entries=index.entries(shard))
            self._shard = shard
        return self._file

    def close(self) -> None:
        """Give back the descriptor. Closing twice is allowed."""
        file, self._file = self._file, None
        if file is not None:
            file.close()


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

    def read(self, tracks: Sequence[TrackFile], pieces: Pieces) -> RecordsRead:
        """Read pieces of tracks, those of a track in its order.

        Raises StaleIndexError where the bytes are not those of the index, OSError where they cannot be read.
        """
        runs = self._locate_in_set(pieces) if self.shares else self._locate(pieces)
        start = starts_of(runs.stride)
        rows = np.concatenate(([0], np.cumsum(runs.num_records)))
        bounds = np.append(start, int(runs.stride.sum()))[rows]
        start += HEADER_BYTES
        shard = np.repeat(runs.shard, runs.num_records)
        read = RecordsRead(self.pool.take(int(bounds[-1])), start, runs.length, shard, runs.record, {})
        asked = Runs(np.empty_like(runs.offset), runs.offset, bounds, rows)
        (self._read_plain if self.is_plain else self._read_streams)(tracks, runs, asked, read)
        return read

    @cached_property
    def is_plain(self) -> bool:
        """Whether all shards are local files that hold the frames as they are."""
        return not (self.index.compressed.any() or self.index.corpus.is_remote)

    def _read_plain(self, tracks: Sequence[TrackFile], runs: _Runs, asked: Runs, read: RecordsRead) -> None:
        """Read and judge many runs by one call: all, or those up to where a track passes into another file."""
        first = 0
        for run, (track, shard) in enumerate(zip(runs.track.tolist(), runs.shard.tolist(), strict=True)):
            if tracks[track].would_close(shard):
                self._read_open(runs, asked, first, run, read)
                first = run
            asked.descriptor[run] = tracks[track].open(shard).descriptor
        self._read_open(runs, asked, first, len(asked.offset), read)

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

    def _read_streams(self, tracks: Sequence[TrackFile], runs: _Runs, asked: Runs, read: RecordsRead) -> None:
        """Read run by run, then judge all frames."""
        places = zip(pairwise(asked.bounds.tolist()), pairwise(asked.rows.tolist()), strict=True)
        for run, ((begin, end), (first, stop)) in enumerate(places):
            file = tracks[int(runs.track[run])].open(int(runs.shard[run]))
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
        found = [self._find_stretches(*piece) for piece in zip(*(column.tolist() for column in pieces), strict=True)]
        return _Runs(*(np.concatenate(columns) for columns in zip(*found, strict=True)))

    def _find_stretches(self, track: int, shard: int, first: int, stop: int) -> _Runs:
        record = np.arange(first, stop)
        for share in reversed(self.shares):
            record = share.split.records(share.name, np.full_like(record, shard), record)
        begin, all_lengths = self.index.spans(shard, int(record[0]), int(record[-1]) + 1)
        at = record - record[0]
        length, offset = all_lengths[at], starts_of(all_lengths + FRAME_BYTES)[at] + begin
        frame = length + FRAME_BYTES
        stride = np.append(np.diff(offset), frame[-1])
        last = np.append(stride[:-1] - frame[:-1] > MAX_GAP_BYTES, True)
        stride[last] = frame[last]
        stops = np.flatnonzero(last) + 1
        starts = np.concatenate(([0], stops[:-1]))
        same = np.ones(len(stops), np.int64)
        return _Runs(track * same, shard * same, offset[starts], stops - starts, record, length, stride)

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
