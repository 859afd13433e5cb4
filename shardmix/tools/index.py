"""`shardmix index`: build, refresh or export the index of a corpus."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from typing import NamedTuple

import click

from ..format.corpus import Corpus, find_shards
from ..format.idx import write_idx
from ..format.index import Index, build_index
from ..format.index_build import Wanted, known_entries
from ..format.index_store import find_homes
from ..format.progress import ProgressLike
from ..format.storage import is_remote
from . import options
from .findings import Finding
from .survey import split_readable
from .tasks import open_processes
from .texts import format_count, show


class IndexReport(NamedTuple):
    """What `index_shards` did."""

    opened: Index
    scanned: int  # shards that were new or had changed
    text_indexes: tuple[str, ...] | None  # the .idx files that were written; None: none were asked for
    compressed: int  # shards that can have none
    findings: tuple[Finding, ...]


def index_shards(
    shards: str | Sequence[str] | Corpus,
    *,
    index: str = "auto",
    text_indexes: bool = False,
    compression_type: str = "auto",
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> IndexReport:
    """Index shards, and nothing stops at a bad one; an index that is current is left as it is.

        index_shards("s3://bucket/train-*.tfrecord", index="train.shardmix", executor=client.get_executor())

    index: "auto", "cache", or the path of a file, name.shardmix; see `build_index`.
    text_indexes: also write a `.idx` beside each plain local shard, as the tfrecord package and DALI read it.

    Raises FileNotFoundError where nothing matches, OSError when no shard can be read or an index cannot be written.
    """
    corpus, unreadable = split_readable(find_shards(shards))
    known = len(known_entries(find_homes(corpus, index, None), Wanted.of(corpus, compression_type, "skip")))
    opened = build_index(
        corpus, index=index, compression_type=compression_type, on_corrupt="skip", executor=executor, progress=progress
    )
    findings = tuple(sorted((*unreadable, *map(Finding.of_damage, opened.damages))))
    written = _write_text_indexes(opened) if text_indexes else None
    return IndexReport(opened, len(corpus) - known, written, int(opened.compressed.sum()), findings)


def _write_text_indexes(opened: Index) -> tuple[str, ...]:
    """One beside each plain shard, except of what is cut off: its other readers would not know."""
    cut_off = {damage.path for damage in opened.damages}
    written = []
    for shard in range(len(opened)):
        path = opened.path(shard)
        if not opened.compressed[shard] and path not in cut_off and not is_remote(path):
            write_idx(path + ".idx", opened.lengths(shard, 0, int(opened.counts[shard])))
            written.append(path + ".idx")
    return tuple(written)


def format_report(report: IndexReport) -> list[str]:
    """The same for people."""
    opened = report.opened
    where = opened.file_path or "in memory only: no place for it could be written"
    lines = [
        f"{format_count(opened.num_records, 'record')} in {format_count(len(opened), 'shard')}, "
        f"{report.scanned:,} of them scanned",
        f"index: {where}",
    ]
    if report.text_indexes:
        lines.append(f"{format_count(len(report.text_indexes), '.idx file')} written beside the shards")
    if report.text_indexes is not None and report.compressed:
        lines.append(f"{format_count(report.compressed, 'compressed shard')} can have no .idx: there are no offsets in them")
    return lines


@click.command()
@options.patterns
@click.option("--out", metavar="FILE", help="Write the index to this file, name.shardmix, to be given as index=.")
@click.option("--idx", "text_indexes", is_flag=True, help="Also write a text index (.idx) beside each plain shard.")
@options.workers
@options.compression
@options.as_json
def command(
    patterns: tuple[str, ...], out: str | None, text_indexes: bool, workers: int | None, compression_type: str, as_json: bool
) -> int:
    """Build or refresh the index: only what is new or changed is scanned. With --idx export it for tfrecord and DALI.

    \b
    shardmix index 'corpus/train-*.tfrecord' --workers 8
    shardmix index 's3://bucket/train-*.tfrecord' --out train.shardmix
    shardmix index corpus --idx
    """
    corpus = find_shards(list(patterns))
    with open_processes(workers, len(corpus), num_bytes=None if workers else 0) as executor:
        report = index_shards(
            corpus, index=out or "auto", text_indexes=text_indexes, compression_type=compression_type, executor=executor
        )
    opened = report.opened
    data = {
        "index": opened.file_path,
        "shards": len(opened),
        "records": opened.num_records,
        "scanned": report.scanned,
        "text_indexes": list(report.text_indexes or ()),
    }
    return show(data, format_report(report), report.findings, as_json=as_json)
