"""The question that shardmix answers, and both answers that it once got, as tests.

"Every batch comes from one worker. I had expected one queue that all workers fill and batches are drawn from." Expected: a first
batch of items 0, 5, 1, 6, 2 from workers 0, 1, 0, 1, 0.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any

import pytest
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from shardmix import MixLoader, pool_batches

pytestmark = pytest.mark.usefixtures("nothing_left")


def worker_number() -> int:
    info = get_worker_info()
    if info is None:
        raise RuntimeError("these datasets show workers: num_workers must be 1 or more")
    return info.id


class Items(Dataset[tuple[int, int]]):
    """Item i is (i, the worker that made it), after a random pause."""

    def __init__(self, num_items: int = 50) -> None:
        self.num_items = num_items

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, i: int) -> tuple[int, int]:
        time.sleep(random.Random(i).random() / 500)
        return i, worker_number()


class OwnNumber(IterableDataset[int]):
    """Worker w yields its own number counts[w] times."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts

    def __iter__(self) -> Iterator[int]:
        worker = worker_number()
        return iter([worker] * self.counts[worker])


class Numbered(IterableDataset[tuple[int, int]]):
    """Worker w yields (w, 0), (w, 1), … (w, counts[w] - 1)."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts

    def __iter__(self) -> Iterator[tuple[int, int]]:
        worker = worker_number()
        return ((worker, i) for i in range(self.counts[worker]))


def batches_of_items(loader: Any) -> list[tuple[list[int], list[int]]]:
    return [(items.tolist(), workers.tolist()) for items, workers in loader]


def batches_of(loader: Any) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


# The question.


def test_the_plain_loader_gives_batches_of_one_worker() -> None:
    batches = batches_of_items(DataLoader(Items(), batch_size=5, num_workers=2))
    assert batches[:2] == [([0, 1, 2, 3, 4], [0] * 5), ([5, 6, 7, 8, 9], [1] * 5)]


def test_the_first_batch_is_the_expected_one_and_every_item_comes_once() -> None:
    loader = MixLoader(Items(), batch_size=5, num_workers=2)
    batches = batches_of_items(loader)
    assert batches[0] == ([0, 5, 1, 6, 2], [0, 1, 0, 1, 0])
    assert batches[1] == ([7, 3, 8, 4, 9], [1, 0, 1, 0, 1])
    assert sorted(chain(*(items for items, _ in batches))) == list(range(50))
    assert len(loader) == len(batches) == 10


@pytest.mark.parametrize(("num_items", "batch_size", "num_workers"), [(50, 5, 3), (13, 4, 2), (7, 3, 4), (2, 5, 3), (12, 1, 3)])
def test_every_item_comes_once_and_each_round_mixes_the_workers_that_load_it(
    num_items: int, batch_size: int, num_workers: int
) -> None:
    batches = batches_of_items(MixLoader(Items(num_items), batch_size=batch_size, num_workers=num_workers))
    plain = [items for items, _ in batches_of_items(DataLoader(Items(num_items), batch_size=batch_size, num_workers=1))]
    assert [len(items) for items, _ in batches] == [len(items) for items in plain]
    for first in range(0, len(plain), num_workers):
        dealt = plain[first : first + num_workers]
        turns = [(items[i], worker) for i in range(batch_size) for worker, items in enumerate(dealt) if i < len(items)]
        mixed = batches[first : first + num_workers]
        assert [pair for items, workers in mixed for pair in zip(items, workers, strict=True)] == turns


# Answer 1: pooled batches.


EIGHTS = [8, 8, 8, 8]


def counts(batch: Sequence[int], num_workers: int) -> list[int]:
    return [list(batch).count(worker) for worker in range(num_workers)]


def test_the_plain_loader_gives_batches_of_32_equal_numbers() -> None:
    assert batches_of(DataLoader(OwnNumber(32, 32, 32, 32), batch_size=32, num_workers=4)) == [[w] * 32 for w in range(4)]


def test_pooling_small_batches_gives_eight_of_each_number() -> None:
    loader = pool_batches(DataLoader(OwnNumber(32, 32, 32, 32), batch_size=8, num_workers=4))
    assert [counts(batch, 4) for batch in batches_of(loader)] == [EIGHTS] * 4


def test_mix_loader_gives_eight_of_each_number() -> None:
    loader = MixLoader(OwnNumber(32, 32, 32, 32), batch_size=32, num_workers=4)
    assert [counts(batch, 4) for batch in batches_of(loader)] == [EIGHTS] * 4


def test_three_workers_share_a_batch_that_they_do_not_divide_and_the_remainder_rotates() -> None:
    batches = batches_of(MixLoader(OwnNumber(32, 32, 32), batch_size=32, num_workers=3))
    assert [counts(batch, 3) for batch in batches] == [[11, 11, 10], [11, 10, 11], [10, 11, 11]]


def test_a_worker_that_ends_leaves_its_place_to_the_others() -> None:
    batches = batches_of(MixLoader(OwnNumber(8, 2, 5, 0), batch_size=4, num_workers=4))
    assert batches == [[0, 1, 2, 0], [1, 2, 0, 2], [0, 2, 0, 2], [0, 0, 0]]


@pytest.mark.parametrize(("drop_last", "sizes"), [(False, [4, 4, 2]), (True, [4, 4])])
def test_a_remainder_is_one_short_batch_at_the_end_or_dropped(drop_last: bool, sizes: list[int]) -> None:
    batches = batches_of(MixLoader(OwnNumber(5, 5), batch_size=4, num_workers=2, drop_last=drop_last))
    assert [len(batch) for batch in batches] == sizes
    assert [counts(batch, 2) for batch in batches] == [[size // 2] * 2 for size in sizes]


# Answer 2: a queue of samples for each worker, and a schedule that picks from them.


def two_for_one(step: int, remaining: Sequence[int | None]) -> list[int]:
    """Two of worker 0 for each one of worker 1."""
    return [0, 0, 1, 0, 0, 1]


def hashed(step: int, remaining: Sequence[int | None]) -> list[int]:
    """Six rows at random, the same in every pass: drawn from a hash of the step, among those that have rows left."""
    live = [worker for worker, rows in enumerate(remaining) if rows != 0]
    return [live[number % len(live)] for number in hashlib.sha256(b"%d" % step).digest()[:6]]


def received(loader: Any) -> list[list[tuple[int, int]]]:
    return [list(zip(workers.tolist(), numbers.tolist(), strict=True)) for workers, numbers in loader]


def test_two_of_worker_0_for_each_one_of_worker_1() -> None:
    loader = MixLoader(Numbered(8, 4), batch_size=6, num_workers=2, schedule=two_for_one)
    assert received(loader) == [
        [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1)],
        [(0, 4), (0, 5), (1, 2), (0, 6), (0, 7), (1, 3)],
    ]


def test_an_ended_worker_that_is_named_shortens_the_batch() -> None:
    loader = MixLoader(Numbered(6, 5), batch_size=6, num_workers=2, schedule=two_for_one)
    assert received(loader) == [
        [(0, 0), (0, 1), (1, 0), (0, 2), (0, 3), (1, 1)],
        [(0, 4), (0, 5), (1, 2), (1, 3)],
        [(1, 4)],
    ]


def test_a_schedule_on_a_map_style_dataset_names_its_workers() -> None:
    loader = MixLoader(Items(24), batch_size=6, num_workers=2, schedule=two_for_one)
    batches = batches_of_items(loader)
    assert [workers for _, workers in batches[:2]] == [[0, 0, 1, 0, 0, 1]] * 2
    assert batches[0][0] == [0, 1, 6, 2, 3, 7]
    assert sorted(chain(*(items for items, _ in batches))) == list(range(24))


def test_rows_drawn_from_a_hash_of_the_step_are_those_workers_and_every_row_comes_once() -> None:
    batches = received(MixLoader(Numbered(30, 30, 30), batch_size=6, num_workers=3, schedule=hashed))
    assert [[worker for worker, _ in batch] for batch in batches[:4]] == [hashed(step, [None] * 3) for step in range(4)]
    rows = list(chain(*batches))
    assert sorted(rows) == [(worker, i) for worker in range(3) for i in range(30)]
    for worker in range(3):
        assert [i for of_worker, i in rows if of_worker == worker] == list(range(30))


def test_a_schedule_leaves_the_length_unknown() -> None:
    with pytest.raises(TypeError, match="schedule"):
        len(MixLoader(Items(), batch_size=6, num_workers=2, schedule=two_for_one))


@pytest.mark.parametrize("make", [lambda: Items(12), lambda: Numbered(6, 6)])
def test_a_second_pass_is_whole_after_a_break_in_the_first(make: Callable[[], Any]) -> None:
    loader = MixLoader(make(), batch_size=4, num_workers=2)
    next(iter(loader))
    assert sum(len(first) for first, _ in loader) == 12
