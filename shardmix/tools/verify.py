"""`shardmix verify`: every checksum of every shard, all that is wrong, and a repaired copy.

Rule 1: nothing stops at the first damage. Behind one that hides the next record, the next sound record is searched (resync.py).
Rule 2: repair writes a copy of every shard that has any sound record, or is empty: its name, its compression, its sound
records in their order. The copies get their names together; nothing is overwritten.
Rule 3: a cut between two records leaves a sound, shorter shard; where an index knows the count, however old it is, that is found.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import click
import numpy as np

from ..format.corpus import Corpus, find_shards
from ..format.index import write_index
from ..format.index_build import find_counts
from ..format.index_store import find_homes
from ..format.output import ShardOutput
from ..format.progress import ProgressLike
from ..format.records import IntArray
from ..format.scan import FrameBlock, frame_offsets, walk_frames
from ..format.storage import ShardFile, open_shard, stat_shard
from . import options
from .findings import Finding
from .resync import find_record
from .staging import check_free, open_staging, publish
from .survey import size_of
from .tasks import open_processes, run_tasks
from .texts import format_bytes, format_count, show

_OUTPUT_BUFFER_BYTES = 1 << 20


class ShardReport(NamedTuple):
    """One shard."""

    path: str
    compression: str
    bytes_on_disk: int
    records: int  # sound ones
    lengths: IntArray  # (records,) bytes of their payloads, where a copy was written; else empty
    findings: tuple[Finding, ...]


class VerifyReport(NamedTuple):
    """All shards. `repaired`: the paths of the copies."""

    shards: tuple[ShardReport, ...]
    repaired: tuple[str, ...]

    @property
    def findings(self) -> tuple[Finding, ...]:
        """All that was found, in listing order."""
        return tuple(finding for shard in self.shards for finding in shard.findings)


class VerifyTask(NamedTuple):
    """What one call of `verify_shard` does."""

    path: str
    compression: str  # "auto", or what it is to be read as
    expected: int | None  # records that an index says it has
    copy: str | None  # where the sound records go


def verify_shards(
    shards: str | Sequence[str] | Corpus,
    *,
    repair: str | None = None,
    compression_type: str = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> VerifyReport:
    """Check every byte of every shard.

        report = verify_shards("corpus/*.tfrecord", executor=client.get_executor())
        for finding in report.findings: ...

    repair: a folder for the repaired copies; shards keep their names below their common parent.
    executor: any concurrent.futures.Executor, also one of other machines that see the same paths. None: this process.

    Raises FileNotFoundError where nothing matches, FileExistsError where a copy's name is taken, OSError when a copy cannot be
    written; then no copy is left.
    """
    corpus = find_shards(shards)
    expected = find_counts(find_homes(corpus, "auto", None), corpus)
    paths = list(corpus)
    if repair is None:
        tasks = [VerifyTask(path, compression_type, expected.get(shard), None) for shard, path in enumerate(paths)]
        return VerifyReport(tuple(run_tasks(verify_shard, tasks, executor=executor, progress=progress, doing="verifying")), ())
    finals = [os.path.join(os.path.abspath(repair), corpus.name(shard)) for shard in range(len(corpus))]
    check_free(finals)
    with open_staging(os.path.abspath(repair)) as staging:
        tasks = [
            VerifyTask(path, compression_type, expected.get(shard), os.path.join(staging, str(shard)))
            for shard, path in enumerate(paths)
        ]
        reports = run_tasks(verify_shard, tasks, executor=executor, progress=progress, doing="verifying")
        written = {str(shard): finals[shard] for shard, report in enumerate(reports) if _is_worth_a_copy(report)}
        publish(staging, written)
    _write_index(written, reports)
    return VerifyReport(tuple(reports), tuple(written.values()))


def verify_shard(task: VerifyTask) -> ShardReport:
    """Check one shard, and write its sound records where a copy is wanted. What is wrong is in the report, not raised."""
    try:
        size = stat_shard(task.path)[0]
        report = _verify(task, task.compression, size)
        if task.compression == "auto" and report.compression != "none" and not report.records and report.findings:
            as_plain = _verify(task, "none", size)  # a damaged header can look like that of a compressed stream
            report = as_plain if as_plain.records else report
    except OSError as error:
        if task.copy is not None and error.filename is not None and os.path.dirname(task.copy) in str(error.filename):
            raise  # the copy cannot be written
        return ShardReport(task.path, "none", 0, 0, np.empty(0, np.int64), (Finding.of_os_error(task.path, error),))
    if report.records:  # it is a shard, then
        findings = (one._replace(kind="framing") if one.kind == "no shard" else one for one in report.findings)
        report = report._replace(findings=tuple(findings))
    if task.expected is None or report.findings or report.records == task.expected:
        return report
    text = (
        f"{format_count(report.records, 'sound record')}, and its index says {task.expected}: it was cut between two records, or "
        "rewritten since; if it is right as it is, remove the index or build it again"
    )
    return report._replace(findings=(Finding(task.path, "count", text),))


def _verify(task: VerifyTask, compression: str, size: int) -> ShardReport:
    file = open_shard(task.path, compression)
    output = _open_output(task.copy, file.compression) if task.copy is not None else None
    findings: list[Finding] = []
    num_records = 0
    try:
        for block in walk_sound(file, findings):
            num_records += len(block.lengths)
            if output is not None:
                output.append_frames(block.data, block.lengths)
        lengths = np.empty(0, np.int64)
        if output is not None and task.copy is not None:
            output.finish()
            output.publish(task.copy)
            lengths = np.array(output.lengths, np.int64)
    except BaseException:
        if output is not None:
            output.discard()
        raise
    finally:
        file.close()
    return ShardReport(task.path, file.compression, size, num_records, lengths, tuple(findings))


def walk_sound(file: ShardFile, findings: list[Finding]) -> Iterator[FrameBlock]:
    """The sound frames of a shard, a block at a time, beyond any damage; what is wrong is added to `findings`."""
    record, offset, is_numbered = 0, 0, True
    while True:
        damage = None
        for block in walk_frames(file, verify="full", record=record, offset=offset):
            yield block
            offset = block.offset + int(frame_offsets(block.lengths)[-1])
            damage = block.damage if block.passed_length is None else None
            if block.damage is not None and block.passed_length is not None:
                findings.append(_number(Finding.of_damage(block.damage), is_numbered))
        if damage is None:
            return
        begin, next_record = offset, find_record(file, offset + 1)
        if next_record is None:
            findings.append(_number(Finding.of_damage(damage, more="; no sound record behind it"), is_numbered))
            return
        more = f"; {next_record - begin} bytes are lost, the next sound record begins at byte {next_record}"
        findings.append(_number(Finding.of_damage(damage, more=more), is_numbered))
        offset, is_numbered = next_record, False


def _number(finding: Finding, is_numbered: bool) -> Finding:
    """Without the number of the record, where it is not known how many were lost before."""
    return finding if is_numbered else finding._replace(record=None)


def _open_output(path: str, compression: str) -> ShardOutput:
    folder, name = os.path.split(path)
    return ShardOutput(folder, name, compression, buffer_bytes=_OUTPUT_BUFFER_BYTES)


def _is_worth_a_copy(report: ShardReport) -> bool:
    return bool(report.records) or not report.findings


def _write_index(written: dict[str, str], reports: list[ShardReport]) -> None:
    """Leave the index beside the copies; where they are compressed differently, to their first reader."""
    kept = [reports[int(name)] for name in written]
    compressions = {report.compression for report in kept}
    if len(compressions) == 1:
        (compression,) = compressions
        entries = () if compression == "none" else ((0, 0),)
        lengths = [report.lengths for report in kept]
        write_index(list(written.values()), lengths, compression=compression, entries=[entries] * len(kept))


# --- The command -------------------------------------------------------------------------------------------------------------


def format_report(report: VerifyReport, repair: str | None) -> list[str]:
    """The same for people: all findings, then a summary."""
    records = sum(shard.records for shard in report.shards)
    size = format_bytes(sum(shard.bytes_on_disk for shard in report.shards))
    lines = [str(finding) for finding in report.findings]
    lines.append(f"{format_count(len(report.shards), 'shard')}, {size}, {format_count(records, 'sound record')}")
    kinds = Counter(finding.kind for finding in report.findings)
    damaged = sum(bool(shard.findings) for shard in report.shards)
    if kinds:
        counted = ", ".join(f"{number} {kind}" for kind, number in kinds.most_common())
        lines.append(f"{format_count(len(report.findings), 'finding')} in {format_count(damaged, 'shard')}: {counted}")
    else:
        lines.append("nothing is wrong with them")
    if repair is not None:
        lines.append(f"{format_count(len(report.repaired), 'shard')} of sound records written to {repair}")
    return lines


@click.command()
@options.patterns
@click.option("--repair", metavar="OUT", type=click.Path(file_okay=False), help="Write all sound records to this folder.")
@options.workers
@options.compression
@options.as_json
def command(patterns: tuple[str, ...], repair: str | None, workers: int | None, compression_type: str, as_json: bool) -> int:
    """Check every CRC of every shard: all findings with place and kind. Exit code 1 when anything is wrong.

    \b
    shardmix verify 'corpus/train-*.tfrecord'
    shardmix verify corpus --repair sound --workers 8
    shardmix verify corpus --json | jq '.findings[] | [.path, .offset, .kind]'
    """
    corpus = find_shards(list(patterns))
    with open_processes(workers, len(corpus), sum(map(size_of, corpus))) as executor:
        report = verify_shards(corpus, repair=repair, compression_type=compression_type, executor=executor)
    if not as_json:
        show({}, format_report(report, repair), (), as_json=False)
        return 1 if report.findings else 0
    return show(as_data(report), [], report.findings, as_json=True)


def as_data(report: VerifyReport) -> dict[str, Any]:
    """The same for JSON."""
    rows = [
        {"path": shard.path, "compression": shard.compression, "bytes": shard.bytes_on_disk, "records": shard.records}
        for shard in report.shards
    ]
    return {"shards": rows, "repaired": list(report.repaired)}
