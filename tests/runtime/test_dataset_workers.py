"""ShardDataset in a plain DataLoader: nothing lost or repeated for any number of workers, epochs that all workers agree on."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader

from shardmix import FixedLenFeature, ShardDataset
from shardmix.runtime.epochs import SharedEpoch
from shardmix.runtime.ranks import World

UNEVEN = [7, 0, 101, 40, 23]
IDS = [shard * 1000 + record for shard, count in enumerate(UNEVEN) for record in range(count)]

pytestmark = pytest.mark.usefixtures("nothing_left")

Open = Callable[..., ShardDataset]


@pytest.fixture
def open_uneven(golden_dir: Path, tmp_path: Path) -> Open:
    """The golden uneven shards, 171 records."""

    def build(**settings: Any) -> ShardDataset:
        given = {"features": {"id": FixedLenFeature((), "int64")}, "index": "cache", "cache_dir": tmp_path / "index", **settings}
        return ShardDataset(str(golden_dir / "uneven-*"), **given)

    return build


def batches_of(loader: DataLoader[Any]) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def ids_of(loader: DataLoader[Any]) -> list[int]:
    return sum(batches_of(loader), [])


@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("num_workers", [0, 1, 2, 3, 8])
def test_every_record_comes_once(open_uneven: Open, num_workers: int, world_size: int) -> None:
    found: list[int] = []
    for rank in range(world_size):
        dataset = open_uneven(rank=rank, world_size=world_size)
        found += ids_of(DataLoader(dataset, batch_size=10, num_workers=num_workers, multiprocessing_context=_fork(num_workers)))
    assert sorted(found) == IDS


def test_workers_beyond_the_lanes_have_nothing_to_do(open_uneven: Open) -> None:
    dataset = open_uneven(lanes=2, with_source=True)
    loader = DataLoader(dataset, batch_size=None, num_workers=5, multiprocessing_context="fork")
    samples = list(loader)
    assert sorted(int(sample["id"]) for sample in samples) == IDS
    assert {int(sample["source"].worker) for sample in samples} == {0, 1}


def test_batches_hold_the_source_of_each_row(open_uneven: Open) -> None:
    loader = DataLoader(open_uneven(with_source=True), batch_size=32, num_workers=2, multiprocessing_context="fork")
    for batch in loader:
        source = batch["source"]
        assert torch.equal(source.shard * 1000 + source.record, batch["id"])
        assert not source.is_pad.any()


@pytest.mark.parametrize("is_persistent", [False, True])
def test_passes_are_epochs_in_every_worker(open_uneven: Open, is_persistent: bool) -> None:
    dataset = open_uneven()
    loader = DataLoader(dataset, batch_size=7, num_workers=2, persistent_workers=is_persistent, multiprocessing_context="fork")
    epochs = [batches_of(loader) for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    for epoch in (2, 0, 1):
        expected = open_uneven()
        expected.set_epoch(epoch)
        once = DataLoader(expected, batch_size=7, num_workers=2, multiprocessing_context="fork")
        assert epochs[epoch] == batches_of(once)
        dataset.set_epoch(epoch)
        assert epochs[epoch] == batches_of(loader)
    del loader


@pytest.mark.parametrize("is_persistent", [False, True])
def test_an_early_break_is_a_pass(open_uneven: Open, is_persistent: bool) -> None:
    dataset = open_uneven()
    loader = DataLoader(dataset, batch_size=7, num_workers=2, persistent_workers=is_persistent, multiprocessing_context="fork")
    for _ in loader:
        break
    second = batches_of(loader)
    dataset.set_epoch(1)
    assert batches_of(loader) == second
    del loader


def test_two_loaders_at_a_time_are_two_passes(open_uneven: Open) -> None:
    dataset = open_uneven(with_source=True)
    loaders = [DataLoader(dataset, batch_size=7, num_workers=2, multiprocessing_context="fork") for _ in range(2)]
    pairs = list(zip(*loaders, strict=True))
    for batches in zip(*pairs, strict=True):
        assert sorted(number for batch in batches for number in batch["id"].tolist()) == IDS
        assert len({int(epoch) for batch in batches for epoch in batch["source"].epoch}) == 1


def double(sample: Any) -> Any:
    return {"id": sample["id"] * 2}


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_started_workers_are_told_epoch_schema_and_ranks(open_uneven: Open, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset, expected = open_uneven(features=None, transform=double), open_uneven(rank=1, world_size=2)
    expected.set_epoch(5)
    dataset.set_epoch(5)
    # as a process group would tell, which started workers know nothing of
    monkeypatch.setattr("shardmix.runtime.dataset.resolve_world", lambda *_: World(1, 2))
    loader = DataLoader(dataset, batch_size=5, num_workers=2, multiprocessing_context=method, persistent_workers=True)
    first = ids_of(loader)
    assert sorted(first) == sorted(int(sample["id"]) * 2 for sample in expected)
    assert first != ids_of(loader)
    dataset.set_epoch(5)
    assert ids_of(loader) == first
    del loader


@pytest.mark.filterwarnings("ignore:Got pickle error:UserWarning")  # torch's own; then it raises what was raised
def test_a_lambda_on_its_way_to_a_spawned_worker_says_what_to_do(open_uneven: Open) -> None:
    dataset = open_uneven(transform=lambda sample: sample)
    with pytest.raises(pickle.PicklingError, match="transform <function .* define it as a function at the top of a module"):
        next(iter(DataLoader(dataset, num_workers=1, multiprocessing_context="spawn")))


def test_an_error_in_a_worker_names_the_record(open_uneven: Open) -> None:
    loader = DataLoader(open_uneven(transform=fail), num_workers=2, multiprocessing_context="fork")
    with pytest.raises(Exception, match=r"uneven-0000\d-of-00005 record \d+ at byte \d+: fail raised ZeroDivisionError"):
        list(loader)


def fail(sample: Any) -> Any:
    return 1 // 0


def _fork(num_workers: int) -> str | None:
    return "fork" if num_workers else None


# --- The counter of passes


def test_workers_of_one_pass_agree_whatever_comes_between() -> None:
    """Two loaders of two workers each; each worker is a process with a copy of its own."""
    shared = SharedEpoch()
    assert [shared.begin_pass(None), shared.begin_pass(None)] == [0, 1]
    answers = [_in_child(shared, seed) for seed in (7, 8, 7, 8)]
    assert answers == [2, 3, 2, 3]
    assert shared.next_epoch == 4


def test_a_worker_that_lives_on_begins_the_next_pass_under_the_same_seed() -> None:
    shared = SharedEpoch(10)
    assert [shared.begin_pass(7), shared.begin_pass(7)] == [10, 11]
    shared.set(3)
    assert [shared.begin_pass(7), _in_child(shared, 7)] == [3, 4]


def test_many_processes_at_once_agree() -> None:
    shared = SharedEpoch()
    pipes = [_start_child(shared, seed) for seed in range(10) for _ in range(4)]
    answers = [_finish_child(*pipe) for pipe in pipes]
    assert sorted(set(answers)) == list(range(10))
    assert [len(set(answers[4 * seed : 4 * seed + 4])) for seed in range(10)] == [1] * 10


def test_pickled_it_is_a_copy() -> None:
    shared = SharedEpoch(5)
    twin = pickle.loads(pickle.dumps(shared))
    twin.set(9)
    assert (shared.next_epoch, twin.next_epoch) == (5, 9)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="the platform does not list descriptors")
def test_it_leaves_no_descriptor() -> None:
    before = len(os.listdir("/proc/self/fd"))
    counters = [SharedEpoch() for _ in range(10)]
    assert len(os.listdir("/proc/self/fd")) > before
    del counters
    assert len(os.listdir("/proc/self/fd")) == before


def _in_child(shared: SharedEpoch, seed: int) -> int:
    return _finish_child(*_start_child(shared, seed))


def _start_child(shared: SharedEpoch, seed: int) -> tuple[int, int]:
    """A forked process that begins a pass; (its id, where its answer comes)."""
    answer, given = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.write(given, bytes([shared.begin_pass(seed)]))
        os._exit(0)
    os.close(given)
    return pid, answer


def _finish_child(pid: int, answer: int) -> int:
    (epoch,) = os.read(answer, 1)
    os.close(answer)
    os.waitpid(pid, 0)
    return epoch
