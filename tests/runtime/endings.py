"""Programs that end in all ways, with a loader at work: run by test_life_endings.py, one interpreter each.

    python -m tests.runtime.endings PATTERN FOLDER

Torch is imported once, then each ending is a fork that runs to the end of the interpreter, in a session of its own; what it
prints goes to FOLDER/NAME.out and NAME.err. Prints one line of JSON: per ending the exit code, the seconds from its last word
to its end, and the processes that were left in its session.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

from tests.runtime.leftovers import processes_of_session, wait_for_none

kept: list[Any] = []  # what the interpreter finds when it ends
SIDE_BY_SIDE = 3
ROWS = {"batch_size": 4, "repeat": None}


def begin(pattern: str, **settings: Any) -> Any:
    """A live iterator that has given two batches."""
    from shardmix import MixLoader, ShardDataset
    from tests.runtime.loading import FEATURES

    loader = MixLoader(ShardDataset(pattern, features=FEATURES), **ROWS, **settings)
    iterator = iter(loader)
    kept.append(list(islice(iterator, 2)))
    return iterator


def end_with_a_live_iterator(pattern: str, method: str = "fork") -> None:
    kept.append(begin(pattern, num_workers=2, multiprocessing_context=method))


def end_with_a_live_iterator_of_threads(pattern: str) -> None:
    kept.append(begin(pattern))


def end_with_an_exception(pattern: str, method: str = "fork") -> None:
    iterator = begin(pattern, num_workers=2, multiprocessing_context=method)
    for _ in iterator:
        raise LookupError("the end")


def end_with_idle_persistent_workers(pattern: str) -> None:
    iterator = begin(pattern, num_workers=2, persistent_workers=True)
    iterator.close()
    kept.append(iterator)


def end_inside_a_cycle(pattern: str) -> None:
    cycle = [begin(pattern, num_workers=2, persistent_workers=True)]
    cycle.append(cycle)


def end_before_spawned_workers_are_there(pattern: str) -> None:
    settings = {"num_workers": 1, "multiprocessing_context": "spawn"}
    threading.Thread(target=begin, args=(pattern,), kwargs=settings, daemon=True).start()
    time.sleep(0.3)


def end_by_control_c(pattern: str, method: str = "fork") -> None:
    iterator = begin(pattern, num_workers=2, multiprocessing_context=method)
    os.killpg(0, signal.SIGINT)  # as a terminal does: this process and its workers
    for _ in iterator:
        time.sleep(0.01)


def end_by_control_c_while_waiting(pattern: str) -> None:
    """The signal comes while this process waits for a batch."""
    from shardmix import MixLoader
    from tests.runtime.loading import Squares

    class Slow(Squares):
        def __getitem__(self, i: int) -> Any:
            time.sleep(0.05)
            return super().__getitem__(i)

    if os.fork() == 0:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        time.sleep(0.3)
        os.killpg(0, signal.SIGINT)
        os._exit(0)
    for _ in MixLoader(Slow(10_000), batch_size=20, num_workers=2):
        pass


def end_by_control_c_before_spawned_workers_are_there(pattern: str) -> None:
    """The signal comes while the workers import their modules."""
    settings = {"num_workers": 2, "multiprocessing_context": "spawn"}
    threading.Thread(target=begin, args=(pattern,), kwargs=settings, daemon=True).start()
    time.sleep(0.5)
    os.killpg(0, signal.SIGINT)
    time.sleep(10)


def under(method: str, end: Callable[[str, str], None]) -> Callable[[str], None]:
    """An ending with workers of another start method."""

    def end_there(pattern: str) -> None:
        end(pattern, method)

    end_there.__name__ = f"{end.__name__}_under_{method}"
    return end_there


ENDINGS: list[Callable[[str], None]] = [
    end_with_a_live_iterator,
    end_with_a_live_iterator_of_threads,
    end_with_an_exception,
    end_with_idle_persistent_workers,
    end_inside_a_cycle,
    end_before_spawned_workers_are_there,
    end_by_control_c,
    end_by_control_c_while_waiting,
    end_by_control_c_before_spawned_workers_are_there,
    *(
        under(method, end)
        for method in ("spawn", "forkserver")
        for end in (end_with_a_live_iterator, end_with_an_exception, end_by_control_c)
    ),
]


def start(ending: Callable[[str], None], pattern: str, folder: Path) -> int | None:
    """Fork. Returns the child's pid; in the child None, once the ending has said its last word."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    for name, descriptor in (("out", 1), ("err", 2)):
        opened = os.open(folder / f"{ending.__name__}.{name}", os.O_CREAT | os.O_WRONLY)
        os.dup2(opened, descriptor)
        os.close(opened)
    try:
        ending(pattern)
    finally:
        (folder / f"{ending.__name__}.last").write_text(str(time.monotonic()))
    return None


def main() -> None:
    pattern, folder = sys.argv[1], Path(sys.argv[2])
    from tests.runtime import loading  # noqa: F401  (torch, once)

    report, waiting = {}, [*ENDINGS]
    while waiting:
        running = {}
        for _ in range(min(SIDE_BY_SIDE, len(waiting))):
            ending = waiting.pop()
            pid = start(ending, pattern, folder)
            if pid is None:
                return  # to the end of the interpreter
            running[pid] = ending.__name__
        for _ in range(len(running)):
            pid, status = os.wait()
            seconds = time.monotonic() - float((folder / f"{running[pid]}.last").read_text())
            left = wait_for_none(lambda pid=pid: processes_of_session(pid), 10)
            report[running[pid]] = {"code": os.waitstatus_to_exitcode(status), "seconds": seconds, "left": left}
    sys.stdout.write(json.dumps(report) + "\n")


if __name__ == "__main__":
    main()
