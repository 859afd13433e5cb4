"""Where the time of a loader goes, and what limits it: the numbers and the sentence of `MixLoader.stats()`.

Three kinds of threads work in a chain, and each waits for the one before it or for room behind it:

    workers → mixer → user

Rule 1: clocks are read per chunk and per batch, and per record only around the user's own code, so they are always on.
Rule 2: the time to the first batch of a pass is counted apart: what limits a long run is not how it begins.
Rule 3: the sentence names the last in the chain that hardly waits, and what is to be changed there.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

T = TypeVar("T")

SELDOM = 0.1  # of the time: who waits less than this is what the others wait for
LOPSIDED = 1.5  # the busiest worker against their mean: one of them holds up the others

_READ, _DECODE, _USER = "read", "decode", "user"


class Spent(NamedTuple):
    """What an answer cost its worker, in seconds."""

    read: float = 0.0  # from the files into memory, with the check of every byte and the shuffling
    decode: float = 0.0  # payloads to columns, samples to columns
    user: float = 0.0  # in parse, parse_batch and transform; in the user's own dataset
    waiting: float = 0.0  # since the answer before


NOTHING_SPENT = Spent()


@dataclass
class WorkerTimes:
    """Seconds of one worker so far."""

    read: float = 0.0
    decode: float = 0.0
    user: float = 0.0
    other: float = 0.0  # the rest of the time that it worked
    waiting: float = 0.0  # for work, and for a place for its answers

    @property
    def working(self) -> float:
        """Seconds at work of any kind."""
        return self.read + self.decode + self.user + self.other

    def add(self, spent: Spent, seconds: float) -> None:
        """Take in one answer that took `seconds`."""
        self.read += spent.read
        self.decode += spent.decode
        self.user += spent.user
        self.other += max(0.0, seconds - spent.read - spent.decode - spent.user)
        self.waiting += spent.waiting


@dataclass
class Counts:
    """What a loader has delivered and met so far, over all passes; what `MixLoader.stats()` shows."""

    batches: int = 0
    rows: int = 0
    bytes: int = 0
    holes: int = 0
    pads: int = 0
    damages: int = 0
    messages: int = 0
    slabs_attached: int = 0
    seconds_starting: float = 0.0  # the user waited for the first batch of a pass
    seconds_waiting: float = 0.0  # the user waited for a later batch
    seconds_user: float = 0.0  # between two batches: the user's own code
    seconds_mixing: float = 0.0  # the mixer put batches together
    seconds_mixer_waiting: float = 0.0  # the mixer waited for workers
    workers: dict[int, WorkerTimes] = field(default_factory=dict)


class UserClock:
    """Times the user's thread: waiting for batches, and in between."""

    def __init__(self, counts: Counts) -> None:
        self._counts = counts
        self._given: float | None = None  # when the user got the last batch
        self._asked = 0.0

    def ask(self) -> None:
        """The user asks for a batch."""
        self._asked = time.perf_counter()
        if self._given is not None:
            self._counts.seconds_user += self._asked - self._given

    def give(self) -> None:
        """The user gets it."""
        now = time.perf_counter()
        if self._given is None:
            self._counts.seconds_starting += now - self._asked
        else:
            self._counts.seconds_waiting += now - self._asked
        self._given = now


def time_mixing(batches: Iterator[T], counts: Counts) -> Iterator[T]:
    """The batches; what passes in here less the waiting for workers is the mixer's own work."""
    while True:
        began = time.perf_counter() - counts.seconds_mixer_waiting
        batch = next(batches, None)
        counts.seconds_mixing += time.perf_counter() - counts.seconds_mixer_waiting - began
        if batch is None:
            return
        yield batch


def describe_limit(counts: Counts, num_workers: int, num_cores: int | None = None) -> str:
    """One sentence: what limits, and what to change.

        describe_limit(loader_counts, num_workers=2)     # 'your code limits: batches are ready 98% of the time'

    num_cores: that this process may use; None asks the system.
    """
    cores = num_cores if num_cores is not None else count_cores()
    total = counts.seconds_waiting + counts.seconds_user
    if counts.batches < 2 or total <= 0:
        return "too few batches so far to tell what limits"
    if counts.seconds_waiting < SELDOM * total:
        busy = 1 - counts.seconds_waiting / total
        return f"your code between batches limits: it takes {busy:.0%} of the time; a faster loader would not help"
    if num_workers == 0:
        return _describe_process(counts, cores)
    mixer = counts.seconds_mixing + counts.seconds_mixer_waiting
    if mixer > 0 and counts.seconds_mixer_waiting < SELDOM * mixer:
        return (
            f"the main process limits: it puts batches together {counts.seconds_mixing / mixer:.0%} of the time; declare fewer "
            "features, RawFeature or FixedLenFeature instead of bytes, a cheaper collate_fn, or larger batches"
        )
    return _describe_workers(counts, num_workers, cores)


def _describe_process(counts: Counts, cores: int) -> str:
    """num_workers=0: who waits for a batch is who makes it, or waits for the threads that do."""
    if counts.seconds_mixing > sum(worker.working for worker in counts.workers.values()):
        return "this process limits: most of its work is to put batches together; declare fewer features, or a cheaper collate_fn"
    kind, share = _largest(counts.workers)
    more = f"set num_workers, up to {cores}; " if cores > 1 else ""
    return f"this process limits: {share:.0%} of making batches is to {_WORK[kind]}; {more}{_REMEDIES[kind]}"


def _describe_workers(counts: Counts, num_workers: int, cores: int) -> str:
    """The mixer waits for workers: all of them, one of them, or none that is busy."""
    busy = {number: worker.working for number, worker in counts.workers.items()}
    mean = sum(busy.values()) / len(busy) if busy else 0.0
    most = max(busy, key=lambda number: busy[number], default=0)
    idle = sum(worker.waiting for worker in counts.workers.values()) / max(1e-9, sum(busy.values()))
    kind, share = _largest(counts.workers)
    if len(busy) > 1 and busy[most] > LOPSIDED * mean:
        return (
            f"worker {most} limits: it works {busy[most] / mean:.1f} times as long as they do on average, and every batch waits "
            f"for it; choose lanes that num_workers={num_workers} divides"
        )
    if idle > 1:
        return (
            f"neither limits: workers wait {idle / (1 + idle):.0%} of their time and batches are late all the same; "
            f"raise prefetch_factor, or look for other work on the {cores} cores"
        )
    more = f"raise num_workers above {num_workers} (there are {cores} cores), or " if num_workers < cores else ""
    return f"the workers limit: {share:.0%} of their work is to {_WORK[kind]}; {more}{_REMEDIES[kind]}"


_WORK = {_READ: "read", _DECODE: "decode", _USER: "run your own code"}
_REMEDIES = {
    _READ: "see whether the storage is as fast as it should be; a larger block_length reads longer pieces",
    _DECODE: "declare only the features that you use, and RawFeature for arrays",
    _USER: "make parse or transform cheaper: parse_batch works on many records at once, RawFeature needs no parser",
}


def _largest(workers: Mapping[int, WorkerTimes]) -> tuple[str, float]:
    """The kind of work that takes most of the workers' time, and its share."""
    sums = {
        _READ: sum(worker.read for worker in workers.values()),
        _DECODE: sum(worker.decode for worker in workers.values()),
        _USER: sum(worker.user for worker in workers.values()),
    }
    kind = max(sums, key=lambda one: sums[one])
    return kind, sums[kind] / max(1e-9, sum(worker.working for worker in workers.values()))


def count_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
