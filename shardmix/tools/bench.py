"""`shardmix bench`: the user's own corpus stage by stage, and which one limits.

    read      the bytes of the shards, as they lie
    verify    the same, inflated, and every CRC checked
    shuffle   records in the order of an epoch, through the shuffle buffer, checked
    decode    the same, to columns
    hand-off  the same, in one worker process, to this one
    mix       the same, in as many workers as asked for

Rule 1: each stage does all that the stages before do, so that what it costs by itself is the difference.
Rule 2: each runs for some seconds; the first stretch, in which buffers fill and processes start, is not counted.
Rule 3: what was read lately comes from memory, not from the disk; the first line tells how fast that is.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from itertools import count as count_up
from typing import TYPE_CHECKING, Any, NamedTuple

import click
import numpy as np

from ..format.corpus import Corpus
from ..format.index import Index
from ..format.scan import walk_frames
from ..format.storage import open_shard
from ..runtime.needs import RunSettings, mean_record_bytes
from . import options
from .findings import Finding
from .survey import survey_shards
from .texts import format_table, show

if TYPE_CHECKING:
    from .payloads import ShardDataset

READ_BYTES = 1 << 20
ROWS_AT_A_TIME = 2048


class Stage(NamedTuple):
    """One stage, with all before it."""

    name: str
    records_per_second: float
    bytes_per_second: float  # of payloads


class BenchReport(NamedTuple):
    """What `bench_shards` found."""

    stages: tuple[Stage, ...]
    limit: str  # what limits the loader, and what to change
    notes: tuple[str, ...]
    findings: tuple[Finding, ...]


def bench_shards(
    shards: str | Sequence[str] | Corpus,
    settings: RunSettings | None = None,
    *,
    features: Sequence[str] | None = None,
    seconds: float = 2.0,
    index: str = "auto",
) -> BenchReport:
    """Measure every stage for `seconds`.

        print(bench_shards("corpus/*.tfrecord", RunSettings(batch_size=256, num_workers=4)).limit)

    features: names of those to decode; None is all.

    Raises ValueError where there are no records.
    """
    settings = settings or RunSettings()
    survey = survey_shards(shards, index=index)
    opened = survey.opened
    dataset, notes = _make_dataset(opened, settings, features, index)
    with warnings.catch_warnings():  # the number of workers is the user's to choose
        warnings.filterwarnings("ignore", "This DataLoader will create", UserWarning)
        rates = [("read", _rate(_read(opened), seconds)), ("verify", _rate(_verify(opened), seconds))]
        rates += [(name, _rate(_fill(dataset, decodes), seconds)) for name, decodes in (("shuffle", False), ("decode", True))]
        if settings.num_workers:
            rates.append(("hand-off", _rate_of_loader(dataset, settings.batch_size, 1, seconds)[0]))
        rate, limit = _rate_of_loader(dataset, settings.batch_size, settings.num_workers, seconds)
    rates.append(("mix", rate))
    size = mean_record_bytes(opened)
    stages = tuple(Stage(name, found, found * size) for name, found in rates)
    return BenchReport(stages, limit, notes, survey.findings)


def _make_dataset(
    index: Index, settings: RunSettings, features: Sequence[str] | None, where: str
) -> tuple[ShardDataset, tuple[str, ...]]:
    """The data set of the later stages; records that are no Examples are not decoded, and a note says so."""
    from .payloads import PayloadSizes, ShardDataset

    names = ("shuffle_buffer_size", "lanes", "cycle_length")
    common: dict[str, Any] = {name: getattr(settings, name) for name in names if getattr(settings, name) is not None}
    common |= {"index": where, "on_corrupt": "skip"}
    shards: Any = index.corpus
    dataset = ShardDataset(shards, features=None if features is None else list(features), **common)
    try:
        dataset._find_schema()
    except ValueError as error:
        if features is not None:
            raise
        return PayloadSizes(shards, **common), (f"payloads are not decoded: {error}",)
    return dataset, ()


# --- The stages: each yields the records that it has done, again and again over the corpus -----------------------------------


def _read(index: Index) -> Generator[float, None, None]:
    data = np.empty(READ_BYTES, np.uint8)
    for shard in _shards_for_ever(index):
        size = int(index.sizes[shard])
        file = open_shard(index.path(shard), "none")
        try:
            for offset in range(0, size, READ_BYTES):
                yield file.read_into(offset, data) / size * float(index.counts[shard])
        finally:
            file.close()


def _verify(index: Index) -> Generator[float, None, None]:
    for shard in _shards_for_ever(index):
        file = open_shard(index.path(shard), index.compression(shard))
        try:
            for block in walk_frames(file):
                yield len(block.lengths)
        finally:
            file.close()


def _fill(dataset: ShardDataset, decodes: bool) -> Generator[float, None, None]:
    """Rows as one worker makes them; without decoding, only read."""
    from ..format.columns import allocate_arrays
    from ..order.schedule import Schedule
    from ..runtime.rows import RowSource

    opened = dataset._open(1)
    schedule = Schedule(opened.plan.num_records, opened.plan.lanes, ROWS_AT_A_TIME, seed=opened.plan.seed)
    source = RowSource(dataset, opened)
    try:
        for epoch in count_up():
            for step in range(schedule.num_batches(0)):
                rows = schedule.batch_rows(0, epoch, step, 1)
                if decodes:
                    yield len(source.fill(epoch, rows, allocate_arrays).kept)
                else:
                    yield len(source._reader.fetch(epoch, rows).block)
    finally:
        source.close()


def _shards_for_ever(index: Index) -> Iterator[int]:
    filled = np.flatnonzero(index.counts).tolist()
    while True:
        yield from filled


def _rate(work: Generator[float, None, None], seconds: float) -> float:
    """Records a second, from the end of the first stretch on."""
    with closing(work):
        next(work)
        begin, records, spent = time.perf_counter(), 0.0, 0.0
        while spent < seconds:
            records += next(work)
            spent = time.perf_counter() - begin
        return records / spent


def _rate_of_loader(dataset: ShardDataset, batch_size: int, num_workers: int, seconds: float) -> tuple[float, str]:
    """Records a second of a loader whose batches nobody works on, and what limits it."""
    from ..runtime.loader import MixLoader

    loader = MixLoader(dataset, batch_size, num_workers=num_workers, repeat=None)
    batches = iter(loader)
    try:
        rate = _rate((len(next(iter(batch.values()))) for batch in batches), seconds)
        limit: str = loader.stats()["limit"]
    finally:
        batches.close()
    return rate, limit


# --- The command -------------------------------------------------------------------------------------------------------------


def format_report(report: BenchReport) -> list[str]:
    """The same for people."""
    rows = [["stage", "records/s", "MB/s", "by itself, of the time"]]
    times = [1 / stage.records_per_second for stage in report.stages]
    of_worker = [stage for stage in report.stages if stage.name not in ("hand-off", "mix")]
    whole = times[len(of_worker) - 1]
    for number, stage in enumerate(report.stages):
        before = times[number - 1] if number else 0.0
        own = f"{max(0.0, times[number] - before) / whole:.0%} of a worker" if stage in of_worker else ""
        rows.append([stage.name, f"{stage.records_per_second:,.0f}", f"{stage.bytes_per_second / 1e6:,.0f}", own])
    return [*format_table(rows, right=[1, 2]), "", *report.notes, report.limit]


@click.command()
@options.patterns
@options.batch_size
@options.num_workers
@options.shuffle_buffer_size
@options.lanes
@options.cycle_length
@click.option("--features", metavar="NAMES", help="Decode only these, with commas between. [all]")
@click.option("--seconds", type=click.FloatRange(0, min_open=True), default=2.0, show_default=True, help="For each stage.")
@options.index
@options.as_json
def command(
    patterns: tuple[str, ...], features: str | None, seconds: float, index: str, as_json: bool, **settings: Any
) -> int:
    """Measure your own corpus stage by stage: read, verify, shuffle, decode, hand-off, mix; and say which one limits.

    \b
    shardmix bench 'corpus/train-*.tfrecord' --batch-size 256 --num-workers 4
    shardmix bench corpus --features image,label --seconds 5
    """
    names = None if features is None else [name.strip() for name in features.split(",")]
    report = bench_shards(patterns, RunSettings(**settings), features=names, seconds=seconds, index=index)
    data = {"stages": [stage._asdict() for stage in report.stages], "limit": report.limit, "notes": list(report.notes)}
    return show(data, format_report(report), report.findings, as_json=as_json)
