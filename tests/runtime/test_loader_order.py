"""The order of MixLoader's batches: the same for any workers and start method; epochs, repeat, schedule, no order."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from shardmix import MixLoader, ShardDataset
from tests.runtime.loading import (
    FEATURES,
    IDS,
    Counting,
    ParsedDataset,
    Squares,
    UnlikeDataset,
    double,
    ids_of,
    plain,
    write_corpus,
)

pytestmark = pytest.mark.usefixtures("nothing_left")

Open = Callable[..., ShardDataset]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("order") / "corpus")


@pytest.fixture
def open_corpus(pattern: str) -> Open:
    def build(**settings: Any) -> ShardDataset:
        return ShardDataset(pattern, **{"features": FEATURES, "shuffle_buffer_size": 32, **settings})

    return build


def make_datasets(pattern: str) -> dict[str, ShardDataset]:
    """Data sets of every kind of record code."""
    given: dict[str, Any] = {"shuffle_buffer_size": 32, "seed": 3}
    return {
        "decoded": ShardDataset(pattern, features=FEATURES, **given),
        "transformed": ShardDataset(pattern, features=FEATURES, transform=double, **given),
        "parsed": ParsedDataset(pattern, **given),
        "pickled": UnlikeDataset(pattern, **given),
        "in files' order": ShardDataset(pattern, features=FEATURES, shuffle=False, lanes=1, cycle_length=1),
        "a set": ShardDataset(pattern, features=FEATURES, **given).split({"a": 0.7, "b": 0.3})["a"].take(33),
    }


KINDS = ["decoded", "transformed", "parsed", "pickled", "in files' order", "a set"]


# --- Workers


def batches_of(dataset: Any, **settings: Any) -> list[Any]:
    """All batches of two epochs; samples of unlike structure as they are."""
    collate_fn = list if isinstance(dataset, UnlikeDataset) else None
    return [plain(batch) for batch in MixLoader(dataset, collate_fn=collate_fn, repeat=2, **{"batch_size": 6, **settings})]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore:num_workers=.* workers? (is|are) started")
def test_batches_are_the_same_for_any_number_of_workers(pattern: str, kind: str) -> None:
    expected = batches_of(make_datasets(pattern)[kind])
    for num_workers in (1, 2, 3, 5):
        assert batches_of(make_datasets(pattern)[kind], num_workers=num_workers) == expected
    assert batches_of(make_datasets(pattern)[kind], num_workers=3, prefetch_factor=1) == expected


@pytest.mark.parametrize("batch_size", [1, 16, 50, 200])
def test_batches_of_any_size_are_the_same_for_any_number_of_workers(pattern: str, batch_size: int) -> None:
    expected = batches_of(make_datasets(pattern)["decoded"], batch_size=batch_size)
    assert batches_of(make_datasets(pattern)["decoded"], batch_size=batch_size, num_workers=3) == expected


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.filterwarnings("ignore:num_workers=.* workers? (is|are) started")
def test_batches_are_the_same_under_every_start_method(pattern: str, method: str) -> None:
    """Persistent workers, so that each is started once; the other kinds of dataset travel by pickle alike."""
    dataset = ParsedDataset(pattern, transform=double, shuffle_buffer_size=32, with_source=True)
    plain_loader = MixLoader(dataset, batch_size=6, collate_fn=hide_worker)
    loader = MixLoader(
        dataset, batch_size=6, num_workers=2, multiprocessing_context=method, persistent_workers=True, collate_fn=hide_worker
    )
    for epoch in (2, 0):
        passes = []
        for each in (plain_loader, loader):
            dataset.set_epoch(epoch)
            passes.append([plain(batch) for batch, _ in each])
        assert passes[0] == passes[1]
    assert loader.stats()["slabs_attached"] <= 6
    del loader


def hide_worker(samples: list[Any]) -> list[Any]:
    """The samples alone: workers differ, rows must not."""
    return samples


@pytest.mark.parametrize("is_persistent", [False, True])
def test_passes_are_the_same_with_fresh_and_persistent_workers(pattern: str, is_persistent: bool) -> None:
    expected = MixLoader(make_datasets(pattern)["decoded"], batch_size=6)
    loader = MixLoader(make_datasets(pattern)["decoded"], batch_size=6, num_workers=2, persistent_workers=is_persistent)
    for stop in (3, None, 1, None, None):
        taken = [ids_of(islice(each, stop)) for each in (expected, loader)]
        assert taken[0] == taken[1]
    del loader


# --- Order


@pytest.mark.parametrize("num_workers", [0, 2])
def test_repeat_gives_epochs_in_one_pass(open_corpus: Open, num_workers: int) -> None:
    single = MixLoader(open_corpus(), batch_size=10)
    epochs = list(chain(*([plain(batch) for batch in single] for _ in range(3))))
    loader = MixLoader(open_corpus(), batch_size=10, num_workers=num_workers, repeat=3)
    assert [plain(batch) for batch in loader] == epochs
    endless = MixLoader(open_corpus(), batch_size=10, num_workers=num_workers, repeat=None)
    assert [plain(batch) for batch in islice(endless, 20)] == epochs[:20]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_each_pass_is_the_next_epoch_unless_it_is_named(open_corpus: Open, num_workers: int) -> None:
    loader = MixLoader(open_corpus(), batch_size=10, num_workers=num_workers)
    first, second = ids_of(loader), ids_of(loader)
    assert first != second
    assert sorted(first) == sorted(second) == IDS
    loader.set_epoch(0)
    assert ids_of(loader) == first


@pytest.mark.parametrize("num_workers", [1, 3])
def test_without_order_every_row_still_comes_once(open_corpus: Open, num_workers: int) -> None:
    loader = MixLoader(open_corpus(), batch_size=10, num_workers=num_workers, in_order=False, repeat=2)
    assert sorted(ids_of(loader)) == sorted(IDS * 2)
    squares = MixLoader(Squares(23), batch_size=4, num_workers=num_workers, in_order=False)
    assert sorted(number for numbers, _ in squares for number in numbers.tolist()) == list(range(23))
    counted = MixLoader(Counting(23), batch_size=4, num_workers=num_workers, in_order=False)
    assert sorted(number for numbers in counted for number in numbers.tolist()) == list(range(23))


def test_without_order_a_slow_worker_holds_nobody_up() -> None:
    """Batches of the quick worker come while the other sleeps; its own come in the end."""
    loader = MixLoader(SlowFirst(), batch_size=4, num_workers=2, in_order=False)
    workers = [set(batch.tolist()) for batch in loader]
    assert workers[:4] == [{1}] * 4
    assert sum(0 in batch for batch in workers) >= 1


class SlowFirst(IterableDataset[int]):
    """Worker 0 sleeps before each of its 4 rows, worker 1 gives 40."""

    def __iter__(self) -> Any:
        info = torch.utils.data.get_worker_info()
        worker = 0 if info is None else info.id
        for _ in range(40 if worker else 4):
            time.sleep(0 if worker else 0.2)
            yield worker


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
def test_a_schedule_names_the_lane_of_each_row(open_corpus: Open, num_workers: int) -> None:
    def two_lanes(step: int, remaining: Any) -> list[int]:
        live = [lane for lane, rows in enumerate(remaining) if rows]
        return [live[step % len(live)]] * 3 + [live[-1]] * 2

    dataset = open_corpus(with_source=True, lanes=4)
    batches = list(MixLoader(dataset, batch_size=5, num_workers=num_workers, schedule=two_lanes))
    assert [batch["source"].lane.tolist() for batch in batches[:3]] == [[0, 0, 0, 3, 3], [1, 1, 1, 3, 3], [2, 2, 2, 3, 3]]
    assert sorted(ids_of(batches)) == IDS
    in_turn = list(MixLoader(open_corpus(with_source=True, lanes=4), batch_size=5))
    for lane in range(4):
        assert ids_of_lane(batches, lane) == ids_of_lane(in_turn, lane)


def ids_of_lane(batches: Any, lane: int) -> list[int]:
    return [number for batch in batches for number in batch["id"][batch["source"].lane == lane].tolist()]


