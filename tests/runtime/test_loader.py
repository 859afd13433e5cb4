"""MixLoader: what it is, what its arguments mean, and what it leaves as it was."""

from __future__ import annotations

import random
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, SequentialSampler

from shardmix import MixLoader, Ragged, ShardDataset
from tests.runtime.loading import COUNTS, FEATURES, IDS, Counting, Squares, WorkerInfos, example_of, ids_of, plain, write_corpus

pytestmark = pytest.mark.usefixtures("nothing_left")

Open = Callable[..., ShardDataset]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("loader") / "corpus")


@pytest.fixture
def open_corpus(pattern: str) -> Open:
    def build(**settings: Any) -> ShardDataset:
        return ShardDataset(pattern, **{"features": FEATURES, "shuffle_buffer_size": 32, **settings})

    return build


# --- What it is


def note_worker(worker: int) -> None:
    """Does nothing."""


def test_its_attributes_are_the_values_of_the_user(open_corpus: Open) -> None:
    dataset, collate_fn = open_corpus(), list
    given = {
        "batch_size": 4,
        "num_workers": 2,
        "drop_last": True,
        "collate_fn": collate_fn,
        "prefetch_factor": 3,
        "persistent_workers": True,
        "timeout": 50,
        "worker_init_fn": note_worker,
        "in_order": False,
        "uneven": "drop",
        "repeat": 2,
    }
    loader = MixLoader(dataset, **given)
    assert {name: getattr(loader, name) for name in given} == given
    assert isinstance(loader, DataLoader)
    assert loader.dataset is dataset
    assert loader.pin_memory is False


def test_defaults_are_those_of_torch(open_corpus: Open) -> None:
    loader, torchs = MixLoader(open_corpus()), DataLoader(open_corpus())
    names = "batch_size num_workers drop_last pin_memory prefetch_factor persistent_workers timeout in_order".split()
    assert [getattr(loader, name) for name in names] == [getattr(torchs, name) for name in names]


@pytest.mark.parametrize("batch_size", [1, 7, 16, 71, 100])
@pytest.mark.parametrize("settings", [{}, {"drop_last": True}, {"repeat": 3}, {"world": 3}, {"world": 3, "uneven": "drop"}])
def test_its_length_is_the_number_of_its_batches(open_corpus: Open, batch_size: int, settings: dict[str, Any]) -> None:
    world_size = settings.pop("world", 1) if "world" in settings else 1
    for rank in range(world_size):
        loader = MixLoader(open_corpus(rank=rank, world_size=world_size), batch_size=batch_size, **settings)
        assert len(loader) == len(list(loader))


@pytest.mark.parametrize("num_workers", [0, 2, 3])
@pytest.mark.parametrize("drop_last", [False, True])
def test_the_length_over_a_map_style_dataset_is_exact(num_workers: int, drop_last: bool) -> None:
    loader = MixLoader(Squares(11), batch_size=3, num_workers=num_workers, drop_last=drop_last, repeat=2)
    assert len(loader) == len(list(loader)) == 2 * (3 if drop_last else 4)


def test_the_length_is_unknown_where_nothing_tells_it(open_corpus: Open) -> None:
    endless, scheduled = MixLoader(open_corpus(), repeat=None), MixLoader(open_corpus(), schedule=all_of_lane_0)
    for loader in (endless, scheduled, MixLoader(Counting(5))):
        with pytest.raises(TypeError):
            len(loader)


def all_of_lane_0(step: int, remaining: Any) -> list[int]:
    return [0]


def test_without_batch_size_it_is_no_mix(open_corpus: Open) -> None:
    with pytest.raises(ValueError, match="batch_size=None"):
        MixLoader(open_corpus(), batch_size=None)


@pytest.mark.parametrize("name", ["shuffle", "sampler", "batch_sampler"])
def test_iterables_take_sampling_arguments_only_as_none(open_corpus: Open, name: str) -> None:
    MixLoader(open_corpus(), batch_size=2, **{name: None})
    value = True if name == "shuffle" else [[0, 1]]
    with pytest.raises(ValueError, match=name.split("_")[-1]):
        MixLoader(open_corpus(), batch_size=1, **{name: value})


@pytest.mark.parametrize(
    ("arguments", "error", "text"),
    [
        ({"uneven": "cut"}, ValueError, "uneven='cut'"),
        ({"repeat": 0}, ValueError, "repeat=0"),
        ({"repeat": 1.5}, ValueError, "repeat=1.5"),
        ({"schedule": [0]}, TypeError, "schedule"),
        ({"schedule": all_of_lane_0, "in_order": False}, ValueError, "in_order"),
        ({"prefetch_factor": 2}, ValueError, "prefetch_factor"),
        ({"persistent_workers": True}, ValueError, "persistent_workers"),
        ({"timeout": -1}, ValueError, "timeout"),
        ({"num_workers": -1}, ValueError, "num_workers"),
        ({"num_workers": 2, "multiprocessing_context": "threads"}, ValueError, "threads"),
    ],
)
def test_wrong_arguments_are_told_at_once(open_corpus: Open, arguments: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        MixLoader(open_corpus(), batch_size=1, **arguments)


# --- What arrives


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_holds_values_of_every_kind(open_corpus: Open, num_workers: int) -> None:
    rows = []
    for batch in MixLoader(open_corpus(), batch_size=10, num_workers=num_workers):
        assert isinstance(batch["tags"], Ragged)
        assert batch["point"].dtype == torch.float32
        columns = [batch["id"].tolist(), batch["point"].tolist(), batch["name"], batch["tags"].to_list(), batch["words"]]
        rows += [dict(zip(FEATURES, row, strict=True)) for row in zip(*columns, strict=True)]
    assert sorted(rows, key=lambda row: row["id"]) == [example_of(number) for number in IDS]


def test_batches_hold_every_lane_alike(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(with_source=True, lanes=8), batch_size=16, num_workers=2)
    for batch in islice(loader, 4):
        assert torch.bincount(batch["source"].lane, minlength=8).tolist() == [2] * 8
        assert torch.bincount(batch["source"].worker).tolist() == [8, 8]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_source_tells_where_each_row_came_from(open_corpus: Open, num_workers: int) -> None:
    dataset = open_corpus(with_source=True)
    dataset.set_epoch(5)
    for batch in MixLoader(dataset, batch_size=10, num_workers=num_workers):
        source = batch["source"]
        assert torch.equal(source.shard * 1000 + source.record, batch["id"])
        assert set(source.epoch.tolist()) == {5}
        assert torch.equal(source.worker, source.lane % num_workers if num_workers else torch.zeros_like(source.lane))
        assert not source.is_pad.any()
        assert not source.is_fill.any()


def test_a_pad_is_marked_and_counted(open_corpus: Open) -> None:
    given = []
    for rank in range(2):
        loader = MixLoader(open_corpus(with_source=True, rank=rank, world_size=2), batch_size=10, num_workers=1)
        for batch in loader:
            given += zip(batch["id"].tolist(), batch["source"].is_pad.tolist(), strict=True)
    assert loader.stats()["pads"] == 1
    assert sorted(number for number, is_pad in given if not is_pad) == IDS
    assert sum(is_pad for _, is_pad in given) == 1


@pytest.mark.parametrize("num_workers", [0, 2])
def test_collate_fn_gets_the_samples_of_a_batch(open_corpus: Open, num_workers: int) -> None:
    def names(samples: list[Any]) -> list[bytes]:
        return [sample["name"] for sample in samples]

    expected = [batch["name"] for batch in MixLoader(open_corpus(), batch_size=9)]
    assert list(MixLoader(open_corpus(), batch_size=9, num_workers=num_workers, collate_fn=names)) == expected


def test_the_memory_of_a_batch_is_its_own(open_corpus: Open) -> None:
    """All batches of two epochs are kept, and each is overwritten once it was compared."""
    expected = [plain(batch) for batch in MixLoader(open_corpus(), batch_size=5, repeat=2)]
    kept = list(MixLoader(open_corpus(), batch_size=5, num_workers=2, repeat=2))
    for batch, right in zip(kept, expected, strict=True):
        assert plain(batch) == right
        for name in ("id", "point"):
            batch[name].zero_()
        batch["tags"].values.fill_(-1)
        batch["tags"].offsets.fill_(-1)


def test_memory_is_used_again_and_never_while_a_tensor_lives(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(), batch_size=5, num_workers=1, repeat=4)
    expected = [batch["id"].tolist() for batch in MixLoader(open_corpus(), batch_size=5, repeat=4)]
    kept = []
    for j, batch in enumerate(loader):
        if j % 3 == 0:
            kept.append((j, batch["id"][1:]))  # a view keeps the memory of its batch
    assert [view.tolist() for _, view in kept] == [expected[j][1:] for j, _ in kept]
    assert loader._keeper.memory is not None
    assert loader._keeper.memory.num_allocated < len(expected)


# --- Workers


def test_workers_see_the_dataset_of_the_user() -> None:
    for worker, num_workers, is_dataset_of_user in MixLoader(WorkerInfos(), batch_size=4, num_workers=2):
        assert worker.tolist() == [0, 1, 0, 1]
        assert num_workers.tolist() == [2] * 4
        assert is_dataset_of_user.all()


def test_worker_init_fn_is_called_in_each_worker(open_corpus: Open, tmp_path: Path) -> None:
    def note(worker: int) -> None:
        (tmp_path / str(worker)).write_text(str(torch.initial_seed()))

    list(MixLoader(open_corpus(), batch_size=40, num_workers=3, worker_init_fn=note, multiprocessing_context="fork"))
    seeds = [int((tmp_path / str(worker)).read_text()) for worker in range(3)]
    assert len(set(seeds)) == 3


def test_more_workers_than_lanes_are_not_started(open_corpus: Open) -> None:
    loader = MixLoader(open_corpus(lanes=2), batch_size=10, num_workers=5)
    with pytest.warns(UserWarning, match=r"num_workers=5: .* 2 workers are started"):
        assert sorted(ids_of(loader)) == IDS
    assert set(loader.stats()["workers"]) == {0, 1}


def test_pinning_without_an_accelerator_warns_as_torch_does(open_corpus: Open) -> None:
    if torch.accelerator.is_available():
        pytest.skip("this machine has an accelerator")
    loader = MixLoader(open_corpus(), batch_size=10, pin_memory=True)
    with pytest.warns(UserWarning, match="pin_memory.*no accelerator"):
        assert not next(iter(loader))["id"].is_pinned()


def test_global_generators_are_not_moved(open_corpus: Open) -> None:
    before = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    for num_workers in (0, 2):
        list(MixLoader(open_corpus(), batch_size=10, num_workers=num_workers))
        list(MixLoader(Squares(10), batch_size=3, num_workers=num_workers, shuffle=True))
        list(MixLoader(Counting(10), batch_size=3, num_workers=num_workers))
    after = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()  # noqa: NPY002
    assert before[:2] == after[:2]
    assert torch.equal(before[2], after[2])


def test_a_batch_sampler_is_left_whole() -> None:
    sampler = BatchSampler(SequentialSampler(range(11)), batch_size=4, drop_last=False)
    loader = MixLoader(Squares(11), batch_sampler=sampler, num_workers=3)
    assert [sorted(numbers.tolist()) for numbers, _ in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10]]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_two_live_iterators_are_two_whole_passes(open_corpus: Open, num_workers: int) -> None:
    loader = MixLoader(open_corpus(), batch_size=10, num_workers=num_workers, persistent_workers=num_workers > 0)
    expected = [ids_of(loader) for _ in range(2)]
    loader.set_epoch(0)
    pairs = list(zip(loader, loader, strict=True))
    assert [ids_of(batches) for batches in zip(*pairs, strict=True)] == expected
    assert sum(COUNTS) == len(expected[0])
    del loader


def test_an_iterator_that_ended_stays_ended(open_corpus: Open) -> None:
    iterator = iter(MixLoader(open_corpus(), batch_size=40))
    assert len(list(iterator)) == 2
    assert list(iterator) == []
    iterator = iter(MixLoader(open_corpus(), batch_size=40, num_workers=1))
    next(iterator)
    iterator.close()
    iterator.close()
    assert list(iterator) == []
