"""Scan shards into entries of an index: in parallel, with progress, and nothing lost of what was scanned when it stops.

Rule 1: in threads of this process, or on any `concurrent.futures.Executor`: the work is a picklable function of paths.
Rule 2: of several errors, that of the first shard in listing order is raised.
Rule 3: a shard that changes while it is scanned is an error, not an entry.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from ..errors import StaleIndexError
from .corpus import Corpus
from .idx import lengths_from_idx
from .index_table import IndexEntry, make_entry, tag_number
from .progress import ProgressLike, show_progress
from .records import IntArray
from .scan import scan_shard
from .storage import is_remote, stat_shard

STATS_AT_A_TIME = 256
MAX_THREADS = 32
TASKS_PER_THREAD = 8
MAX_SHARDS_PER_TASK = 64

logger = logging.getLogger("shardmix")


class ScanTask(NamedTuple):
    """Consecutive shards for one thread or process."""

    shards: list[int]
    paths: list[str]


def stat_corpus(corpus: Corpus) -> tuple[IntArray, IntArray]:
    """(sizes, tags) of all shards as they are now; a tag changes when the file does.

    Raises FileNotFoundError for a shard that is gone.
    """
    starts = range(0, len(corpus), STATS_AT_A_TIME)
    stamps = np.empty((len(corpus), 2), np.int64)

    def stat_some(start: int) -> None:
        for shard in range(start, min(start + STATS_AT_A_TIME, len(corpus))):
            size, tag = stat_shard(corpus.path(shard))
            stamps[shard] = size, tag_number(tag)

    with ThreadPoolExecutor(max(1, min(MAX_THREADS, len(starts)))) as pool:
        for _ in pool.map(stat_some, starts):
            pass
    return stamps[:, 0], stamps[:, 1]


def scan_corpus(
    corpus: Corpus,
    entries: dict[int, IndexEntry],
    *,
    compression: str,
    on_corrupt: str,
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> None:
    """Scan every shard that `entries` (shard → entry) lacks, and put it there; what was scanned before an error is there as well.

    Raises CorruptShardError for on_corrupt="raise", StaleIndexError for a shard that changes meanwhile, OSError.
    """
    missing = [shard for shard in range(len(corpus)) if shard not in entries]
    with _open_executor(executor, len(missing)) as (pool, num_threads):
        tasks = _make_tasks(corpus, missing, num_threads)
        futures = [pool.submit(scan_paths, task.paths, compression, on_corrupt) for task in tasks]
        try:
            with show_progress(progress, len(missing)) as show:
                for task, future in zip(tasks, futures, strict=True):
                    while not wait([future], timeout=0.5).done:
                        show(0)
                    error = _take_entries(entries, task, future)
                    if error is not None:
                        raise error
                    show(len(task.shards))
        except BaseException:
            for task, future in zip(tasks, futures, strict=True):
                if not future.cancel() and future.done() and future.exception() is None:
                    _take_entries(entries, task, future)
            raise


def scan_paths(paths: list[str], compression: str, on_corrupt: str) -> tuple[list[IndexEntry], Exception | None]:
    """Scan some shards one after the other: the entries before the first error, and the error."""
    entries: list[IndexEntry] = []
    for path in paths:
        try:
            entries.append(_scan_path(path, compression, on_corrupt))
        except Exception as error:  # handed on with what came before it
            return entries, error
    return entries, None


def _scan_path(path: str, compression: str, on_corrupt: str) -> IndexEntry:
    stamp = stat_shard(path)
    size, tag = stamp[0], tag_number(stamp[1])
    lengths = lengths_from_idx(path) if compression in ("auto", "none") and not is_remote(path) else None
    if lengths is not None:
        entry = make_entry(size, tag, "none", lengths)
    else:
        scan = scan_shard(path, compression=compression, on_corrupt=on_corrupt)
        entry = make_entry(size, tag, scan.compression, scan.lengths, scan.entries, scan.damage)
    now = stat_shard(path)
    if now != stamp:
        raise StaleIndexError(
            f"it changed while it was indexed ({size} bytes before, {now[0]} now); finish writing it, then open it", path=path
        )
    return entry


def _take_entries(
    entries: dict[int, IndexEntry], task: ScanTask, future: Future[tuple[list[IndexEntry], Exception | None]]
) -> Exception | None:
    scanned, error = future.result()
    entries.update(zip(task.shards, scanned, strict=False))
    return error


def _make_tasks(corpus: Corpus, shards: list[int], num_threads: int) -> list[ScanTask]:
    """Few enough shards a task for every thread to have some, and not a message for every tiny shard of a million."""
    size = max(1, min(MAX_SHARDS_PER_TASK, len(shards) // (num_threads * TASKS_PER_THREAD)))
    groups = [shards[start : start + size] for start in range(0, len(shards), size)]
    return [ScanTask(group, [corpus.path(shard) for shard in group]) for group in groups]


def _num_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def _open_executor(executor: Executor | None, num_shards: int) -> Iterator[tuple[Executor, int]]:
    """(executor, how many threads or processes to reckon with); the caller's own is left open."""
    if executor is not None:
        yield executor, MAX_THREADS
        return
    num_threads = max(1, min(MAX_THREADS, _num_cpus(), num_shards))
    pool = ThreadPoolExecutor(num_threads, thread_name_prefix="shardmix-scan")
    try:
        yield pool, num_threads
    finally:
        pool.shutdown(wait=True, cancel_futures=True)
