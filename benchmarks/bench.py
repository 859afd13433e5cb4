"""shardmix beside its peers, all in one run: make bench, or python benchmarks/bench.py

    make bench                      every corpus, every contender that is installed; some minutes
    make bench SIZE=0.1             corpora of a tenth
    python benchmarks/bench.py --corpora small,ctr --contenders shardmix-2,tf.data

Rule 1: each contender runs in a process of its own, one for each corpus, so that neither memory nor imports mix. All live at the
same time and take turns, so that a slow minute of the machine is slow for all; ratios are those of medians over the rounds.
Rule 2: before anything is timed, each delivers a small corpus, and all must have delivered the same rows.
Rule 3: files are in the page cache; a first epoch warms up and is not counted.
Rule 4: a peer that is not installed, or that fails, is a line that says so.

What is asked for is in workload.py, who is asked in peers_*.py, how one is timed in contender.py, the tables in report.py.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.contender import process_tree
from benchmarks.report import draw_chart, print_report
from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, RECORDS, Workload, prepare

ROOT = Path(__file__).parents[1]
SAMPLE_SECONDS = 0.03  # between two looks at the memory


@dataclass(frozen=True)
class Contender:
    """One line of the table. `corpora`: those it runs on; () is all."""

    key: str
    module: str
    options: dict[str, Any] = field(default_factory=dict)
    corpora: tuple[str, ...] = ()


CONTENDERS = (
    Contender("shardmix-2", "peers_shardmix", {"num_workers": 2}),
    Contender("shardmix-0", "peers_shardmix", {"num_workers": 0}),
    Contender("tf.data", "peers_tfdata"),
    Contender("tfrecord-2", "peers_tfrecord"),
    Contender("webdataset-2", "peers_webdataset"),
    Contender("dali-2", "peers_dali"),
    Contender("bound", "peers_bound"),
    Contender("shardmix-2-batch32", "peers_shardmix", {"num_workers": 2, "batch_size": 32}, ("small", "ctr")),
    Contender("shardmix-2-parse", "peers_shardmix", {"num_workers": 2, "work": "parse"}, ("small",)),
    Contender("shardmix-0-plain", "peers_shardmix", {"num_workers": 0, "work": "plain"}, ("small",)),
    Contender("shardmix-0-transform", "peers_shardmix", {"num_workers": 0, "work": "transform"}, ("small",)),
)


class Absent(Exception):
    """A contender that is not installed, or has died; the text says why."""


class Process:
    """A contender's process. Use it as a context manager."""

    def __init__(self, contender: Contender) -> None:
        command = [sys.executable, str(ROOT / "benchmarks" / "contender.py"), contender.module, json.dumps(contender.options)]
        self._errors = tempfile.TemporaryFile()
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors)

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        """Let it end by itself: its input is at its end."""
        try:
            self._process.communicate(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()
        self._errors.close()

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Its answer. Raises Absent when it dies over it."""
        self._send(do, **arguments)
        return self.answer()

    def watch(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Its answer, with the peak of memory and of open descriptors of all its processes meanwhile."""
        self._send(do, **arguments)
        peak_bytes, peak_files = look_at(self._process.pid)
        while not select.select([self._process.stdout], [], [], SAMPLE_SECONDS)[0]:
            num_bytes, num_files = look_at(self._process.pid)
            peak_bytes, peak_files = max(peak_bytes, num_bytes), max(peak_files, num_files)
        return {**self.answer(), "peak_bytes": peak_bytes, "peak_files": peak_files}

    def answer(self) -> dict[str, Any]:
        """The next line that it says."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._errors.seek(0)
            said = self._errors.read().decode(errors="replace").strip().splitlines()
            raise Absent(said[-1] if said else "it died without a word")
        answer: dict[str, Any] = json.loads(line)
        if "missing" in answer:
            raise Absent(answer["missing"])
        return answer

    def _send(self, do: str, **arguments: Any) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError):  # its answer will be missing, and says why
            self._process.stdin.write(json.dumps({"do": do, **arguments}).encode() + b"\n")
            self._process.stdin.flush()


def look_at(root: int) -> tuple[int, int]:
    """(bytes, descriptors) of a process and its descendants. Memory that they share counts once: it is the sum of their PSS."""
    num_bytes = num_files = 0
    for process in process_tree(root):
        try:
            rollup = Path(f"/proc/{process}/smaps_rollup").read_text()
            num_files += len(os.listdir(f"/proc/{process}/fd"))
        except OSError:
            continue
        num_bytes += next(int(line.split()[1]) << 10 for line in rollup.splitlines() if line.startswith("Pss:"))
    return num_bytes, num_files


@contextmanager
def started(contenders: list[Contender], name: str) -> Iterator[dict[str, Process]]:
    """The processes of those that run on a corpus."""
    with ExitStack() as stack:
        yield {one.key: stack.enter_context(Process(one)) for one in contenders if not one.corpora or name in one.corpora}


class Turns:
    """The contenders of one corpus, and what each has answered. One that is absent is not asked again; its result says why."""

    def __init__(self, name: str, processes: dict[str, Process]) -> None:
        self._name, self._alive = name, processes
        self.results: dict[str, dict[str, Any]] = {key: {"rounds": []} for key in processes}

    def each(self, what: str, work: Callable[[Process], dict[str, Any]]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
        """Let one after another work; (its result so far, its answer) of each."""
        for key, process in list(self._alive.items()):
            print(f"  {f'{self._name}: {key} {what}':60}", file=sys.stderr, end="\r", flush=True)
            try:
                answer = work(process)
            except Absent as absent:
                del self._alive[key]
                self.results[key] = {"absent": f"{what}: {absent}"}
            else:
                yield self.results[key], answer


def measure(name: str, contenders: list[Contender], options: argparse.Namespace) -> dict[str, Any]:
    """All contenders on one corpus, in turn."""
    check = pack(prepare(name, options.folder, options.check_size))
    workload = prepare(name, options.folder, options.size)
    with started(contenders, name) as processes:
        turns = Turns(name, processes)
        for result, answer in turns.each("starts", Process.answer):
            result |= answer
        for result, answer in turns.each("delivers", lambda one: one.ask("check", workload=check)):
            result |= answer
        for result, answer in turns.each("warms up", lambda one: one.ask("first", workload=pack(workload), limit=options.limit)):
            result |= answer
        for number in range(options.rounds):
            what = f"round {number + 1} of {options.rounds}"
            for result, answer in turns.each(what, lambda one: one.ask("round", least=options.least, limit=options.limit)):
                result["rounds"].append(answer)
        for result, answer in turns.each("memory", lambda one: one.watch("round", least=options.least / 2, limit=options.limit)):
            result["memory"] = answer
        for result, answer in turns.each("counts", lambda one: one.ask("stats")):
            result["stats"] = answer
    return {"records": workload.num_records, "bytes": workload.num_bytes, "contenders": turns.results}


def pack(workload: Workload) -> list[Any]:
    """A workload as JSON."""
    return [workload.name, str(workload.folder), workload.num_records]


def describe_machine() -> dict[str, Any]:
    """What the figures depend on."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    return {
        "processor": models[0].partition(": ")[2] if models else platform.processor(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "load_before": os.getloadavg()[0],
    }


def parse_arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="shardmix beside its peers: tables, JSON, and a chart.")
    parser.add_argument("--size", type=float, default=1.0, help="scales the corpora; 1 is about 2 GB in all")
    parser.add_argument("--check-size", type=float, default=0.01, help="size of the corpora whose rows are compared")
    parser.add_argument("--folder", type=Path, default=ROOT / "corpus" / "bench", help="where the corpora are kept")
    parser.add_argument("--corpora", default=",".join(RECORDS))
    parser.add_argument("--contenders", default=",".join(one.key for one in CONTENDERS))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--least", type=float, default=1.0, help="seconds of a round: whole epochs until they have passed")
    parser.add_argument("--limit", type=float, default=4.0, help="seconds after which a slow contender's epoch is cut")
    parser.add_argument("--json", type=Path, help="default: result.json in the folder")
    parser.add_argument("--chart", type=Path, help="default: result.png in the folder, where matplotlib is installed")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse_arguments(arguments)
    keys = options.contenders.split(",")
    contenders = [one for one in CONTENDERS if one.key in keys]
    result: dict[str, Any] = {
        "machine": describe_machine(),
        "settings": {"batch_size": BATCH_SIZE, "buffer_size": BUFFER_SIZE, "size": options.size, "rounds": options.rounds},
        "corpora": {name: measure(name, contenders, options) for name in options.corpora.split(",")},
    }
    json_path = options.json or options.folder / "result.json"
    json_path.write_text(json.dumps(result, indent=1) + "\n")
    print_report(result)
    chart = draw_chart(result, options.chart or options.folder / "result.png")
    print(f"\nall figures: {json_path}{f'; chart: {chart}' if chart else '; no chart: matplotlib is not installed'}")


if __name__ == "__main__":
    main()
