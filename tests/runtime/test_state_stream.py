"""ShardDataset in a plain DataLoader goes on from its own state: torchdata's StatefulDataLoader asks for it in every worker."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader
from torchdata.stateful_dataloader import StatefulDataLoader

from shardmix import FixedLenFeature, ShardDataset, SkipRecord, StateMismatchError

pytestmark = [
    pytest.mark.once,
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.filterwarnings("ignore:'set_vital' is deprecated"),  # torchdata calls it
]

COUNTS = [9, 0, 23, 8]  # 40 records
NUM_EPOCHS = 3
Open = Callable[..., ShardDataset]


class OddIds(ShardDataset):
    """Samples are sizes of records; every third record is a hole."""

    def parse(self, record: memoryview) -> int:
        number = sum(record)
        if number % 3 == 0:
            raise SkipRecord
        return number


@pytest.fixture
def open_corpus(make_corpus: Callable[..., str]) -> Open:
    pattern = make_corpus(COUNTS)
    features = {"id": FixedLenFeature((), "int64")}
    return lambda **settings: ShardDataset(pattern, **{"features": features, "shuffle_buffer_size": 32, **settings})


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def run_with_states(loader: StatefulDataLoader, num_epochs: int = NUM_EPOCHS) -> tuple[list[list[int]], list[Any]]:
    """The batches of some epochs, and the state before each, and after all, as JSON gives it back."""
    batches, states = [], [json.loads(json.dumps(loader.state_dict()))]
    for _ in range(num_epochs):
        for batch in loader:
            batches.append(batch["id"].tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    return batches, states


@pytest.mark.parametrize("batch_size", [3, 7])
def test_without_workers_the_rest_is_equal_from_every_step(open_corpus: Open, batch_size: int) -> None:
    whole, states = run_with_states(StatefulDataLoader(open_corpus(), batch_size))
    assert sorted(chain(*whole[: len(whole) // NUM_EPOCHS])) == sorted(chain(*whole[-(len(whole) // NUM_EPOCHS) :]))
    for step, state in enumerate(states):
        loader = StatefulDataLoader(open_corpus(), batch_size)
        loader.load_state_dict(state)
        rest: list[list[int]] = []
        while len(rest) < len(whole) - step:
            rest += ids(loader)
        assert rest == whole[step:], step


@pytest.mark.parametrize("is_persistent", [False, True])
def test_the_rest_of_the_epoch_is_equal_from_every_step_in_as_many_workers(open_corpus: Open, is_persistent: bool) -> None:
    def make() -> StatefulDataLoader:
        return StatefulDataLoader(open_corpus(), 11, num_workers=2, persistent_workers=is_persistent)

    whole, states = run_with_states(make(), num_epochs=2)
    per_epoch = len(whole) // 2
    for step, state in enumerate(states):
        loader = make()
        loader.load_state_dict(state)
        end = per_epoch if step <= per_epoch else 2 * per_epoch
        assert ids(loader) == (whole[step:end] if step < len(whole) else []), step


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_state_after_stop_iteration_is_the_next_epoch(open_corpus: Open, num_workers: int) -> None:
    loader = StatefulDataLoader(open_corpus(), 11, num_workers=num_workers)
    ids(loader)
    again = StatefulDataLoader(open_corpus(), 11, num_workers=num_workers)
    again.load_state_dict(loader.state_dict())
    assert ids(again) == ids(loader)


def test_the_epochs_after_a_load_go_on_in_every_worker(open_corpus: Open) -> None:
    loader = StatefulDataLoader(open_corpus(), 11, num_workers=2, persistent_workers=True)
    whole, states = run_with_states(loader)
    for step in (6, 1):  # in the same process, where the seed of the workers is known already
        loader.load_state_dict(states[step])
        rest = ids(loader) + ids(loader)
        assert rest == whole[step : step + len(rest)]
        assert len(rest) > len(whole) // NUM_EPOCHS


def test_the_state_reaches_workers_that_are_spawned(open_corpus: Open) -> None:
    whole, states = run_with_states(StatefulDataLoader(open_corpus(), 11, num_workers=1), num_epochs=1)
    context = multiprocessing.get_context("spawn")
    loader = StatefulDataLoader(open_corpus(), 11, num_workers=1, multiprocessing_context=context)
    loader.load_state_dict(states[2])
    assert ids(loader) == whole[2:]


def test_a_named_epoch_is_heard_though_the_workers_have_the_seed_of_an_earlier_pass(open_corpus: Open) -> None:
    dataset = open_corpus()
    orders = []
    for epoch in (0, 1, 1):
        dataset.set_epoch(epoch)
        loader = DataLoader(dataset, 11, num_workers=2, generator=torch.Generator().manual_seed(0))
        orders.append(ids(loader))
    assert orders[0] != orders[1] == orders[2]


# --- The data set by itself


def test_holes_are_passed_over_once(open_corpus: Open, make_corpus: Callable[..., str]) -> None:
    def make() -> OddIds:
        return OddIds(pattern, shuffle_buffer_size=32)

    pattern = make_corpus(COUNTS, name="holes")
    dataset = make()
    whole, states = [], [dataset.state_dict()]
    for sample in dataset:
        whole.append(sample)
        states.append(dataset.state_dict())
    assert len(whole) < 40
    for step, state in enumerate(states):
        again = make()
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert list(again) == whole[step:]
        assert again.state_dict()["rows"] >= state["rows"]


def test_naming_the_loaded_epoch_keeps_the_place_and_another_drops_it(open_corpus: Open) -> None:
    dataset = open_corpus()
    whole = [int(sample["id"]) for sample in dataset]
    dataset.set_epoch(0)
    list(islice(dataset, 10))
    state = dataset.state_dict()
    assert (state["epoch"], state["rows"]) == (0, 10)
    kept, dropped = open_corpus(), open_corpus()
    for again in (kept, dropped):
        again.load_state_dict(state)
    kept.set_epoch(0)
    dropped.set_epoch(1)
    dropped.set_epoch(0)
    assert [int(sample["id"]) for sample in kept] == whole[10:]
    assert [int(sample["id"]) for sample in dropped] == whole


def test_parts_have_places_of_their_own(open_corpus: Open) -> None:
    dataset = open_corpus()
    list(islice(dataset, 5))
    assert dataset.take(20).state_dict()["rows"] == 0
    assert dataset.state_dict()["rows"] == 5


@pytest.mark.parametrize(
    ("settings", "name"), [({"seed": 1}, "seed"), ({"lanes": 8}, "lanes"), ({"rank": 1, "world_size": 2}, "rank")]
)
def test_what_differs_is_told_with_both_sides(open_corpus: Open, settings: dict[str, Any], name: str) -> None:
    state = open_corpus().state_dict()
    with pytest.raises(StateMismatchError, match=f"{name}: state .*, here .*") as caught:
        open_corpus(**settings).load_state_dict(state)
    assert name in caught.value.differences


def test_the_place_of_one_worker_is_not_that_of_another(open_corpus: Open) -> None:
    state = open_corpus().state_dict()
    with pytest.raises(StateMismatchError, match="worker: state 1, here 0; num_workers: state 2, here 0"):
        open_corpus().load_state_dict({**state, "worker": 1, "num_workers": 2})


def test_a_place_loaded_in_the_main_process_is_not_taken_by_workers(open_corpus: Open) -> None:
    dataset = open_corpus()
    list(islice(dataset, 5))
    dataset.load_state_dict(dataset.state_dict())
    iterator: Any = iter(DataLoader(dataset, 7, num_workers=1))
    with pytest.raises(StateMismatchError, match="load it where it is used"):
        next(iterator)
    iterator._shutdown_workers()
    assert len(list(dataset)) == 35
