"""Where the time goes, and the sentence about it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from torch.utils.data import Dataset

from shardmix import MixLoader, ShardDataset, ShardWriter
from shardmix.runtime.limits import Counts, Spent, UserClock, WorkerTimes, describe_limit, time_mixing


class Texts(ShardDataset):
    """Records as text."""

    def parse(self, record: memoryview) -> str:
        return str(record, "ascii")


class Numbers(Dataset[int]):
    """The numbers below 40."""

    def __len__(self) -> int:
        return 40

    def __getitem__(self, i: int) -> int:
        return i


def shards(folder: Path, examples: bool) -> str:
    with ShardWriter(folder / "t-{:05d}.tfrecord", num_shards=3) as writer:
        for i in range(60):
            writer.write({"id": i} if examples else str(i).encode())
    return str(folder / "t-*.tfrecord")


def counts(waiting: float, user: float, mixing: float = 0.0, mixer_waiting: float = 10.0, **workers: Any) -> Counts:
    """Counts of a run; each worker as (read, decode, user, waiting)."""
    found = Counts(batches=100, seconds_waiting=waiting, seconds_user=user)
    found.seconds_mixing, found.seconds_mixer_waiting = mixing, mixer_waiting
    for number, (read, decode, own, idle) in enumerate(workers.values()):
        found.workers[number] = WorkerTimes(read, decode, own, 0.0, idle)
    return found


@pytest.mark.parametrize(
    ("seen", "num_workers", "sentence"),
    [
        (Counts(batches=1), 2, "too few batches so far"),
        (counts(0.5, 9.5), 2, "your code between batches limits: it takes 95% of the time"),
        (counts(9, 1, mixing=9.5, mixer_waiting=0.5, a=(1, 1, 0, 8)), 1, "the main process limits: it puts batches together 95%"),
        (counts(9, 1, a=(8, 1, 1, 0), b=(8, 1, 1, 0)), 2, "the workers limit: 80% of their work is to read; raise num_workers"),
        (counts(9, 1, a=(1, 8, 1, 0), b=(1, 8, 1, 0)), 2, "the workers limit: 80% of their work is to decode"),
        (counts(9, 1, a=(1, 1, 8, 0), b=(1, 1, 8, 0)), 2, "the workers limit: 80% of their work is to run your own code"),
        (counts(9, 1, a=(9, 0, 0, 0), b=(1, 0, 0, 8), c=(1, 0, 0, 8)), 3, "worker 0 limits: it works 2.5 times as long"),
        (counts(9, 1, a=(1, 0, 0, 9), b=(1, 0, 0, 9)), 2, "neither limits: workers wait 90% of their time"),
        (counts(9, 1, mixing=1, a=(1, 8, 0, 0)), 0, "this process limits: 89% of making batches is to decode; set num_workers"),
        (counts(9, 1, mixing=9, a=(1, 1, 0, 0)), 0, "this process limits: most of its work is to put batches together"),
    ],
)
def test_names_who_hardly_waits(seen: Counts, num_workers: int, sentence: str) -> None:
    assert describe_limit(seen, num_workers, num_cores=4).startswith(sentence)


def test_does_not_advise_more_workers_than_cores() -> None:
    assert "num_workers" not in describe_limit(counts(9, 1, a=(8, 1, 1, 0), b=(8, 1, 1, 0)), 2, num_cores=2)


def test_adds_up_the_answers_of_a_worker() -> None:
    times = WorkerTimes()
    times.add(Spent(read=1, decode=2, user=3, waiting=4), seconds=7)
    times.add(Spent(read=1), seconds=1)
    assert times == WorkerTimes(read=2, decode=2, user=3, other=1, waiting=4)
    assert times.working == 8


def test_tells_the_first_batch_from_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 5.0, 6.0, 8.0, 11.0])
    monkeypatch.setattr("shardmix.runtime.limits.time.perf_counter", lambda: next(now))
    seen = Counts()
    clock = UserClock(seen)
    clock.ask()  # at 0
    clock.give()  # at 5: the first batch took 5
    clock.ask()  # at 6: the user took 1
    clock.give()  # at 8: the second took 2
    clock.ask()  # at 11: the user took 3
    assert (seen.seconds_starting, seen.seconds_waiting, seen.seconds_user) == (5, 2, 4)


def test_leaves_the_waiting_out_of_the_mixing(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([0.0, 5.0, 5.0, 6.0])
    monkeypatch.setattr("shardmix.runtime.limits.time.perf_counter", lambda: next(now))
    seen = Counts()

    def make() -> Any:
        seen.seconds_mixer_waiting += 3
        yield "a batch"

    assert list(time_mixing(make(), seen)) == ["a batch"]
    assert seen.seconds_mixing == 3  # 5 less 3, and 1 for the end


@pytest.mark.parametrize("num_workers", [0, 2])
def test_times_every_kind_of_work(tmp_path: Path, num_workers: int) -> None:
    loader = MixLoader(ShardDataset(shards(tmp_path, examples=True)), 4, num_workers=num_workers)
    assert sum(len(batch["id"]) for batch in loader) == 60
    stats = loader.stats()
    assert (stats["batches"], stats["rows"]) == (15, 60)
    assert stats["seconds_starting"] > 0
    assert stats["seconds_mixing"] > 0
    assert stats["limit"]
    for worker in stats["workers"].values():
        assert worker["read"] > 0
        assert worker["decode"] > 0
        assert worker["user"] == 0


def test_tells_the_users_own_code(tmp_path: Path) -> None:
    loader = MixLoader(Texts(shards(tmp_path, examples=False)), 4)
    assert sum(map(len, loader)) == 60
    assert all(worker["user"] > 0 for worker in loader.stats()["workers"].values())


def test_times_any_dataset() -> None:
    loader = MixLoader(Numbers(), 4, num_workers=2)
    assert sum(map(len, loader)) == 40
    assert set(loader.stats()["workers"]) == {0, 1}
    assert all(worker["user"] > 0 for worker in loader.stats()["workers"].values())
