"""`shardmix reshard`: the same records in other shards: another number or size, another compression, fully shuffled if asked.

Rule 1: shards of the result are about equal: in records, or in bytes where their size is given in bytes.
Rule 2: without shuffle the order of the records stays. With it, it is one of all, decided by (records, seed) alone.
Rule 3: every CRC is checked on the way. A damaged record stops the work, or is left out and named (on_corrupt="skip").
Rule 4: the new shards get their names together; nothing is overwritten; whatever ends the work, no half file is left.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import click
import numpy as np

from ..format.corpus import Corpus, find_shards
from ..format.index import write_index
from ..format.progress import ProgressLike
from ..format.records import IntArray
from ..format.scan import check_on_corrupt
from ..format.shard_names import ShardNames
from ..format.storage import COMPRESSIONS, resolve_compression
from . import options
from .copying import CopyTask, copy_shards
from .cuts import cut_buckets, cut_shards
from .findings import Finding
from .full_shuffle import FullShuffle
from .ranges import find_ranges
from .scatter import GatherTask, ScatterTask, gather, scatter
from .staging import check_free, open_staging, publish
from .survey import Survey, size_of, survey_shards
from .tasks import SMALL_BYTES, Result, Task, num_cpus, open_processes, run_tasks
from .texts import format_bytes, format_count, show

DEFAULT_MEMORY = 200 << 20
MIN_MEMORY = 16 << 20
_TASKS_PER_WORKER = 4


class ReshardReport(NamedTuple):
    """What `reshard` wrote."""

    paths: tuple[str, ...]
    records: tuple[int, ...]  # of each shard
    bytes_on_disk: int
    others: tuple[str, ...]  # older files that a glob for the new shards would match too
    findings: tuple[Finding, ...]


def reshard(
    shards: str | Sequence[str] | Corpus,
    out: str | os.PathLike[str],
    *,
    num_shards: int | None = None,
    shard_records: int | None = None,
    shard_bytes: int | None = None,
    compression_type: str | None = None,
    shuffle: bool = False,
    seed: int = 0,
    memory_bytes: int = DEFAULT_MEMORY,
    on_corrupt: str = "raise",
    index: str = "auto",
    executor: Executor | None = None,
    num_workers: int = 1,
    progress: ProgressLike = None,
) -> ReshardReport:
    """Write the records of some shards to others.

        reshard("corpus/*.tfrecord", "new/train-{:05d}.tfrecord", num_shards=64, shuffle=True)

    out: a pattern as in ShardWriter: with one {} for the number, or a stem.
    num_shards, shard_records (at most), shard_bytes (about, before compression): one of them; none keeps the number of shards.
    compression_type: None (plain), "gzip" or "zlib".
    memory_bytes: of records that each task of a shuffle holds; so much free disk as the corpus takes is needed for a while.
    executor, num_workers: where it runs, and in how many tasks at a time; None is this process.

    Raises CorruptShardError for a damaged record (unless on_corrupt="skip"), FileExistsError where a name is taken, OSError when
    a shard cannot be written, ValueError. Then nothing is left of the new shards.
    """
    check_on_corrupt(on_corrupt)
    if resolve_compression(compression_type) not in COMPRESSIONS:
        raise ValueError(f"compression_type is {compression_type!r}; a writer needs None, 'gzip' or 'zlib'")
    if memory_bytes < MIN_MEMORY:
        raise ValueError(f"memory_bytes is {memory_bytes}, expected at least {MIN_MEMORY}")
    survey = survey_shards(shards, index=index, executor=executor, progress=progress)
    if survey.findings and on_corrupt == "raise":
        raise ValueError(f"{survey.findings[0]}; on_corrupt='skip' leaves such shards out")
    bounds = cut_shards(survey.opened, num_shards, shard_records, shard_bytes)
    names = ShardNames(os.fspath(out))
    finals = [os.path.abspath(path) for path in names.paths(len(bounds) - 1)]
    check_free(finals)
    work = _Work(survey, bounds, resolve_compression(compression_type), on_corrupt, executor, max(1, num_workers), progress)
    with open_staging(os.path.dirname(finals[0])) as staging:
        lengths = work.shuffle(staging, seed, memory_bytes) if shuffle else work.copy(staging)
        size = sum(os.path.getsize(os.path.join(staging, str(shard))) for shard in range(len(finals)))
        publish(staging, {str(shard): path for shard, path in enumerate(finals)})
    entries = () if work.compression == "none" else ((0, 0),)
    write_index(finals, lengths, compression=work.compression, entries=[entries] * len(finals))
    others = tuple(sorted({*map(os.path.abspath, names.find_others(()))} - {*finals}))
    return ReshardReport(tuple(finals), tuple(map(len, lengths)), size, others, (*survey.findings, *sorted(work.findings)))


@dataclass
class _Work:
    """What both ways of writing need; `findings` are what they met."""

    survey: Survey
    bounds: IntArray
    compression: str
    on_corrupt: str
    executor: Executor | None
    num_workers: int
    progress: ProgressLike
    findings: list[Finding] = field(default_factory=list)

    def copy(self, staging: str) -> list[IntArray]:
        """Write the shards in the order of the corpus; the lengths of the payloads of each."""
        number = len(self.bounds) - 1
        groups = np.array_split(np.arange(number), min(number, self.num_workers * _TASKS_PER_WORKER))
        tasks = []
        for group in groups:
            bounds = self.bounds[group[0] : group[-1] + 2].tolist()
            ranges = find_ranges(self.survey.opened, bounds[0], bounds[-1])
            paths = [os.path.join(staging, str(shard)) for shard in group.tolist()]
            tasks.append(CopyTask(ranges, bounds, paths, self.compression, self.on_corrupt))
        results = self._run(copy_shards, tasks, "copying", "parts")
        self.findings += [finding for _, findings in results for finding in findings]
        return [lengths for written, _ in results for lengths in written]

    def shuffle(self, staging: str, seed: int, memory_bytes: int) -> list[IntArray]:
        """Write the shards fully shuffled; the lengths of the payloads of each."""
        opened = self.survey.opened
        cuts = cut_buckets(opened, self.bounds, memory_bytes // 2)
        places = np.concatenate([*(cut[:-1] for cut in cuts), self.bounds[-1:]])
        shuffle = FullShuffle(opened.num_records, seed)
        ends = np.linspace(0, opened.num_records, self.num_workers + 1).astype(np.int64).tolist()
        tasks = [
            ScatterTask(
                find_ranges(opened, first, stop),
                shuffle,
                places,
                memory_bytes,
                os.path.join(staging, f"spill-{number}"),
                self.on_corrupt,
            )
            for number, (first, stop) in enumerate(pairwise(ends))
        ]
        spills = self._run(scatter, tasks, "scattering", "parts")
        self.findings += [finding for spill in spills for finding in spill.findings]
        spills = [spill._replace(findings=()) for spill in spills]
        buckets = np.concatenate(([0], np.cumsum([len(cut) - 1 for cut in cuts]))).tolist()
        gathers = [
            GatherTask(spills, range(first, stop), os.path.join(staging, str(shard)), self.compression)
            for shard, (first, stop) in enumerate(pairwise(buckets))
        ]
        return self._run(gather, gathers, "gathering", "shards")

    def _run(self, function: Callable[[Task], Result], tasks: list[Task], doing: str, unit: str) -> list[Result]:
        return run_tasks(function, tasks, executor=self.executor, progress=self.progress, doing=doing, unit=unit)


# --- The command -------------------------------------------------------------------------------------------------------------


@click.command()
@options.patterns
@click.argument("out", metavar="OUT")
@click.option("--shards", "num_shards", type=click.IntRange(1), metavar="N", help="So many shards. [as many as there are]")
@click.option("--records", "shard_records", type=click.IntRange(1), metavar="N", help="At most so many records a shard.")
@click.option("--bytes", "shard_bytes", type=options.SIZE, metavar="SIZE", help="About so many bytes a shard, uncompressed.")
@click.option(
    "--compression", "compression_type", type=click.Choice(["none", "gzip", "zlib"]), default="none", show_default=True,
    help="Of the new shards.",
)  # fmt: skip
@click.option("--shuffle", is_flag=True, help="Shuffle all records fully.")
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True, help="Of the shuffle.")
@click.option("--memory", type=options.SIZE, metavar="SIZE", help="Memory of a shuffle, over all workers. [200MB]")
@options.workers
@options.index
@options.as_json
def command(
    patterns: tuple[str, ...],
    out: str,
    num_shards: int | None,
    shard_records: int | None,
    shard_bytes: int | None,
    compression_type: str,
    shuffle: bool,
    seed: int,
    memory: int | None,
    workers: int | None,
    index: str,
    as_json: bool,
) -> int:
    """Write the same records to other shards: another number or size, another compression, a full shuffle in bounded memory.

    OUT is a pattern with one {} for the number of the shard, or a stem. Damaged records and files are left out and named.

    \b
    shardmix reshard 'corpus/*.gz' 'plain/train-{:05d}.tfrecord' --shards 128
    shardmix reshard corpus shuffled/train --bytes 256MB --shuffle --memory 2GB
    """
    corpus = find_shards(list(patterns))
    number = workers or (num_cpus() if sum(map(size_of, corpus)) > SMALL_BYTES else 1)
    with open_processes(number, number) as executor:
        report = reshard(
            corpus,
            out,
            num_shards=num_shards,
            shard_records=shard_records,
            shard_bytes=shard_bytes,
            compression_type=compression_type,
            shuffle=shuffle,
            seed=seed,
            memory_bytes=(memory or DEFAULT_MEMORY) // number,
            on_corrupt="skip",
            index=index,
            executor=executor,
            num_workers=number,
        )
    data = {**report._asdict(), "bytes": report.bytes_on_disk}
    del data["bytes_on_disk"], data["findings"]
    return show(data, format_report(report), report.findings, as_json=as_json)


def format_report(report: ReshardReport) -> list[str]:
    """The same for people."""
    least, most = min(report.records), max(report.records)
    each = f"{least:,}" if least == most else f"{least:,} to {most:,}"
    lines = [
        f"{format_count(sum(report.records), 'record')} in {format_count(len(report.paths), 'shard')} of {each}, "
        f"{format_bytes(report.bytes_on_disk)}: {report.paths[0]}{' …' if len(report.paths) > 1 else ''}"
    ]
    if report.others:
        lines.append(
            f"warning: {format_count(len(report.others), 'older file')} beside them would be read by a glob for the new shards: "
            f"{report.others[0]}{' …' if len(report.others) > 1 else ''}"
        )
    return lines
