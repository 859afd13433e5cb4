"""Infer the features of a corpus from a sample of its records.

Rule 1: 256 records, or all when there are fewer, of up to 16 shards that lie evenly in the listing (of more, where those hold
fewer than 256). A shard of fewer records than its share leaves the rest to the others.
Rule 2: in a plain shard they lie evenly; in a compressed one they are the first, as a later one costs inflating all before it.
Rule 3: the same records each time, whoever asks; every one is checked like any other that is read.
Rule 4: bytes that do not fit the index are no damage: the file was changed after it was indexed.

What is made of them is in inference.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError, StaleIndexError
from . import backend
from .corpus import Corpus, ShardsLike
from .declarations import Feature
from .features import resolve_schema
from .framing import FRAME_BYTES, HEADER_BYTES, Damage, describe_damage, frame_error
from .index import Index, open_index
from .records import IntArray
from .storage import ShardFile, open_shard

SAMPLE_RECORDS = 256
SAMPLE_SHARDS = 16


class InferredFeatures(NamedTuple):
    """What `features=` and `sequence_features=` would be; the latter is None where the records are Examples."""

    features: dict[str, Feature]
    sequence_features: dict[str, Feature] | None


def infer_features(shards: ShardsLike | Corpus) -> InferredFeatures:
    """The features of a corpus, as far as 256 of its records show them.

        print(infer_features("corpus/train-*.tfrecord").features)
        # {'image': FixedLenFeature((), 'bytes'), 'label': FixedLenFeature((), 'int64'), 'tags': VarLenFeature('bytes')}
        dataset = ShardDataset("corpus/train-*.tfrecord", **infer_features("corpus/train-*.tfrecord")._asdict())

    The printed dict can be pasted as `features=`. A feature is of fixed length only where every sampled record agrees.

    Raises ValueError when the records are no Examples, hold one feature in two kinds, or are none; CorruptShardError;
    FileNotFoundError when no shard matches.
    """
    schema = resolve_schema(None, None, sample_records(open_index(shards)))
    context = {field.name: field.feature for field in schema.fields if not field.in_lists}
    lists = {field.name: field.feature for field in schema.fields if field.in_lists}
    return InferredFeatures(context, lists if schema.is_sequence else None)


def sample_records(index: Index, *, verify: str = "full", on_corrupt: str = "raise") -> Iterator[memoryview]:
    """The payloads of the sample, one after the other.

    Raises CorruptShardError for a damaged record, unless `on_corrupt` is "skip"; StaleIndexError.
    """
    for shard, records in choose_sample(index.counts, index.compressed):
        index.check(shard)
        file = open_shard(index.path(shard), index.compression(shard), entries=index.entries(shard))
        try:
            for record in records.tolist():
                try:
                    yield _read_record(file, index, shard, record, verify)
                except CorruptShardError:
                    if on_corrupt != "skip":
                        raise
        finally:
            file.close()


def choose_sample(counts: IntArray, compressed: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> list[tuple[int, IntArray]]:
    """Rules 1 and 2: (shard, its record numbers, ascending), shards ascending."""
    filled = np.flatnonzero(counts)
    chosen = _spread(filled, SAMPLE_SHARDS)
    if int(counts[chosen].sum()) < SAMPLE_RECORDS:
        chosen = _spread(filled, SAMPLE_RECORDS)
    left = SAMPLE_RECORDS
    sample = []
    for position, shard in enumerate(sorted(chosen.tolist(), key=lambda shard: int(counts[shard]))):
        count = int(counts[shard])
        share = min(count, -(-left // (len(chosen) - position)))
        left -= share
        records = np.arange(share, dtype=np.int64)
        sample.append((shard, records if compressed[shard] else records * count // max(share, 1)))
    return sorted((shard, records) for shard, records in sample if len(records))


def _spread(numbers: IntArray, limit: int) -> IntArray:
    """At most `limit` of the numbers, evenly."""
    size = min(limit, len(numbers))
    return numbers[np.arange(size) * len(numbers) // max(size, 1)]


def _read_record(file: ShardFile, index: Index, shard: int, record: int, verify: str) -> memoryview:
    """One payload, checked."""
    length = int(index.lengths(shard, record, record + 1)[0])
    offset = index.offset(shard, record)
    frame = np.empty(length + FRAME_BYTES, np.uint8)
    remaining = file.read_into(offset, frame)
    frame = frame[:remaining]
    start, lengths = np.array([HEADER_BYTES], np.int64), np.array([length], np.int64)
    damage = Damage(int(backend.check_frames(frame, start, lengths, verify=verify)[0]))
    if damage in (Damage.CUT_HEADER, Damage.CUT_PAYLOAD, Damage.LENGTH_DIFFERS):
        text = describe_damage(damage, frame.data, remaining, length)
        raise StaleIndexError(text, path=index.path(shard), record=record, offset=offset)
    if damage != Damage.NONE:
        raise frame_error(damage, frame.data, path=index.path(shard), record=record, offset=offset, remaining=remaining)
    return frame.data[HEADER_BYTES : HEADER_BYTES + length]
