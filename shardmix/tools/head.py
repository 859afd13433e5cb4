"""`shardmix head`: some records as readable text, or as data.

Rule 1: in text, values are shortened; in JSON they are whole: bytes as hex, and as text where all of them are text.
Rule 2: a damaged record is a finding, and the next ones are shown; damage that hides the next record ends its shard.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import click
import numpy as np

from ..format.corpus import Corpus, find_shards
from ..format.framing import HEADER_BYTES
from ..format.scan import walk_frames
from ..format.storage import open_shard
from . import options
from .contents import is_text, parse_example
from .findings import Finding
from .shown import MAX_VALUES, describe_feature, format_bytes_value, format_feature
from .survey import split_readable, survey_shards
from .texts import format_table, show


class Record(NamedTuple):
    """One record and its place. `features`, `feature_lists`: name → value as `describe_feature` has it; None where the payload is
    no Example."""

    path: str
    record: int
    offset: int  # of its frame, in the inflated bytes
    payload: bytes
    features: dict[str, Any] | None
    feature_lists: dict[str, list[Any]] | None


def read_head(
    shards: str | Sequence[str], *, num_records: int = 5, record: int | None = None, compression_type: str = "auto"
) -> tuple[list[Record], tuple[Finding, ...]]:
    """The first records of the shards in listing order; or one, by its number in that order: of one shard, in that shard.

        records, findings = read_head("corpus/train-00003.tfrecord", record=17)

    Raises IndexError when there is no such record.
    """
    if record is not None:
        return _read_one(shards, record, compression_type)
    corpus, unreadable = split_readable(find_shards(shards))
    findings = list(unreadable)
    records = list(islice(_walk(corpus, findings, compression_type), num_records))
    if not any(one.features or one.feature_lists for one in records):
        records = list(map(_unclaimed, records))
    return records, tuple(findings)


def _walk(corpus: Corpus, findings: list[Finding], compression_type: str) -> Iterator[Record]:
    for path in corpus:
        file = open_shard(path, compression_type)
        try:
            for block in walk_frames(file):
                view, offset = block.data.data, block.offset
                for number, (start, length) in enumerate(zip(block.starts().tolist(), block.lengths.tolist(), strict=True)):
                    place = offset + start - HEADER_BYTES
                    yield _describe(path, block.first + number, place, bytes(view[start : start + length]))
                if block.damage is not None:
                    findings.append(Finding.of_damage(block.damage))
        finally:
            file.close()


def _read_one(shards: str | Sequence[str], record: int, compression_type: str) -> tuple[list[Record], tuple[Finding, ...]]:
    survey = survey_shards(shards, compression_type=compression_type)
    index = survey.opened
    ends = np.cumsum(index.counts)
    if not 0 <= record < index.num_records:
        raise IndexError(f"record {record}: the shards have {index.num_records} records, 0 to {index.num_records - 1}")
    shard = int(np.searchsorted(ends, record, side="right"))
    number = record - int(ends[shard] - index.counts[shard])
    file = open_shard(index.path(shard), index.compression(shard), entries=index.entries(shard))
    try:
        block = next(walk_frames(file, record=number, offset=index.offset(shard, number)))
    finally:
        file.close()
    if not len(block.lengths):
        damaged = () if block.damage is None else (Finding.of_damage(block.damage),)
        return [], (*survey.findings, *damaged)
    start, length = int(block.starts()[0]), int(block.lengths[0])
    payload = bytes(block.data.data[start : start + length])
    found = _describe(index.path(shard), number, block.offset, payload)
    return [found if found.features or found.feature_lists else _unclaimed(found)], survey.findings


def _unclaimed(record: Record) -> Record:
    """A record without features, where no other has any: not claimed to be an Example."""
    return record._replace(features=None, feature_lists=None)


def _describe(path: str, record: int, offset: int, payload: bytes) -> Record:
    message = parse_example(payload)
    if message is None:
        return Record(path, record, offset, payload, None, None)
    features = {name: describe_feature(feature) for name, feature in sorted(message.context.feature.items())}
    lists = None
    if message.HasField("feature_lists"):
        lists = {
            name: [describe_feature(step) for step in steps.feature]
            for name, steps in sorted(message.feature_lists.feature_list.items())
        }
    return Record(path, record, offset, payload, features, lists)


# --- As text -----------------------------------------------------------------------------------------------------------------


def format_record(record: Record) -> list[str]:
    """One record for people."""
    kind = "no Example" if record.features is None else "SequenceExample" if record.feature_lists is not None else "Example"
    lines = [f"{record.path} record {record.record} at byte {record.offset}: {kind}, {len(record.payload):,} bytes"]
    if record.features is None:
        return [*lines, "  " + format_bytes_value(record.payload)]
    rows = [[name, *format_feature(feature)] for name, feature in record.features.items()]
    for name, steps in (record.feature_lists or {}).items():
        rows.append([f"{name} (list)", f"{len(steps)} steps", ""])
        rows += [[f"  step {number}", *format_feature(step)] for number, step in enumerate(steps[:MAX_VALUES])]
    return lines + format_table(rows, indent="  ")


def as_data(record: Record) -> dict[str, Any]:
    """One record for JSON."""
    data: dict[str, Any] = {"path": record.path, "record": record.record, "offset": record.offset, "bytes": len(record.payload)}
    if record.features is None:
        text = {"text": record.payload.decode()} if is_text(record.payload) else {}
        return {**data, "kind": None, "payload": record.payload.hex(), **text}
    if record.feature_lists is None:
        return {**data, "kind": "Example", "features": record.features}
    return {**data, "kind": "SequenceExample", "features": record.features, "feature_lists": record.feature_lists}


@click.command()
@options.patterns
@click.option("-n", "num_records", type=click.IntRange(1), default=5, show_default=True, help="How many records.")
@click.option("--record", type=click.IntRange(0), metavar="N", help="Only record N of the shard (of several: of the listing).")
@options.compression
@options.as_json
def command(patterns: tuple[str, ...], num_records: int, record: int | None, compression_type: str, as_json: bool) -> int:
    """Show some records as readable text; as data with --json.

    \b
    shardmix head 'corpus/train-*.tfrecord'
    shardmix head corpus/train-00003.tfrecord --record 17
    shardmix head corpus -n 100 --json | jq '.records[].features.label'
    """
    try:
        records, findings = read_head(patterns, num_records=num_records, record=record, compression_type=compression_type)
    except IndexError as error:
        raise click.UsageError(str(error)) from error
    lines = [line for one in records for line in (*format_record(one), "")][:-1]
    return show({"records": [as_data(one) for one in records]}, lines, findings, as_json=as_json)
