"""One contender on one corpus, in a process of its own: bench.py starts it and tells it what to do, a line of JSON each way.

    {"do": "check", ...}     deliver a small corpus; tell its digest
    {"do": "first", ...}     build the pipeline, tell the time to the first batch, and run on as warm-up
    {"do": "round", ...}     deliver epochs for about a second; tell rows, seconds, CPU seconds
    {"do": "stats"}          what the contender itself counts

Rule 1: CPU time is that of the process and all its children, dead ones included.
Rule 2: a round is whole epochs, their beginning and end included. One that is cut at its limit counts from its first batch on:
filling the buffers is then not held against a slow contender.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

STARTED = time.perf_counter()
ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

TICK = os.sysconf("SC_CLK_TCK")


def process_tree(root: int) -> list[int]:
    """A process and all that descend from it. Linux only; elsewhere the process alone."""
    found = [root]
    for process in found:
        for path in Path(f"/proc/{process}/task").glob("*/children"):
            try:
                found += map(int, path.read_text().split())
            except OSError:  # it has just ended
                continue
    return found


def cpu_seconds() -> float:
    """User and system time of this process, its children and theirs, so far."""
    total = 0
    for process in process_tree(os.getpid()):
        try:
            fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        total += sum(map(int, fields[11:15]))
    return total / TICK


class Runner:
    """Keeps the contender between commands."""

    def __init__(self, module: str, options: dict[str, Any]) -> None:
        self.module = importlib.import_module(f"benchmarks.{module}")
        self.options = options
        self.import_seconds = time.perf_counter() - STARTED
        self.peer: Any = None

    def hello(self) -> dict[str, Any]:
        return {"describe": self.module.describe(), "checks": self.module.CHECKS, "import_seconds": self.import_seconds}

    def check(self, workload: Any) -> dict[str, Any]:
        from benchmarks.workload import digest

        peer = self.module.Peer(workload, **self.options)
        if not self.module.DECODES:
            return {"digest": None}
        rows, text = digest(peer.epoch())
        return {"digest": text, "digest_rows": rows}

    def first(self, workload: Any, limit: float) -> dict[str, Any]:
        getattr(self.module, "convert", lambda _: None)(workload)
        began = time.perf_counter()
        self.peer = self.module.Peer(workload, **self.options)
        batches = self.peer.epoch()
        next(batches)
        first = time.perf_counter() - began
        self._run(batches, began + limit)
        return {"first_batch_seconds": first}

    def round(self, least: float, limit: float) -> dict[str, Any]:
        cpu, began = cpu_seconds(), time.perf_counter()
        rows, seconds = 0, 0.0
        while not rows or seconds < least:
            got, took, is_whole = self._epoch(limit)
            rows, seconds = rows + got, seconds + took
            if not is_whole:
                break
        # CPU time may include the beginning of a cut epoch, rows of which are not counted: scaled to the time that is
        share = seconds / (time.perf_counter() - began)
        return {"rows": rows, "seconds": seconds, "cpu_seconds": (cpu_seconds() - cpu) * share, "is_whole": is_whole}

    def stats(self) -> dict[str, Any]:
        stats: dict[str, Any] = self.peer.stats()
        return stats

    def _epoch(self, limit: float) -> tuple[int, float, bool]:
        """(rows, seconds, whether the epoch came to its end)."""
        from benchmarks.workload import count_rows

        began = time.perf_counter()
        batches = self.peer.epoch()
        first = next(batches)
        rows = head = first if isinstance(first, int) else count_rows(first)
        after_first = time.perf_counter()
        del first
        got, is_whole = self._run(batches, began + limit)
        now = time.perf_counter()
        rows += got
        return (rows, now - began, True) if is_whole else (rows - head, now - after_first, False)

    def _run(self, batches: Iterator[Any], until: float) -> tuple[int, bool]:
        from benchmarks.workload import count_rows

        rows = 0
        for batch in batches:
            rows += count_rows(batch)
            if time.perf_counter() > until:
                return rows, False
        return rows, True


def main() -> None:
    # what a contender prints goes to stderr; the real standard output is for answers
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    try:
        runner = Runner(sys.argv[1], json.loads(sys.argv[2]))
        from benchmarks.workload import Workload
    except ImportError as error:
        print(json.dumps({"missing": str(error)}), file=answers, flush=True)
        return
    print(json.dumps(runner.hello()), file=answers, flush=True)
    for line in sys.stdin:
        command = json.loads(line)
        if "workload" in command:
            name, folder, num_records = command["workload"]
            command["workload"] = Workload(name, Path(folder), num_records)
        answer = getattr(runner, command.pop("do"))(**command)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
