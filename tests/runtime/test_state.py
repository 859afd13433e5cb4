"""The state of a loader: what it holds, at every moment, and what it refuses. (From every step: tests/laws/test_resume.py.)"""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Callable, Iterator
from itertools import chain, islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset

from shardmix import FixedLenFeature, MixLoader, ShardDataset, StateMismatchError

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("nothing_left")]

COUNTS = [9, 0, 23, 8]  # 40 records
FEATURES = {"id": FixedLenFeature((), "int64")}
Open = Callable[..., ShardDataset]


@pytest.fixture
def open_corpus(make_corpus: Callable[..., str]) -> Open:
    pattern = make_corpus(COUNTS)
    return lambda **settings: ShardDataset(pattern, **{"features": FEATURES, "shuffle_buffer_size": 32, **settings})


def ids(loader: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


def epochs(loader: MixLoader, *numbers: int) -> list[list[int]]:
    """The batches of some whole epochs of the loader's data set."""
    return list(chain.from_iterable(ids(_in_epoch(loader, number)) for number in numbers))


def _in_epoch(loader: MixLoader, epoch: int) -> MixLoader:
    again = MixLoader(loader.dataset, loader.batch_size, drop_last=loader.drop_last)
    again.set_epoch(epoch)
    return again


def fresh(dataset: ShardDataset, state: dict[str, Any], **settings: Any) -> MixLoader:
    """A loader that has loaded a state."""
    loader = MixLoader(dataset, **{"batch_size": 16, **settings})
    loader.load_state_dict(state)
    return loader


# --- What it is


def test_it_is_plain_small_and_read_by_json_and_torch(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), batch_size=16)
    next(iter(loader))
    state = loader.state_dict()
    assert (state["epoch"], state["rows"]) == (0, 16)
    assert json.loads(json.dumps(state)) == state
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    assert torch.load(file, weights_only=True) == state
    assert len(json.dumps(state)) < 1000 + len(state["digest"])


def test_it_does_not_grow_with_buffer_and_corpus(open_corpus: Open, make_corpus: Callable[..., str]) -> None:
    many = ShardDataset(make_corpus([5] * 60, name="many"), features=FEATURES, shuffle_buffer_size=4096)
    sizes = [len(json.dumps(MixLoader(dataset, 16).state_dict())) for dataset in (open_corpus(), many)]
    assert abs(sizes[0] - sizes[1]) < 10  # digits


# --- Every moment


def test_before_the_first_batch_it_is_the_beginning(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    iterator = iter(loader)  # a pass begins with its first batch
    state = loader.state_dict()
    assert (state["epoch"], state["rows"]) == (0, 0)
    assert ids(iterator) == ids(fresh(open_corpus(), state))


@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("num_workers", [0, 2])
def test_at_the_end_it_is_the_next_epoch_before_and_after_stop_iteration(
    open_corpus: Open, num_workers: int, drop_last: bool
) -> None:
    loader = MixLoader(open_corpus(), 16, num_workers=num_workers, drop_last=drop_last)
    iterator = iter(loader)
    list(islice(iterator, len(loader)))
    before = loader.state_dict()
    assert next(iterator, None) is None
    assert before == loader.state_dict()
    assert (before["epoch"], before["rows"]) == (1, 0)
    assert ids(fresh(open_corpus(), before, drop_last=drop_last)) == epochs(loader, 1)


def test_right_after_a_load_it_is_what_was_loaded(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    next(iter(loader))
    state = loader.state_dict()
    again = fresh(open_corpus(), state, num_workers=1)
    assert again.state_dict() == state
    iter(again)
    assert again.state_dict() == state


@pytest.mark.parametrize("num_workers", [0, 2])
def test_what_was_mixed_ahead_does_not_count(open_corpus: Open, num_workers: int) -> None:
    loader = MixLoader(open_corpus(), 4, num_workers=num_workers)
    seen = ids(islice(iter(loader), 3))
    state = loader.state_dict()
    assert state["rows"] == 12
    assert seen + ids(fresh(open_corpus(), state, batch_size=4)) == epochs(loader, 0)


def test_a_load_is_for_one_pass_then_epochs_go_on(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    loader.set_epoch(5)
    next(iter(loader))
    again = fresh(open_corpus(), loader.state_dict())
    assert ids(again) == epochs(loader, 5)[1:]
    assert ids(again) == epochs(loader, 6)
    assert ids(again) == epochs(loader, 7)


def test_after_an_early_break_it_is_the_place_of_the_break(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    for _ in loader:
        break
    state = loader.state_dict()
    assert ids(loader) == epochs(loader, 1)
    assert ids(fresh(open_corpus(), state)) == epochs(loader, 0)[1:]


def test_persistent_workers_load_as_often_as_asked(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16, num_workers=2, persistent_workers=True)
    states = [loader.state_dict()]
    for _ in loader:
        states.append(loader.state_dict())
    for step in (2, 0, 1):
        loader.load_state_dict(states[step])
        assert ids(loader) == epochs(loader, 0)[step:]
        assert ids(loader) == epochs(loader, 1)


def test_naming_the_loaded_epoch_keeps_the_place_and_another_drops_it(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    next(iter(loader))
    state = loader.state_dict()
    kept, dropped = fresh(open_corpus(), state), fresh(open_corpus(), state)
    kept.set_epoch(0)
    assert kept.state_dict() == state
    assert ids(kept) == epochs(loader, 0)[1:]
    dropped.set_epoch(3)
    dropped.set_epoch(0)
    assert dropped.state_dict()["rows"] == 0
    assert ids(dropped) == epochs(loader, 0)


def test_another_loader_of_the_data_set_does_not_drop_a_loaded_place(open_corpus: Open) -> None:
    dataset = open_corpus()
    loader = MixLoader(dataset, 16)
    next(iter(loader))
    state = loader.state_dict()
    loader.load_state_dict(state)
    list(MixLoader(dataset, 16))
    assert loader.state_dict() == state
    assert ids(loader) == epochs(loader, 0)[1:]


def test_of_two_live_passes_the_one_that_began_last_counts(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    first, second = iter(loader), iter(loader)
    next(first)
    next(second)
    next(first)
    state = loader.state_dict()
    assert (state["epoch"], state["rows"]) == (1, 16)


def test_a_pass_that_cannot_begin_loses_no_place(open_corpus: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    loader = MixLoader(open_corpus(), 16)
    next(iter(loader))
    again = fresh(open_corpus(), loader.state_dict())
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(ValueError, match="world_size is missing"):
        next(iter(again))
    monkeypatch.delenv("RANK")
    assert ids(again) == epochs(loader, 0)[1:]


# --- Under repeat


@pytest.mark.parametrize("num_workers", [0, 2])
def test_under_repeat_the_rest_of_the_passes_follows(open_corpus: Open, num_workers: int) -> None:
    loader = MixLoader(open_corpus(), 16, repeat=3, num_workers=num_workers)
    whole, states = [], []
    for batch in loader:
        whole.append(batch["id"].tolist())
        states.append(loader.state_dict())
    assert whole == epochs(loader, 0, 1, 2)
    for step, state in enumerate(states[:-1], 1):
        again = fresh(open_corpus(), state, repeat=3)
        assert ids(again) == whole[step:]
        assert again.state_dict()["epoch"] == 3
    assert ids(fresh(open_corpus(), states[-1], repeat=3)) == epochs(loader, 3, 4, 5)


def test_an_endless_run_goes_on(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16, repeat=None)
    iterator = iter(loader)
    list(islice(iterator, 4))
    again = fresh(open_corpus(), loader.state_dict(), repeat=None)
    assert ids(islice(iter(again), 6)) == ids(islice(iterator, 6))


# --- What may differ


def test_another_batch_size_goes_on_at_the_same_row(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), 16)
    next(iter(loader))
    again = fresh(open_corpus(), loader.state_dict(), batch_size=20)
    assert [len(batch) for batch in ids(again)] == [20, 4]
    again = fresh(open_corpus(), loader.state_dict(), batch_size=20)
    assert list(chain(*ids(again))) == list(chain(*epochs(loader, 0)))[16:]


def test_lanes_of_the_state_are_adopted_where_none_are_given(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(lanes=8), 16)
    next(iter(loader))
    again = fresh(open_corpus(), loader.state_dict())
    assert len(again) == 3
    assert ids(again) == epochs(loader, 0)[1:]
    assert ids(again) == epochs(loader, 1)


def test_a_corpus_that_moved_resumes(open_corpus: Open, tmp_path: Path) -> None:
    loader = MixLoader(open_corpus(), 16)
    next(iter(loader))
    moved = tmp_path / "elsewhere"
    shutil.copytree(tmp_path / "corpus", moved, copy_function=shutil.copyfile)  # other times
    dataset = ShardDataset(str(moved / "*.tfrecord"), features=FEATURES, shuffle_buffer_size=32)
    assert ids(fresh(dataset, loader.state_dict())) == epochs(loader, 0)[1:]


def test_sets_and_takes_resume(open_corpus: Open) -> None:
    def train() -> ShardDataset:
        return open_corpus().split({"train": 0.9, "valid": 0.1}, seed=1)["train"].take(35)

    loader = MixLoader(train(), 16)
    next(iter(loader))
    state = json.loads(json.dumps(loader.state_dict()))
    assert ids(fresh(train(), state)) == epochs(loader, 0)[1:]


def test_a_state_outlives_its_process_group(open_corpus: Open, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    loader = MixLoader(open_corpus(), 16)
    iterator = iter(loader)
    next(iterator)
    monkeypatch.delenv("RANK")
    monkeypatch.delenv("WORLD_SIZE")
    assert loader.state_dict()["rows"] == 32
    next(iterator)
    assert loader.state_dict()["epoch"] == 1


def test_a_rank_without_batches_ends_its_epoch_too(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(rank=1, world_size=2).take(1), 16, uneven="allow")
    assert len(loader) == 0
    assert ids(loader) == []
    assert loader.state_dict()["epoch"] == 1


# --- What may not


@pytest.mark.parametrize(
    ("settings", "name", "saved", "own"),
    [
        ({"seed": 7}, "seed", 0, 7),
        ({"shuffle": False}, "shuffle", True, False),
        ({"lanes": 8}, "lanes", 16, 8),
        ({"shuffle_buffer_size": 64}, "lane_buffer", 2, 4),
        ({"cycle_length": 2}, "cycle_length", 4, 2),
        ({"block_length": 3}, "block_length", 1, 3),
    ],
)
def test_a_setting_that_differs_is_named_with_both_sides(
    open_corpus: Open, settings: dict[str, Any], name: str, saved: Any, own: Any
) -> None:
    state = MixLoader(open_corpus(lanes=16), 16).state_dict()
    loader = MixLoader(open_corpus(**{"lanes": 16, **settings}), 16)
    with pytest.raises(StateMismatchError, match=f"state {saved}, here {own}") as caught:
        loader.load_state_dict(state)
    assert caught.value.differences[name] == (saved, own)


@pytest.mark.parametrize(
    ("derive", "name"),
    [
        (lambda dataset: dataset.take(20), "take"),
        (lambda dataset: dataset.split({"a": 0.5, "b": 0.5})["a"], "split"),
        (lambda dataset: dataset.split({"all": 1.0})["all"], "split"),
    ],
)
def test_a_part_of_the_corpus_is_another_order(open_corpus: Open, derive: Callable[..., ShardDataset], name: str) -> None:
    state = MixLoader(open_corpus(), 16).state_dict()
    with pytest.raises(StateMismatchError) as caught:
        fresh(derive(open_corpus()), state)
    assert name in caught.value.differences


def test_two_splits_of_another_seed_differ(open_corpus: Open) -> None:
    first, second = (open_corpus().split({"a": 0.5, "b": 0.5}, seed=seed)["a"] for seed in (0, 1))
    with pytest.raises(StateMismatchError, match="split"):
        fresh(second, MixLoader(first, 16).state_dict())


def test_another_corpus_differs_in_its_digest(open_corpus: Open, make_corpus: Callable[..., str]) -> None:
    other = ShardDataset(make_corpus([9, 1, 22, 8], name="other"), features=FEATURES, shuffle_buffer_size=32)
    with pytest.raises(StateMismatchError, match="digest of the names, counts and compression") as caught:
        fresh(other, MixLoader(open_corpus(), 16).state_dict())
    assert set(caught.value.differences) == {"digest"}


def test_a_small_batch_size_is_part_of_the_order(open_corpus: Open) -> None:
    state = MixLoader(open_corpus(), 4).state_dict()
    assert len(ids(fresh(open_corpus(), state, batch_size=4))) == 10
    with pytest.raises(StateMismatchError, match="batch_size · world_size.*: state 4, here 8"):
        fresh(open_corpus(), state, batch_size=8)
    with pytest.raises(StateMismatchError, match="state 4, here 16 or more"):
        fresh(open_corpus(), state, batch_size=16)


def test_ranks_that_cannot_share_the_lanes_of_the_state_are_told(open_corpus: Open) -> None:
    state = MixLoader(open_corpus(), 16).state_dict()
    with pytest.raises(StateMismatchError, match="16 lanes cannot be shared equally by the 3 ranks"):
        fresh(open_corpus(rank=0, world_size=3), state)


@pytest.mark.parametrize("state", [{}, {"version": 0}, {"version": 99, "epoch": 0}])
def test_another_version_is_refused(open_corpus: Open, state: dict[str, Any]) -> None:
    with pytest.raises(StateMismatchError, match="this release reads version 1"):
        fresh(open_corpus(), state)


def test_a_whole_checkpoint_is_told_from_the_state_of_a_loader(open_corpus: Open) -> None:
    with pytest.raises(StateMismatchError, match="holds 'version', this holds 'model', 'loader'; .* the loader's own part"):
        fresh(open_corpus(), {"model": {}, "loader": MixLoader(open_corpus(), 16).state_dict()})


def test_a_state_of_another_kind_is_refused(open_corpus: Open) -> None:
    with pytest.raises(StateMismatchError, match="kind: state 'map', here 'shards'"):
        fresh(open_corpus(), MixLoader([1, 2, 3], 2).state_dict())
    with pytest.raises(StateMismatchError, match="kind: state 'shards', here 'stream'"):
        open_corpus().load_state_dict(MixLoader(open_corpus(), 16).state_dict())


class Numbers(IterableDataset[int]):
    """Three numbers."""

    def __iter__(self) -> Iterator[int]:
        return iter([1, 2, 3])


def first_lanes(step: int, remaining: Any) -> list[int]:
    return [0] * 16


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda dataset: MixLoader(dataset, 16, schedule=first_lanes), "schedule"),
        (lambda dataset: MixLoader(dataset, 16, num_workers=2, in_order=False), "in_order=False"),
        (lambda dataset: MixLoader(Numbers(), 2), "iterable dataset"),
    ],
)
def test_without_a_known_order_there_is_no_state_and_the_reason_is_told(
    open_corpus: Open, make: Callable[..., MixLoader], reason: str
) -> None:
    loader = make(open_corpus())
    with pytest.raises(NotImplementedError, match=reason):
        loader.state_dict()
    with pytest.raises(NotImplementedError, match=reason):
        loader.load_state_dict({})
