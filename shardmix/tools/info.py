"""`shardmix info`: what a corpus is, from its index, and what a run over it would need."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any, NamedTuple

import click
import numpy as np

from ..format.corpus import Corpus, find_shards
from ..format.index import Index
from ..format.index_build import Wanted, find_counts, known_entries
from ..format.index_store import find_homes
from ..format.patterns import describe_names, left_out_names
from ..runtime.needs import Needs, RunSettings, estimate_needs, inflated_bytes
from . import options
from .findings import Finding
from .survey import split_readable, survey_shards
from .tasks import open_processes
from .texts import format_bytes, format_count, format_table, show


class CorpusInfo(NamedTuple):
    """What `describe_corpus` says."""

    parent: str
    shards: int
    empty_shards: int
    records: int
    bytes_on_disk: int
    bytes_inflated: int  # frames included
    compressions: dict[str, int]  # compression → shards
    record_bytes: dict[str, int]  # least, median, mean, most bytes of a payload
    shard_records: dict[str, int]  # the same of the records of a shard
    index_state: str  # "current", "stale", "partial", "none": as it was found
    index_path: str | None  # where it is now; None: in memory
    left_out: tuple[str, ...]  # visible files of the folders that were given, which are no shards by their names
    needs: Needs | None  # None where there are no records


def describe_corpus(
    shards: str | Sequence[str] | Corpus,
    *,
    settings: RunSettings | None = None,
    index: str = "auto",
    compression_type: str = "auto",
    executor: Executor | None = None,
) -> tuple[CorpusInfo, tuple[Finding, ...]]:
    """Shards, records, bytes, index state, record sizes; memory and open files of a run. Builds the index where there is none.

    info, findings = describe_corpus("corpus/*.tfrecord", settings=RunSettings(batch_size=256))
    """
    everything = find_shards(shards)
    corpus, _ = split_readable(everything)
    state = find_index_state(corpus, index, compression_type)
    opened, findings = survey_shards(everything, index=index, compression_type=compression_type, executor=executor)
    info = CorpusInfo(
        parent=opened.corpus.parent,
        shards=len(opened),
        empty_shards=int((opened.counts == 0).sum()),
        records=opened.num_records,
        bytes_on_disk=int(opened.sizes.sum()),
        bytes_inflated=inflated_bytes(opened),
        compressions=dict(Counter(opened.compression(shard) for shard in range(len(opened)))),
        record_bytes=_record_sizes(opened),
        shard_records=_spread(opened.counts),
        index_state=state,
        index_path=opened.file_path,
        left_out=find_left_out(shards),
        needs=estimate_needs(opened, settings or RunSettings()),
    )
    return info, findings


def find_left_out(shards: str | Sequence[str] | Corpus) -> tuple[str, ...]:
    """The visible files of local folders among the patterns that are no shards by their names."""
    if isinstance(shards, Corpus):
        return ()
    folders = [os.path.expanduser(pattern) for pattern in ([shards] if isinstance(shards, str) else shards)]
    return tuple(os.path.join(folder, name) for folder in folders if os.path.isdir(folder) for name in left_out_names(folder))


def find_index_state(corpus: Corpus, index: str, compression_type: str) -> str:
    """What is known of the shards before anything is scanned: "current" (all, as they are now), "stale" (some changed since),
    "partial" (some were never indexed), "none"."""
    homes = find_homes(corpus, index, None)
    wanted = Wanted.of(corpus, compression_type, "skip")
    num_current = len(known_entries(homes, wanted))
    if num_current == len(corpus):
        return "current"
    num_known = len(find_counts(homes, corpus))
    if num_known == len(corpus) or num_known > num_current:
        return "stale"
    return "partial" if num_current else "none"


def _record_sizes(index: Index) -> dict[str, int]:
    lengths = [index.lengths(shard, 0, int(count)) for shard, count in enumerate(index.counts) if count]
    return _spread(np.concatenate(lengths)) if lengths else {}


def _spread(numbers: Any) -> dict[str, int]:
    return {
        "least": int(numbers.min()),
        "median": int(np.median(numbers)),
        "mean": round(float(numbers.mean())),
        "most": int(numbers.max()),
    }


# --- As text -----------------------------------------------------------------------------------------------------------------

_STATES = {
    "current": "current",
    "stale": "was stale (shards have changed since), built anew",
    "partial": "knew some of the shards, built for all",
    "none": "there was none, built now",
}


def format_info(info: CorpusInfo, settings: RunSettings) -> list[str]:
    """The same for people."""
    stored = ", ".join(f"{number:,} {name if name != 'none' else 'plain'}" for name, number in sorted(info.compressions.items()))
    empty = f", {info.empty_shards:,} of them empty" if info.empty_shards else ""
    rows = [
        ["folder", info.parent],
        ["shards", f"{info.shards:,} ({stored}){empty}; {_format_spread(info.shard_records)} records each"],
        ["records", f"{info.records:,}"],
        ["bytes", f"{format_bytes(info.bytes_on_disk)} on disk, {format_bytes(info.bytes_inflated)} inflated"],
    ]
    if info.record_bytes:
        rows.append(["a record", f"{_format_spread(info.record_bytes)} bytes"])
    rows.append(["index", f"{_STATES[info.index_state]}: {info.index_path or 'in memory only'}"])
    if info.left_out:
        names = describe_names([os.path.basename(path) for path in info.left_out], "")
        rows.append(["left out", f"{names}: no shards by their names; a glob takes them"])
    lines = format_table(rows)
    return lines if info.needs is None else [*lines, "", *_format_needs(info.needs, settings)]


def _format_spread(spread: dict[str, int]) -> str:
    if spread["least"] == spread["most"]:
        return f"{spread['least']:,}"
    return f"{spread['least']:,} to {spread['most']:,} (median {spread['median']:,}, mean {spread['mean']:,})"


def _format_needs(needs: Needs, settings: RunSettings) -> list[str]:
    of_ranks = f" of {settings.world_size}" if settings.world_size > 1 else ""
    head = (
        f"a run with batch_size={settings.batch_size}, num_workers={settings.num_workers}, "
        f"shuffle_buffer_size={needs.shuffle_buffer_size}, lanes={needs.lanes}, cycle_length={needs.cycle_length} "
        f"needs on each rank{of_ranks}, beside Python and torch:"
    )
    rows = [
        ["shuffle buffers (encoded records, in the workers)", format_bytes(needs.buffer_bytes)],
        ["shared memory between workers and main process", format_bytes(needs.shared_bytes)],
        ["batches in the main process", format_bytes(needs.batch_bytes)],
        ["read buffers beside them, at most", format_bytes(needs.read_bytes)],
        ["together", format_bytes(needs.bytes)],
        ["open files, at most", format_count(needs.open_files, "file")],
    ]
    return [head, *format_table(rows, right=[1], indent="  ")]


@click.command()
@options.patterns
@options.batch_size
@options.num_workers
@options.shuffle_buffer_size
@options.lanes
@options.cycle_length
@click.option("--world-size", type=click.IntRange(1), default=1, show_default=True, help="Ranks of the run.")
@options.workers
@options.index
@options.compression
@options.as_json
def command(
    patterns: tuple[str, ...], workers: int | None, index: str, compression_type: str, as_json: bool, **settings: Any
) -> int:
    """Say what is there: shards, records, bytes, compression, index, record sizes; memory and open files of a run.

    \b
    shardmix info 'corpus/train-*.tfrecord'
    shardmix info corpus --batch-size 1024 --num-workers 8 --world-size 4
    shardmix info corpus --json | jq .records
    """
    run = RunSettings(**settings)
    corpus = find_shards(list(patterns))
    with open_processes(workers, len(corpus), num_bytes=None if workers else 0) as executor:
        info, findings = describe_corpus(
            corpus, settings=run, index=index, compression_type=compression_type, executor=executor
        )
    info = info._replace(left_out=find_left_out(patterns))
    needs = None if info.needs is None else {**info.needs._asdict(), "bytes": info.needs.bytes}
    return show({**info._asdict(), "needs": needs}, format_info(info, run), findings, as_json=as_json)
