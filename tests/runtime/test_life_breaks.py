"""Passes that are broken off early: closed at once, and nothing is left."""

from __future__ import annotations

import gc
import multiprocessing
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from shardmix import MixLoader, ShardDataset
from shardmix.runtime.processes import start_helpers
from tests.runtime.leftovers import descriptors, open_since, temporary_files
from tests.runtime.loading import FEATURES, IDS, Squares, ids_of, write_corpus

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.once]

BREAKS = {"fork": 100, "spawn": 10, "forkserver": 10}


class Closes:
    """How long closing took."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    @contextmanager
    def timed(self) -> Iterator[None]:
        started = time.monotonic()
        yield
        self.seconds.append(time.monotonic() - started)

    def check(self, what: str) -> None:
        """Nobody waits: torch would wait 5 s for a worker that does not answer. A single close may meet a busy machine."""
        slowest, median = max(self.seconds), statistics.median(self.seconds)
        sys.stdout.write(f"{what}: {len(self.seconds)} closed, slowest {slowest:.3f} s, median {median:.3f} s\n")  # pytest -rP
        assert median < 1, self.seconds
        assert slowest < 5, self.seconds


@pytest.mark.parametrize("workers", ["fresh", "persistent"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_early_breaks_are_closed_at_once_and_leave_nothing(tmp_path: Path, method: str, workers: str) -> None:
    dataset = ShardDataset(write_corpus(tmp_path / "corpus"), features=FEATURES, shuffle_buffer_size=32)
    settings: Any = {"multiprocessing_context": method, "persistent_workers": workers == "persistent"}
    start_helpers(multiprocessing.get_context(method))  # Python's own, which stay
    list(dataset)  # opens the index
    before, closes = descriptors(), Closes()
    loader = MixLoader(dataset, batch_size=4, num_workers=2 if method == "fork" else 1, **settings)
    for number in range(BREAKS[method]):
        iterator = iter(loader)
        assert len(list(islice(iterator, 1 + number % 5))) == 1 + number % 5
        with closes.timed():
            if number % 2:
                iterator.close()
            del iterator
    loader.set_epoch(0)
    assert sorted(ids_of(loader)) == IDS
    with closes.timed():
        del loader
    assert not open_since(before)
    closes.check(f"{method}, {workers}")


def test_breaks_leave_no_temporary_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    loader = MixLoader(ShardDataset(write_corpus(tmp_path / "corpus"), features=FEATURES), batch_size=4, num_workers=2)
    for _ in range(3):
        next(iter(loader))
    gc.collect()
    assert temporary_files(folder) == []


class SlowLater(Squares):
    """Items from 2 on take long."""

    seconds = 0.5

    def __getitem__(self, i: int) -> Any:
        time.sleep(0 if i < 2 else self.seconds)
        return super().__getitem__(i)


class Stuck(SlowLater):
    """Longer than anybody waits."""

    seconds = 1000.0


def test_a_break_does_not_wait_for_a_slow_worker_to_give_its_rows() -> None:
    iterator = iter(MixLoader(SlowLater(1000), batch_size=2, num_workers=1))
    next(iterator)
    threading.Timer(0.3, iterator.close).start()
    assert list(iterator) == []


def test_workers_that_do_not_end_are_killed_after_one_patience_for_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """(Requests so long that a queue's thread waits for room in a pipe that nobody reads any more: it ends as well.)"""
    monkeypatch.setattr("shardmix.runtime.processes.PATIENCE_SECONDS", 0.5)
    before = descriptors()
    iterator = iter(MixLoader(Stuck(300_000), batch_size=100_000, num_workers=3))
    threading.Timer(0.5, iterator.close).start()
    assert list(iterator) == []
    del iterator
    assert not open_since(before)
