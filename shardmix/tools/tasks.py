"""Run one function over many shards: here, in processes, or on any executor.

Rule 1: the function is one of a module and its arguments pickle, so that an executor may run it on another machine.
Rule 2: the first failure ends all: what has not begun is cancelled, what runs is waited for, then it is raised.
Rule 3: worker processes of ours end at once, silently, with Ctrl-C or when their work is given up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, ProcessPoolExecutor, as_completed
from contextlib import contextmanager
from multiprocessing import active_children, get_context
from typing import Any, TypeVar

from ..format.progress import ProgressLike, show_progress

SMALL_BYTES = 64 << 20  # done before other processes have begun

Task = TypeVar("Task")
Result = TypeVar("Result")


def run_tasks(
    function: Callable[[Task], Result],
    tasks: Sequence[Task],
    *,
    executor: Executor | None = None,
    progress: ProgressLike = None,
    doing: str,
    unit: str = "shards",
) -> list[Result]:
    """The results, in the order of the tasks. `executor` None: one after the other, in this process.

    run_tasks(os.path.getsize, ["a.tfrecord", "b.tfrecord"], doing="measuring")
    """
    with show_progress(progress, len(tasks), doing=doing, unit=unit) as show:
        if executor is None:
            results = []
            for task in tasks:
                results.append(function(task))
                show(1)
            return results
        futures = [executor.submit(function, task) for task in tasks]
        try:
            for future in as_completed(futures):
                future.result()
                show(1)
        except BaseException:
            if not isinstance(executor, OwnProcesses):
                for future in futures:
                    future.cancel()
            raise
        return [future.result() for future in futures]


class OwnProcesses(ProcessPoolExecutor):
    """Processes of `open_processes`, which ends them itself: where one dies, Python stumbles over futures that were cancelled."""


@contextmanager
def open_processes(num_workers: int | None, num_tasks: int, num_bytes: int | None = None) -> Iterator[Executor | None]:
    """An executor of `num_workers` processes, or None where one is enough, this one.

    num_workers: None is one a CPU, and one in all for less than SMALL_BYTES of work (`num_bytes`).
    """
    number = num_workers or (1 if num_bytes is not None and num_bytes < SMALL_BYTES else num_cpus())
    if min(number, num_tasks) <= 1:
        yield None
        return
    others = set(active_children())
    executor = OwnProcesses(min(number, num_tasks), mp_context=get_context("spawn"), initializer=_die_with_interrupt)
    try:
        yield executor
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        for child in set(active_children()) - others:
            child.terminate()
        raise
    finally:
        executor.shutdown(wait=True)


def num_cpus() -> int:
    """The CPUs that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _die_with_interrupt() -> None:
    signal.signal(signal.SIGINT, _exit_at_once)


def _exit_at_once(*arguments: Any) -> None:
    os._exit(130)
