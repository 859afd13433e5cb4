"""The two passes of a full shuffle with bounded memory.

    scatter   reads shards one after another; whenever its buffer is full, the records in it are sorted by where they go and
              written to a spill file, end to end
    gather    reads, of every spill, the records that go to one *bucket*, sorts them, and writes the shard

Rule 1: a bucket is a range of places of the result that fits in memory; a shard of the result is one or several buckets.
Rule 2: records stay framed, and are copied in arrays, none by itself. Each pass reads and writes every byte once.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

import numpy as np

from ..format import backend
from ..format.framing import FRAME_BYTES
from ..format.output import ShardOutput
from ..format.records import Bytes, IntArray
from ..format.scan import FrameBlock
from .findings import Finding
from .full_shuffle import FullShuffle
from .ranges import ShardRange, walk_range

RECORD_OVERHEAD = 64  # bytes of arrays beside each record in memory
SLICE_BYTES = 4 << 20  # copied and written at a time
OUTPUT_BUFFER_BYTES = 1 << 20


class ScatterTask(NamedTuple):
    """Whole shards for one call of `scatter`."""

    ranges: list[ShardRange]
    shuffle: FullShuffle
    bucket_bounds: IntArray  # (buckets + 1,) places of the result
    memory_bytes: int
    spill: str  # path; the places are beside it, with .places behind the name
    on_corrupt: str


class Spill(NamedTuple):
    """What `scatter` wrote: for each time the buffer was full, where each bucket's records begin."""

    path: str
    byte_bounds: IntArray  # (flushes, buckets + 1)
    record_bounds: IntArray  # (flushes, buckets + 1)
    findings: tuple[Finding, ...]


class GatherTask(NamedTuple):
    """One shard of the result."""

    spills: list[Spill]
    buckets: range
    path: str
    compression: str


def scatter(task: ScatterTask) -> Spill:
    """The first pass over some shards."""
    findings: list[Finding] = []
    buffer = _Buffer(task.memory_bytes // 2)
    flushes: list[tuple[IntArray, IntArray]] = []
    with open(task.spill, "xb", buffering=0) as frames, open(task.spill + ".places", "xb", buffering=0) as places:
        for one in task.ranges:
            first = one.number
            for block in walk_range(one, findings, task.on_corrupt):
                numbers = np.arange(len(block.lengths)) + (first + block.first - one.first)
                if not buffer.has_room(block):
                    flushes.append(_flush(buffer, task.bucket_bounds, frames, places))
                buffer.add(block, task.shuffle.places(numbers))
        flushes.append(_flush(buffer, task.bucket_bounds, frames, places))
    byte_bounds, record_bounds = (np.stack(bounds) for bounds in zip(*flushes, strict=True))
    return Spill(task.spill, byte_bounds, record_bounds, tuple(findings))


def gather(task: GatherTask) -> IntArray:
    """The second pass, for one shard: writes it whole and returns the lengths of its payloads."""
    folder, name = os.path.split(task.path)
    output = ShardOutput(folder, name, task.compression, buffer_bytes=OUTPUT_BUFFER_BYTES)
    try:
        for bucket in task.buckets:
            data, places = _read_bucket(task.spills, bucket)
            lengths = backend.scan_frames(data, remaining=len(data), verify="off").lengths
            for frames, sorted_lengths in _sorted_slices(data, lengths, np.argsort(places)):
                output.append_frames(frames, sorted_lengths)
        output.finish()
        output.publish(task.path)
    except BaseException:
        output.discard()
        raise
    return np.array(output.lengths, np.int64)


class _Buffer:
    """Records that wait for the next flush, end to end."""

    def __init__(self, num_bytes: int) -> None:
        self._limit = num_bytes
        self._data = np.empty(num_bytes, np.uint8)
        self._size = self._num_records = 0
        self._lengths: list[IntArray] = []
        self._places: list[IntArray] = []

    def has_room(self, block: FrameBlock) -> bool:
        size, num_records = self._size + len(block.data), self._num_records + len(block.lengths)
        return not self._num_records or (size + num_records * RECORD_OVERHEAD <= 2 * self._limit and size <= self._limit)

    def add(self, block: FrameBlock, places: IntArray) -> None:
        end = self._size + len(block.data)
        if end > len(self._data):  # one block larger than all of the buffer
            grown = np.empty(end, np.uint8)
            grown[: self._size] = self._data[: self._size]
            self._data = grown
        self._data[self._size : end] = block.data
        self._size, self._num_records = end, self._num_records + len(block.lengths)
        self._lengths.append(block.lengths)
        self._places.append(places)

    def take(self) -> tuple[Bytes, IntArray, IntArray]:
        """(frames, lengths, places) of all that waits; a view, to be used before the next `add`."""
        nothing = [np.empty(0, np.int64)]
        taken = self._data[: self._size], np.concatenate(self._lengths or nothing), np.concatenate(self._places or nothing)
        self._size = self._num_records = 0
        self._lengths, self._places = [], []
        return taken


def _flush(buffer: _Buffer, bucket_bounds: IntArray, frames: BinaryIO, places: BinaryIO) -> tuple[IntArray, IntArray]:
    """Write what waits, sorted; where each bucket begins in the two files."""
    byte_base, record_base = frames.tell(), places.tell() // 8
    data, lengths, of_records = buffer.take()
    order = np.argsort(of_records)
    in_order = of_records[order]
    for piece, _ in _sorted_slices(data, lengths, order):
        _write_all(frames, piece)
    _write_all(places, in_order.astype("<i8").view(np.uint8))
    record_bounds = np.searchsorted(in_order, bucket_bounds)
    ends = np.concatenate(([0], np.cumsum(lengths[order] + FRAME_BYTES)))
    return byte_base + ends[record_bounds], record_base + record_bounds


def _sorted_slices(data: Bytes, lengths: IntArray, order: IntArray) -> Iterator[tuple[Bytes, IntArray]]:
    """Frames in another order, some megabytes at a time: (frames end to end, lengths of their payloads)."""
    sizes = lengths + FRAME_BYTES
    starts = np.cumsum(sizes) - sizes
    ends = np.cumsum(sizes[order])
    first = 0
    while first < len(order):
        begin = int(ends[first - 1]) if first else 0
        stop = max(first + 1, int(np.searchsorted(ends, begin + SLICE_BYTES, side="right")))
        chosen = order[first:stop]
        out_starts = ends[first:stop] - sizes[chosen] - begin
        out = np.empty(int(ends[stop - 1]) - begin, np.uint8)
        backend.copy_spans(data, starts[chosen], sizes[chosen], out, out_starts)
        yield out, lengths[chosen]
        first = stop


def _read_bucket(spills: list[Spill], bucket: int) -> tuple[Bytes, IntArray]:
    """All frames of a bucket end to end, and where each record goes."""
    num_bytes = sum(int((spill.byte_bounds[:, bucket + 1] - spill.byte_bounds[:, bucket]).sum()) for spill in spills)
    data = np.empty(num_bytes, np.uint8)
    places: list[IntArray] = [np.empty(0, np.int64)]
    filled = 0
    for spill in spills:
        with open(spill.path, "rb", buffering=0) as frames, open(spill.path + ".places", "rb", buffering=0) as of_records:
            for bytes_at, records_at in zip(spill.byte_bounds, spill.record_bounds, strict=True):
                size = int(bytes_at[bucket + 1] - bytes_at[bucket])
                _read_all(frames, int(bytes_at[bucket]), data[filled : filled + size])
                found = np.empty(int(records_at[bucket + 1] - records_at[bucket]), "<i8")
                _read_all(of_records, int(records_at[bucket]) * 8, found.view(np.uint8))
                places.append(found)
                filled += size
    return data, np.concatenate(places)


def _write_all(file: BinaryIO, data: Bytes) -> None:
    view = data.data
    try:
        while len(view):
            view = view[file.write(view) :]
    except OSError as error:
        raise OSError(error.errno, f"{error.strerror} (a spill of the shuffle)", file.name) from error


def _read_all(file: BinaryIO, offset: int, out: Bytes) -> None:
    view = out.data
    while len(view):
        num_bytes = os.preadv(file.fileno(), [view], offset)
        if not num_bytes:
            raise OSError(f"{file.name}: a spill file is shorter than it was written; was it removed?")
        view, offset = view[num_bytes:], offset + num_bytes


