"""Marked values: a batch of them is ragged, whatever their lengths, by `collate` and through columns."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from shardmix.format.columns import ColumnSpec
from shardmix.runtime.ragged import Ragged
from shardmix.runtime.samples import (
    PICKLED,
    RaggedList,
    RaggedRow,
    collate,
    mark_ragged,
    pack_samples,
    unpack_samples,
)
from tests.runtime.loading import unpack_batch


def words(*rows: list[bytes]) -> list[RaggedList]:
    return [RaggedList(row, ColumnSpec("", "uint8", (), 2, True)) for row in rows]


def steps(*rows: list[list[int]]) -> list[RaggedList]:
    spec = ColumnSpec("", "int64", (), 2, False)
    return [RaggedList([np.array(step, np.int64) for step in row], spec) for row in rows]


@pytest.mark.parametrize("through_columns", [False, True])
class TestRaggedValues:
    def batch(self, samples: list[Any], through_columns: bool) -> Any:
        if not through_columns:
            return collate(samples)
        structure, columns = pack_samples(samples)
        assert structure != PICKLED
        assert pack_samples(unpack_samples(structure, columns))[0] == structure
        return unpack_batch(structure, columns)

    @pytest.mark.parametrize("rows", [[[1, 2], [], [3]], [[1, 2], [3, 4]], [[], []], [[5]]])
    def test_marked_rows_are_ragged_whatever_their_lengths(self, rows: list[list[int]], through_columns: bool) -> None:
        batch = self.batch([{"ids": mark_ragged(np.array(row, np.int32))} for row in rows], through_columns)["ids"]
        assert type(batch) is Ragged
        assert batch.values.dtype == torch.int32
        assert batch.offsets.dtype == torch.int64
        assert batch.to_list() == rows

    def test_only_the_first_dimension_varies(self, through_columns: bool) -> None:
        batch = self.batch([mark_ragged(np.ones((n, 4), np.float32)) for n in (2, 0, 1)], through_columns)
        assert batch.values.shape == (3, 4)
        assert batch.lengths.tolist() == [2, 0, 1]

    @pytest.mark.parametrize("rows", [[[b"a", b""], [], [b"ccc"]], [[], []]])
    def test_lists_of_bytes_stay_lists(self, rows: list[list[bytes]], through_columns: bool) -> None:
        assert self.batch(words(*rows), through_columns) == rows
        assert self.batch([(row, 1) for row in words(*rows)], through_columns)[0] == tuple(rows)

    @pytest.mark.parametrize("rows", [[[[1, 2], []], [], [[3]]], [[], []], [[[]], [[]]]])
    def test_lists_of_arrays_are_ragged_rows_of_rows(self, rows: list[list[list[int]]], through_columns: bool) -> None:
        batch = self.batch(steps(*rows), through_columns)
        assert type(batch.values) is Ragged
        assert batch.values.values.dtype == torch.int64
        assert batch.to_list() == rows

    def test_lists_of_lists_of_bytes_stay_nested(self, through_columns: bool) -> None:
        spec = ColumnSpec("", "uint8", (), 3, True)
        rows = [[[b"a"], []], [[b"b", b"cc"]], []]
        assert self.batch([RaggedList(row, spec) for row in rows], through_columns) == rows


def test_slices_and_results_of_a_marked_row_are_marked_and_asarray_takes_the_mark_off() -> None:
    row = mark_ragged(np.arange(5))
    assert type(row[:2]) is type(row * 2) is type(pickle.loads(pickle.dumps(row))) is RaggedRow
    assert type(np.asarray(row)) is np.ndarray
    assert isinstance(row.sum(), np.integer)


def test_marking_shares_the_memory() -> None:
    values = np.zeros(2)
    mark_ragged(values)[0] = 1
    assert values.tolist() == [1, 0]


def test_a_number_reduced_from_a_marked_row_is_an_ordinary_number() -> None:
    samples = [{"ids": mark_ragged(np.array(row)), "sum": mark_ragged(np.array(row)).sum()} for row in ([1, 2], [3])]
    batch = unpack_batch(*pack_samples(samples))
    assert batch["sum"].tolist() == collate(samples)["sum"].tolist() == [3, 3]


def test_a_single_number_cannot_be_marked() -> None:
    with pytest.raises(ValueError, match=r"mark_ragged: got the single value .*7.*, expected an array"):
        mark_ragged(7)


def test_marked_rows_of_two_dtypes_are_a_type_error_that_names_them() -> None:
    with pytest.raises(TypeError, match=r"RaggedRow float64\[1\], RaggedRow int64\[2\]"):
        collate([mark_ragged([1, 2]), mark_ragged([0.5])])


def test_a_changed_list_that_no_longer_is_what_it_was_declared_to_be_is_a_type_error() -> None:
    [changed] = words([b"a"])
    changed.append("b")
    assert pack_samples([changed])[0] == PICKLED
    with pytest.raises(TypeError, match="one type, dtype and trailing shape"):
        collate([changed])


def test_unmarked_rows_of_two_lengths_are_the_error_of_torch_with_a_hint() -> None:
    with pytest.raises(RuntimeError, match="equal size") as caught:
        collate([np.zeros(2), np.zeros(3)])
    assert "mark_ragged" in caught.value.__notes__[0]


def test_the_place_whose_shapes_differ_is_named() -> None:
    samples = [{"a": np.zeros(2), "b": (0, torch.zeros(size, 2))} for size in (3, 4)]
    with pytest.raises(RuntimeError, match="equal size") as caught:
        collate(samples)
    assert "sample['b'][1] has shapes (3, 2), (4, 2); " in caught.value.__notes__[0]


def test_a_sample_that_is_none_is_the_error_of_torch_with_a_hint() -> None:
    with pytest.raises(TypeError, match="NoneType") as caught:
        collate([None, None])
    assert "parse and transform return samples" in caught.value.__notes__[0]


def test_rows_of_a_ragged_batch_can_be_collated_again() -> None:
    batch = collate([mark_ragged([1, 2]), mark_ragged([3])])
    assert collate([batch, batch[:1]]).to_list() == [[[1, 2], [3]], [[1, 2]]]
