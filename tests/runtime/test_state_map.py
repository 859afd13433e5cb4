"""The state of a loader over a map-style dataset: epoch, step, and the generator that its sampler draws from."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from itertools import chain, islice
from typing import Any

import pytest
import torch
from torch.utils.data import BatchSampler, DistributedSampler, RandomSampler, Sampler, SubsetRandomSampler, WeightedRandomSampler

from shardmix import MixLoader, StateMismatchError

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("nothing_left")]

NUM_EPOCHS = 3
ITEMS = list(range(22))
Make = Callable[[], MixLoader]


def seeded(seed: int = 3) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def batch_sampler() -> BatchSampler:
    return BatchSampler(RandomSampler(ITEMS, generator=seeded()), 4, drop_last=False)


MAKERS: dict[str, Make] = {
    "in order": lambda: MixLoader(ITEMS, 4),
    "shuffled": lambda: MixLoader(ITEMS, 4, shuffle=True),
    "shuffled, batches that divide": lambda: MixLoader(ITEMS, 11, shuffle=True),
    "shuffled, two workers": lambda: MixLoader(ITEMS, 4, shuffle=True, num_workers=2),
    "a generator": lambda: MixLoader(ITEMS, 4, shuffle=True, generator=seeded()),
    "last dropped": lambda: MixLoader(ITEMS, 4, shuffle=True, drop_last=True),
    "a sampler": lambda: MixLoader(ITEMS, 4, sampler=RandomSampler(ITEMS, replacement=True, generator=seeded())),
    "weights": lambda: MixLoader(ITEMS, 11, sampler=WeightedRandomSampler([1.0] * 22, 22, generator=seeded())),
    "a batch sampler": lambda: MixLoader(ITEMS, batch_sampler=batch_sampler()),
    "a batch sampler, two workers": lambda: MixLoader(ITEMS, batch_sampler=batch_sampler(), num_workers=2),
}


def lists(batches: Any) -> list[list[int]]:
    return [batch.tolist() for batch in batches]


def run_with_states(loader: MixLoader) -> tuple[list[list[int]], list[Any]]:
    """The batches of some epochs, and the state before each, and after all, as JSON gives it back."""
    batches, states = [], [json.loads(json.dumps(loader.state_dict()))]
    for _ in range(NUM_EPOCHS):
        for batch in loader:
            batches.append(batch.tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    return batches, states


@pytest.mark.parametrize("name", MAKERS)
def test_the_rest_is_equal_from_every_step(name: str) -> None:
    whole, states = run_with_states(MAKERS[name]())
    for step, state in enumerate(states):
        if "workers" in name and step % 5:
            continue
        torch.manual_seed(step)  # another process has other seeds
        loader = MAKERS[name]()
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        rest = list(chain.from_iterable(lists(loader) for _ in range(state["epoch"], NUM_EPOCHS)))
        assert rest == whole[step:], (step, state["epoch"], state["step"])


@pytest.mark.parametrize("num_workers", [0, 2])
def test_under_repeat_the_rest_of_the_passes_follows(num_workers: int) -> None:
    def make() -> MixLoader:
        return MixLoader(ITEMS, 4, shuffle=True, repeat=3, num_workers=num_workers)

    loader, again = make(), make()
    iterator = iter(loader)
    list(islice(iterator, 8))  # two of the second epoch
    state = loader.state_dict()
    assert (state["epoch"], state["step"], state["pass_epoch"]) == (1, 2, 0)
    again.load_state_dict(state)
    assert lists(again) == lists(iterator)


def test_epochs_differ_and_a_new_loader_draws_others() -> None:
    loader = MixLoader(ITEMS, 22, shuffle=True)
    first, second, other = lists(loader), lists(loader), lists(MixLoader(ITEMS, 22, shuffle=True))
    assert first != second != other != first
    assert sorted(first[0]) == sorted(second[0]) == ITEMS


class Rotated(Sampler[int]):
    """Begins at the epoch's number; knows no length."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        return iter(ITEMS[self.epoch :] + ITEMS[: self.epoch])


def test_a_sampler_with_epochs_is_told_the_loaded_one() -> None:
    loader = MixLoader(ITEMS, 4, sampler=Rotated())
    loader.set_epoch(5)
    iterator = iter(loader)
    next(iterator)
    again = MixLoader(ITEMS, 4, sampler=Rotated())
    again.load_state_dict(loader.state_dict())
    assert lists(again) == lists(iterator)


def test_a_sampler_of_unknown_length_ends_its_epoch_with_stop_iteration() -> None:
    loader = MixLoader(ITEMS, 4, sampler=Rotated())
    assert len(lists(loader)) == 6
    state = loader.state_dict()
    assert (state["epoch"], state["step"]) == (1, 0)


def test_a_distributed_sampler_resumes() -> None:
    def make() -> MixLoader:
        return MixLoader(ITEMS, 4, sampler=DistributedSampler(ITEMS, num_replicas=2, rank=1, shuffle=True))

    loader = make()
    loader.set_epoch(2)
    iterator = iter(loader)
    next(iterator)
    again = make()
    again.load_state_dict(loader.state_dict())
    assert lists(again) == lists(iterator)


@pytest.mark.parametrize(
    ("settings", "name"),
    [({"batch_size": 5}, "batch_size"), ({"num_workers": 2}, "num_workers"), ({"drop_last": True}, "batches")],
)
def test_what_the_batches_depend_on_is_checked(settings: dict[str, Any], name: str) -> None:
    state = MixLoader(ITEMS, 4).state_dict()
    with pytest.raises(StateMismatchError) as caught:
        MixLoader(ITEMS, **{"batch_size": 4, **settings}).load_state_dict(state)
    assert name in caught.value.differences


def test_another_number_of_items_is_told() -> None:
    with pytest.raises(StateMismatchError, match="items: state 22, here 23"):
        MixLoader([*ITEMS, 22], 4).load_state_dict(MixLoader(ITEMS, 4).state_dict())


@pytest.mark.parametrize("sampler", [RandomSampler(ITEMS), SubsetRandomSampler(ITEMS), WeightedRandomSampler([1.0] * 22, 22)])
def test_draws_from_the_global_generator_cannot_be_repeated_and_are_told(sampler: Any) -> None:
    with pytest.raises(NotImplementedError, match="global generator"):
        MixLoader(ITEMS, 4, sampler=sampler).state_dict()
