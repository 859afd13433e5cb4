"""Read one file as a stream of examples, no index needed.

    for example in read_examples("train-00000.tfrecord", {"label": FixedLenFeature((), "int64")}): ...

Rule 1: records are decoded a block of about 1 MiB at a time; values are as rows.py shows them, what a `transform` sees.
Rule 2: the intact prefix comes before any error.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from ..errors import CorruptShardError, ParseError
from . import backend
from .features import Schema, needs_samples, resolve_schema
from .framing import check_verify
from .infer import SAMPLE_RECORDS
from .reader import read_records
from .records import IntArray, RecordBlock
from .rows import Row, all_row_values
from .scan import FrameBlock, frame_offsets, walk_frames
from .storage import open_shard, resolve_compression


def read_examples(
    path: str | os.PathLike[str],
    features: Mapping[str, Any] | Sequence[str] | None = None,
    sequence_features: Mapping[str, Any] | Sequence[str] | None = None,
    *,
    compression_type: str | None = "auto",
    verify: str = "full",
) -> Iterator[Row]:
    """The examples of one file, in file order, each a dict of numpy values that it owns, and bytes.

        features = {"image": RawFeature((28, 28), "uint8"), "tags": VarLenFeature("bytes")}
        for example in read_examples("train-00000.tfrecord", features):
            example["image"], example["tags"]     # an array (28, 28) of uint8, a list of bytes

    features, sequence_features: as in ShardDataset; what is to be inferred is taken from the first 256 records of the file.
    compression_type, verify: as in `read_records`.

    Raises CorruptShardError and ParseError (behind the intact prefix), OSError, and ValueError or TypeError for a wrong argument.
    """
    resolve_compression(compression_type)
    check_verify(verify)
    path = os.fspath(path)
    samples: Iterator[memoryview] = iter(())
    if needs_samples(features, sequence_features):
        samples = _take_intact(read_records(path, compression_type=compression_type, verify=verify))
    return _read_rows(path, resolve_schema(features, sequence_features, samples), compression_type, verify)


def _take_intact(records: Iterator[memoryview]) -> Iterator[memoryview]:
    """The sample: the first records, up to a damage, which is not raised here unless it is all there is (rule 2)."""
    count = 0
    try:
        for payload in islice(records, SAMPLE_RECORDS):
            yield payload
            count += 1
    except CorruptShardError:
        if not count:
            raise


def _read_rows(path: str, schema: Schema, compression_type: str | None, verify: str) -> Iterator[Row]:
    file = open_shard(path, compression_type)
    try:
        for frames in walk_frames(file, verify=verify):
            block = _as_record_block(path, frames)
            try:
                columns = backend.decode_examples(block, schema)
            except ParseError as error:
                num_sound = (error.record or 0) - frames.first
                yield from all_row_values(backend.decode_examples(_first_rows(block, num_sound), schema))
                raise
            yield from all_row_values(columns)
            if frames.damage is not None:
                raise frames.damage
    finally:
        file.close()


class _FilePlaces:
    """Names the places of the records of one block."""

    def __init__(self, path: str, frames: FrameBlock) -> None:
        self._path = path
        self._first = frames.first
        self._offsets: IntArray = frame_offsets(frames.lengths) + frames.offset

    def path(self, shard: int) -> str:
        return self._path

    def offset(self, shard: int, record: int) -> int:
        return int(self._offsets[record - self._first])


def _as_record_block(path: str, frames: FrameBlock) -> RecordBlock:
    """The records of a block of frames, whose shard has the number 0."""
    count = len(frames.lengths)
    zeros = np.zeros(count, np.int64)
    record = np.arange(frames.first, frames.first + count, dtype=np.int64)
    return RecordBlock((frames.data,), zeros, frames.starts(), frames.lengths, zeros, record, _FilePlaces(path, frames))


def _first_rows(block: RecordBlock, stop: int) -> RecordBlock:
    """The first rows of a block."""
    return RecordBlock(
        block.buffers,
        block.buffer[:stop],
        block.start[:stop],
        block.length[:stop],
        block.shard[:stop],
        block.record[:stop],
        block.places,
    )
