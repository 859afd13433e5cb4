"""pool_batches: each num_workers consecutive batches of a loader as one, whatever their kind, never cut."""

from __future__ import annotations

from collections import OrderedDict, namedtuple
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

from shardmix import Ragged, pool_batches
from shardmix.runtime.pool import concatenate_batches

Point = namedtuple("Point", "x y")


def worker_number() -> int:
    info = get_worker_info()
    assert info is not None, "these datasets need workers"
    return info.id


class OwnNumber(IterableDataset[int]):
    """Worker w yields its own number counts[w] times."""

    def __init__(self, *counts: int) -> None:
        self.counts = counts

    def __iter__(self) -> Iterator[int]:
        worker = worker_number()
        return iter([worker] * self.counts[worker])


class Items(Dataset[tuple[int, int]]):
    """Item i is (i, the worker that made it)."""

    def __init__(self, num_items: int) -> None:
        self.num_items = num_items

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, i: int) -> tuple[int, int]:
        return i, worker_number()


def pooled(dataset: Any, batch_size: int, num_workers: int) -> list[list[int]]:
    loader = DataLoader(dataset, batch_size=batch_size, num_workers=num_workers)
    return [batch.tolist() for batch in pool_batches(loader)]


@pytest.mark.usefixtures("nothing_left")
class TestWorkers:
    def test_four_workers_are_alike_in_every_batch(self) -> None:
        eights = [0] * 8 + [1] * 8 + [2] * 8 + [3] * 8
        assert pooled(OwnNumber(32, 32, 32, 32), 8, 4) == [eights] * 4

    def test_three_workers(self) -> None:
        assert pooled(OwnNumber(4, 4, 4), 2, 3) == [[0, 0, 1, 1, 2, 2]] * 2

    def test_a_remainder_ends_in_short_batches_that_are_mixed(self) -> None:
        assert pooled(OwnNumber(3, 3), 2, 2) == [[0, 0, 1, 1], [0, 1]]

    def test_when_a_worker_has_ended_the_others_fill_its_place(self) -> None:
        assert pooled(OwnNumber(4, 1, 4), 1, 3) == [[0, 1, 2], [0, 2, 0], [2, 0, 2]]

    def test_workers_that_end_at_different_times_lose_nothing(self) -> None:
        batches = pooled(OwnNumber(8, 0, 3, 5), 2, 4)
        assert batches == [[0, 0, 2, 2, 3, 3, 0, 0], [2, 3, 3, 0, 0, 3], [0, 0]]

    def test_a_map_style_dataset_is_delivered_once_and_in_the_order_of_the_loader(self) -> None:
        loader = pool_batches(DataLoader(Items(11), batch_size=2, num_workers=2))
        batches = [(items.tolist(), workers.tolist()) for items, workers in loader]
        assert batches == [
            ([0, 1, 2, 3], [0, 0, 1, 1]),
            ([4, 5, 6, 7], [0, 0, 1, 1]),
            ([8, 9, 10], [0, 0, 1]),
        ]
        assert len(loader) == len(batches)

    def test_each_iteration_is_a_new_pass(self) -> None:
        loader = pool_batches(DataLoader(OwnNumber(2, 2), batch_size=1, num_workers=2))
        assert [[batch.tolist() for batch in loader] for _ in range(2)] == [[[0, 1], [0, 1]]] * 2

    @pytest.mark.parametrize("persistent", [False, True])
    def test_after_a_break_the_next_pass_is_whole(self, persistent: bool) -> None:
        loader = pool_batches(DataLoader(OwnNumber(9, 9), batch_size=1, num_workers=2, persistent_workers=persistent))
        for batch in loader:
            assert batch.tolist() == [0, 1]
            break
        assert [batch.tolist() for batch in loader] == [[0, 1]] * 9

    def test_a_break_ends_the_workers_though_the_iterator_is_still_held(self) -> None:
        inner = iter(DataLoader(OwnNumber(9, 9), batch_size=1, num_workers=2))

        class Once(DataLoader[Any]):
            def __iter__(self) -> Any:
                return inner

        batches = iter(pool_batches(Once(OwnNumber(9, 9), batch_size=1, num_workers=2)))
        next(batches)
        batches.close()  # type: ignore[attr-defined]
        assert [worker.is_alive() for worker in inner._workers] == [False, False]  # type: ignore[attr-defined]

    def test_an_error_in_a_worker_reaches_the_user(self) -> None:
        with pytest.raises(IndexError):
            list(pool_batches(DataLoader(OwnNumber(1), batch_size=1, num_workers=2)))


class TestWithoutWorkers:
    def test_batches_come_as_they_are(self) -> None:
        loader = pool_batches(DataLoader([0, 1, 2], batch_size=2))
        assert [batch.tolist() for batch in loader] == [[0, 1], [2]]
        assert len(loader) == 2

    @pytest.mark.parametrize(("num_items", "length"), [(0, 0), (1, 1), (8, 1), (9, 2), (16, 2), (17, 3)])
    def test_length_counts_the_last_short_batch(self, num_items: int, length: int) -> None:
        assert len(pool_batches(DataLoader(Items(num_items), batch_size=2, num_workers=4))) == length

    def test_the_length_of_an_iterable_dataset_without_one_is_a_type_error(self) -> None:
        with pytest.raises(TypeError):
            len(pool_batches(DataLoader(OwnNumber(1), batch_size=2, num_workers=4)))

    def test_what_is_no_loader_is_a_type_error_that_names_it(self) -> None:
        with pytest.raises(TypeError, match="got a list, expected a DataLoader"):
            pool_batches([1, 2])  # type: ignore[arg-type]

    def test_repr_tells_how_many_batches_become_one(self) -> None:
        assert repr(pool_batches(DataLoader([0], num_workers=3))).endswith("3 batches in one")


class TestConcatenating:
    def test_any_nesting_of_tensors(self) -> None:
        one, other = torch.tensor([1, 2]), torch.tensor([3])
        batch = concatenate_batches([{"a": [one, Point(one, (one, one))]}, {"a": [other, Point(other, (other, other))]}])
        both = [1, 2, 3]
        assert type(batch["a"][1]) is Point
        assert [batch["a"][0].tolist(), batch["a"][1].x.tolist()] == [both, both]
        assert [part.tolist() for part in batch["a"][1].y] == [both, both]

    def test_arrays_and_other_mappings_keep_their_type(self) -> None:
        batch = concatenate_batches([OrderedDict(x=np.zeros((1, 2))), OrderedDict(x=np.ones((2, 2)))])
        assert type(batch) is OrderedDict
        assert batch["x"].tolist() == [[0, 0], [1, 1], [1, 1]]

    def test_ragged_rows_follow_each_other(self) -> None:
        rows = Ragged(torch.tensor([1, 2, 3]), torch.tensor([0, 1, 3]))
        assert concatenate_batches([{"ids": rows}, {"ids": rows[1:]}])["ids"].to_list() == [[1], [2, 3], [2, 3]]

    @pytest.mark.parametrize("kind", [list, tuple])
    def test_strings_and_bytes_are_rows(self, kind: type) -> None:
        assert concatenate_batches([kind(["a", "b"]), kind(["c"])]) == kind(["a", "b", "c"])
        assert concatenate_batches([kind([b"a"]), kind([b"b", b""])]) == kind([b"a", b"b", b""])

    def test_ragged_bytes_are_rows(self) -> None:
        assert concatenate_batches([[[b"a", b"b"], []], [[b"c"]]]) == [[b"a", b"b"], [], [b"c"]]

    def test_columns_of_strings_as_default_collate_makes_them_stay_columns(self) -> None:
        assert concatenate_batches([[("a", "b"), ("x", "y")], [("c",), ("z",)]]) == [("a", "b", "c"), ("x", "y", "z")]

    def test_nothing_stays_nothing(self) -> None:
        assert concatenate_batches([{"mask": None}, {"mask": None}]) == {"mask": None}

    def test_a_value_that_cannot_be_concatenated_is_named(self) -> None:
        with pytest.raises(TypeError, match=r"batch\['n'\]: values of type int cannot be concatenated.*concatenate="):
            concatenate_batches([{"n": 1}, {"n": 2}])

    def test_tensors_of_two_widths_are_named(self) -> None:
        with pytest.raises(ValueError, match=r"batch\['x'\]\[1\]: .*pad in the collate_fn"):
            concatenate_batches([{"x": [torch.zeros(1), torch.zeros(1, 2)]}, {"x": [torch.zeros(1), torch.zeros(1, 3)]}])

    @pytest.mark.parametrize(
        ("one", "other", "message"),
        [
            ({"x": torch.zeros(1)}, {"y": torch.zeros(1)}, r"batch: got the keys \['x'\] and \['y'\]"),
            ([torch.zeros(1)], [torch.zeros(1), torch.zeros(1)], "batch: got lists of 1, 2 parts"),
            ([torch.zeros(1)], torch.zeros(1), "batch: got list and Tensor, expected one type"),
        ],
    )
    def test_batches_of_two_structures_are_a_value_error(self, one: Any, other: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            concatenate_batches([one, other])

    def test_a_users_own_concatenation_gets_the_list_of_batches(self) -> None:
        class Numbers(DataLoader[Any]):
            def __iter__(self) -> Any:
                return iter([1, 2, 3, 4, 5])

        assert list(pool_batches(Numbers([0], num_workers=2), concatenate=sum)) == [3, 7, 5]
