"""A program whose workers are killed, at moments drawn from a seed: run by test_life_kills.py.

    python -m tests.runtime.kill_workers fork|spawn|forkserver fresh|persistent KILLS SEED PATTERN FOLDER

Prints one line of JSON: how many kills hit a worker, and the slowest close. A death that is not told as it should be, and
whatever is left behind, is an error that names seed, kill and moment.
"""

from __future__ import annotations

import gc
import json
import os
import select
import signal
import sys
import threading
import time
from itertools import islice
from multiprocessing import active_children, get_context
from typing import Any

from shardmix.runtime.processes import start_helpers
from tests.runtime.kill_series import SECONDS_TO_END, Mark, Series, check, make_pipe, read_arguments
from tests.runtime.leftovers import descriptors, forgotten_memory, open_since, shared_memory, wait_for_none


class WorkerKills:
    """One program, whose workers are killed."""

    def __init__(self, series: Series) -> None:
        start_helpers(get_context(series.method))  # Python's own, which stay
        self.memory, self.open = shared_memory(), descriptors()
        self.series = series
        self.pipe = make_pipe(series.folder)
        self.loader = series.open_loader(Mark(str(series.folder / "pipe"), 0), 2, repeat=None)
        self.slowest_close, self.num_hit = 0.0, 0

    def run(self) -> dict[str, Any]:
        gc.disable()  # nothing is left to the garbage collector
        for number in range(self.series.num_kills):
            moment = self.series.moments[number % len(self.series.moments)]
            delay = self.series.delay(moment)
            try:
                self.kill(moment, delay)
                check(not active_children(), f"{active_children()} are left")
            except BaseException as error:
                raise RuntimeError(f"seed {self.series.seed}, kill {number}: {moment}, after {delay:.4f} s") from error
        self.check_whole_pass()
        self.check_nothing_left()
        return {"tried": self.series.num_kills, "hit": self.num_hit, "slowest_close": self.slowest_close}

    def check_nothing_left(self) -> None:
        """In this process, once the loader is gone."""
        del self.loader
        os.close(self.pipe)
        check(not active_children(), "workers are left")
        check(not (opened := open_since(self.open)), f"{opened} are left")
        check(not wait_for_none(lambda: threading.enumerate()[1:], 5), f"{threading.enumerate()} are left")
        check(not (named := wait_for_none(lambda: forgotten_memory(self.memory), 10)), f"{named} are left in /dev/shm")

    def kill(self, moment: str, delay: float) -> None:
        """One pass, or two, and a kill."""
        iterator = iter(self.loader)
        if moment not in ("starting", "first"):
            check(len(list(islice(iterator, 2))) == 2, "no batches")
        drain(self.pipe)
        if moment == "idle":
            self.close(iterator)
        killer = Killer(self.pipe if moment == "first" else None, delay, self.series.draw.random())
        if moment == "closing":
            self.close(iterator)
        elif moment != "idle":
            self.check_named(iterator, killer)
        killer.join()
        self.num_hit += killer.has_hit
        # (a death that was seen as the pass closed has ended all workers, and is nobody's concern any more)
        if moment in ("closing", "idle") and self.series.is_persistent and killer.has_hit and active_children():
            self.check_named(iter(self.loader), killer)

    def close(self, iterator: Any) -> None:
        started = time.monotonic()
        iterator.close()
        self.slowest_close = max(self.slowest_close, time.monotonic() - started)

    def check_named(self, iterator: Any, killer: Killer) -> None:
        """The pass fails, and its error names who was killed and what it was at."""
        try:
            for _ in iterator:
                if not killer.is_alive() and not killer.has_hit:
                    return
            check(False, "a pass that does not end has ended")
        except RuntimeError as error:
            killer.join()
            victim = f"(pid {killer.victim}) was killed by SIGKILL, "
            is_named = victim in str(error) and ("reading its rows of epoch" in str(error) or "nothing asked of it" in str(error))
            if not is_named and "died while it was started" not in str(error):
                raise

    def check_whole_pass(self) -> None:
        from tests.runtime.loading import IDS, ids_of

        iterator = iter(self.loader)
        check(sorted(ids_of(islice(iterator, 18))) == IDS, "the last pass is not whole")
        self.close(iterator)


class Killer(threading.Thread):
    """Kills one of the workers that run, some time after there is one, or after one has told that it begins to work."""

    def __init__(self, pipe: int | None, delay: float, choice: float) -> None:
        super().__init__(daemon=True)
        self.pipe, self.delay, self.choice = pipe, delay, choice
        self.victim, self.has_hit = 0, False
        self.start()

    def run(self) -> None:
        if self.pipe is not None:
            select.select([self.pipe], [], [])
        patience = time.monotonic() + SECONDS_TO_END
        while not active_children() and time.monotonic() < patience:
            time.sleep(0.001)
        time.sleep(self.delay)
        workers = sorted(process.pid or 0 for process in active_children())
        if workers:
            self.victim = workers[int(self.choice * len(workers))]
            try:
                os.kill(self.victim, signal.SIGKILL)
                self.has_hit = True
            except ProcessLookupError:  # it has ended
                pass


def drain(pipe: int) -> None:
    """Forget what was told."""
    while select.select([pipe], [], [], 0)[0]:
        os.read(pipe, 1 << 16)


def main() -> None:
    from tests.runtime import loading  # noqa: F401  (torch, once)

    sys.stdout.write(json.dumps(WorkerKills(read_arguments()).run()) + "\n")


if __name__ == "__main__":
    main()
