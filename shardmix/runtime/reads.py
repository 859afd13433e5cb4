"""Read planned records into memory: one buffer for all, one read for each run of records that lie side by side.

Rule 1: what is read is what is wanted: a run ends where the next record is not the next of its track. Only the gaps that `split`
leaves inside a run are read with it, up to MAX_GAP_BYTES each.
Rule 2: every frame is judged, all of a buffer at once. Damage is noted by row, not raised: whether it stops the pass is the
caller's.
Rule 3: bytes that do not fit the index are no damage: the file was changed after it was indexed, and that always stops.
Rule 4: a track has one file open at a time, opened when first needed; a pickled or forked reader opens its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError, StaleIndexError
from ..format import backend
from ..format.framing import FRAME_BYTES, HEADER_BYTES, Damage, describe_damage, frame_error
from ..format.index import Index
from ..format.records import Bytes, IntArray
from ..format.spans import starts_of
from ..format.storage import ShardFile, open_shard
from ..order.split import Split
from .buffers import BufferPool

MAX_GAP_BYTES = 1 << 14  # reading on costs less than another system call
_MAX_SPARSE = 64  # lengths looked up for each record wanted, before it is looked up alone


class Share(NamedTuple):
    """A named set of a split: what `ShardDataset.split` gives. Sets of sets are a chain of them, the innermost last."""

    split: Split
    name: str


class RecordsRead(NamedTuple):
    """Records in memory, in the order in which they were asked for."""

    buffer: Bytes
    start: IntArray  # (rows,) where the payload begins in the buffer
    length: IntArray  # (rows,) bytes of the payload
    shard: IntArray  # (rows,)
    record: IntArray  # (rows,) number in the shard
    damages: dict[int, CorruptShardError]  # row → what is wrong with it; rows of one damage share it


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


@dataclass(frozen=True)
class RecordReader:
    """Reads records of one corpus, or of a set of it."""

    index: Index
    shares: tuple[Share, ...]
    verify: str
    pool: BufferPool

    def read(self, tracks: Sequence[TrackFile], slot: IntArray, shard: IntArray, number: IntArray) -> RecordsRead:
        """Read records, those of a track side by side and in its order.

        slot: (rows,) whose file of `tracks` reads each. shard: (rows,). number: (rows,) number of the record among those of the
        shard that are in the set.

        Raises StaleIndexError where the bytes are not those of the index, OSError where they cannot be read.
        """
        record = number
        for share in reversed(self.shares):
            record = share.split.records(share.name, shard, record)
        offset, length = self._locate(slot, shard, record)
        end = offset + length + FRAME_BYTES
        first = self._begin_runs(slot, shard, number, offset, end)
        run_bytes = end[np.append(first[1:], len(end)) - 1] - offset[first]
        place = starts_of(run_bytes)
        buffer = self.pool.take(int(run_bytes.sum()))
        start = np.repeat(place - offset[first], np.diff(first, append=len(end))) + offset + HEADER_BYTES
        read = RecordsRead(buffer, start, length, shard, record, {})
        runs = zip(slot[first].tolist(), shard[first].tolist(), first.tolist(), place.tolist(), run_bytes.tolist(), strict=True)
        for track, run_shard, row, at, size in runs:
            file = tracks[track].open(run_shard)
            got, text = file.read_sound(int(offset[row]), buffer[at : at + size])
            if got < size:
                self._note_short_run(read, offset, row, at + got, at + size, text)
        self._judge(read, offset)
        return read

    def _note_short_run(self, read: RecordsRead, offset: IntArray, row: int, got: int, end: int, text: str | None) -> None:
        """The run that begins with `row` gave bytes up to `got` of the buffer, not to `end`: the rest of its records are lost."""
        frame_end = read.start + read.length + FRAME_BYTES - HEADER_BYTES
        lost = np.flatnonzero((np.arange(len(frame_end)) >= row) & (frame_end > got) & (frame_end <= end)).tolist()
        path = self.index.path(int(read.shard[row]))
        record, at = int(read.record[lost[0]]), int(offset[lost[0]])
        if text is None:
            raise StaleIndexError(
                "the file ends before this record does; it was cut after it was indexed, build the index again",
                path=path,
                record=record,
                offset=at,
            )
        read.damages.update(dict.fromkeys(lost, CorruptShardError(text, path=path, record=record, offset=at)))

    def _locate(self, slot: IntArray, shard: IntArray, record: IntArray) -> tuple[IntArray, IntArray]:
        """(byte of the frame, bytes of the payload) of each record, looked up by stretches of one shard."""
        step = np.diff(record)
        cut = (np.diff(slot) != 0) | (np.diff(shard) != 0) | (step <= 0) | (step > _MAX_SPARSE)
        first = np.concatenate(([0], np.flatnonzero(cut) + 1))
        offset, length = np.empty_like(record), np.empty_like(record)
        for a, b in zip(first.tolist(), [*first[1:].tolist(), len(record)], strict=True):
            low = int(record[a])
            begin, lengths = self.index.spans(int(shard[a]), low, int(record[b - 1]) + 1)
            offsets = starts_of(lengths + FRAME_BYTES) + begin
            wanted = record[a:b] - low if len(lengths) > b - a else slice(None)
            offset[a:b], length[a:b] = offsets[wanted], lengths[wanted]
        return offset, length

    @staticmethod
    def _begin_runs(slot: IntArray, shard: IntArray, number: IntArray, offset: IntArray, end: IntArray) -> IntArray:
        """The rows where a run begins: what is read at once."""
        gap = offset[1:] - end[:-1]
        joined = (np.diff(slot) == 0) & (np.diff(shard) == 0) & (np.diff(number) == 1) & (gap >= 0) & (gap <= MAX_GAP_BYTES)
        return np.concatenate(([0], np.flatnonzero(~joined) + 1))

    def _judge(self, read: RecordsRead, offset: IntArray) -> None:
        """Check every frame of the buffer; damages are added to those of the read."""
        codes = backend.check_frames(read.buffer, read.start, read.length, verify=self.verify)
        for row in np.flatnonzero(codes).tolist():
            if row in read.damages:
                continue
            damage, length = Damage(int(codes[row])), int(read.length[row])
            begin = int(read.start[row]) - HEADER_BYTES
            frame = read.buffer.data[begin : begin + length + FRAME_BYTES]
            path, record, at = self.index.path(int(read.shard[row])), int(read.record[row]), int(offset[row])
            if damage == Damage.LENGTH_DIFFERS:
                text = describe_damage(damage, frame, len(frame), length)
                raise StaleIndexError(text, path=path, record=record, offset=at)
            read.damages[row] = frame_error(damage, frame, path=path, record=record, offset=at, remaining=len(frame))
