"""Programs that are killed, at moments drawn from a seed: run by test_life_kills.py.

    python -m tests.runtime.kill_parents fork|spawn|forkserver fresh|persistent KILLS SEED PATTERN FOLDER

Prints one line of JSON: how many were killed, and the most seconds until nothing was left of some. Whatever is left behind is an
error that names seed, kill and moment.
"""

from __future__ import annotations

import heapq
import json
import os
import select
import signal
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from typing import Any

from tests.runtime.kill_series import SECONDS_TO_END, Mark, Series, check, make_pipe, read_arguments
from tests.runtime.leftovers import (
    HALF_MADE,
    forgotten_memory,
    processes_of_session,
    shared_memory,
    temporary_files,
    wait_for_none,
)


class ParentKills:
    """Programs side by side, each in a session and with a folder for temporary files of its own, each killed."""

    side_by_side = 5

    def __init__(self, series: Series) -> None:
        self.series = series
        self.pipe = make_pipe(series.folder)

    def run(self) -> dict[str, Any]:
        memory, seconds = shared_memory(), 0.0
        numbers = range(self.series.num_kills)
        for first in numbers[:: self.side_by_side]:
            seconds = max(seconds, self.kill_some(list(numbers[first : first + self.side_by_side])))
        left = wait_for_none(lambda: forgotten_memory(memory), 10)
        half_made = {name for name in left if HALF_MADE.fullmatch(name)}
        check(left == half_made and len(half_made) <= 1, f"{left} are left in /dev/shm")
        last = self.start(self.series.num_kills, for_ever=False)
        check(os.waitpid(last, 0)[1] == 0, "the program after the killed ones failed")
        return {"tried": self.series.num_kills, "hit": self.series.num_kills, "seconds_until_gone": seconds}

    def kill_some(self, numbers: list[int]) -> float:
        """Returns the seconds until nothing was left of the last."""
        moments = {number: self.series.moments[number % len(self.series.moments)] for number in numbers}
        delays = {number: self.series.delay(moments[number]) for number in numbers}
        pids = {number: self.start(number) for number in numbers}
        self.kill_in_time(pids, moments, delays)
        started = time.monotonic()
        for number, pid in pids.items():
            what = f"seed {self.series.seed}, kill {number}: {moments[number]}, after {delays[number]:.4f} s"
            left = wait_for_none(lambda pid=pid: processes_of_session(pid), SECONDS_TO_END)
            check(not left, f"{what}: processes {left} are left")
            files = temporary_files(self.temporary(number))
            check(files == [], f"{what}: files {files} are left")
        return time.monotonic() - started

    def kill_in_time(self, pids: dict[int, int], moments: dict[int, str], delays: dict[int, float]) -> None:
        """Kill each program its delay after its moment has come."""
        waiting, due, text = set(pids), [], b""
        while waiting or due:
            patience = due[0][0] - time.monotonic() if due else SECONDS_TO_END
            if select.select([self.pipe], [], [], max(patience, 0))[0]:
                *lines, text = (text + os.read(self.pipe, 1 << 16)).split(b"\n")
                for number, moment in (line.decode().split() for line in lines):
                    if int(number) in waiting and moment == moments[int(number)]:
                        waiting.remove(int(number))
                        heapq.heappush(due, (time.monotonic() + delays[int(number)], int(number)))
            elif not due:
                raise RuntimeError(f"seed {self.series.seed}: programs {waiting} do not come to their moments")
            while due and due[0][0] <= time.monotonic():
                pid = pids[heapq.heappop(due)[1]]
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)

    def temporary(self, number: int) -> Path:
        return self.series.folder / f"tmp{number}"

    def start(self, number: int, for_ever: bool = True) -> int:
        """Fork a program. Returns its pid, which is its session too."""
        self.temporary(number).mkdir()
        pid = os.fork()
        if pid:
            return pid
        os.setsid()
        os.environ["TMPDIR"] = tempfile.tempdir = str(self.temporary(number))
        os.dup2(os.open(self.series.folder / f"{number}.err", os.O_CREAT | os.O_WRONLY), 2)
        try:
            self.iterate(number, for_ever)
        finally:
            sys.stdout.flush()
            os._exit(sys.exc_info()[0] is not None)

    def iterate(self, number: int, for_ever: bool) -> None:
        """Pass after pass, telling all moments; or one whole pass."""
        from tests.runtime.loading import IDS, ids_of

        mark = Mark(str(self.series.folder / "pipe"), number)
        loader = self.series.open_loader(mark, 1 + number % 2, repeat=None)
        while True:
            iterator = iter(loader)
            mark.tell("starting")
            check(sorted(ids_of(islice(iterator, 18))) == IDS, "the pass is not whole")
            mark.tell("steady")
            for _ in islice(iterator, 36 if for_ever else 0):
                time.sleep(0.001)
            mark.tell("closing")
            iterator.close()
            if not for_ever:
                return
            mark.tell("idle")
            time.sleep(0.02)


def main() -> None:
    from tests.runtime import loading  # noqa: F401  (torch, once)

    sys.stdout.write(json.dumps(ParentKills(read_arguments()).run()) + "\n")


if __name__ == "__main__":
    main()
