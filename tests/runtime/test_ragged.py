"""Ragged: rows for whoever looks at it, two tensors for whoever moves it."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.utils import _pytree
from torch.utils.data import DataLoader, default_convert
from torch.utils.data._utils.pin_memory import pin_memory

from shardmix import Ragged
from shardmix.runtime.ragged import concatenate_ragged

ROWS = [[7, 8], [], [9]]
ROWS_OF_ROWS = [[[1, 2], []], [], [[3]]]


def ragged(rows: list[list[int]] = ROWS) -> Ragged:
    ends = torch.tensor([0, *map(len, rows)]).cumsum(0)
    return Ragged(torch.tensor([item for row in rows for item in row]), ends)


def two_levels() -> Ragged:
    return Ragged(ragged([[1, 2], [], [3]]), torch.tensor([0, 2, 2, 3]))


def rebuild_by_iterating(value: Ragged, change: Callable[[Any], Any]) -> Any:
    """How Lightning's apply_to_collection and Accelerate's honor_type treat any named tuple."""
    if isinstance(value, tuple) and hasattr(value, "_asdict") and hasattr(value, "_fields"):
        return type(value)(*[rebuild_by_iterating(part, change) for part in value])
    return change(value)


def test_length_is_the_number_of_rows() -> None:
    assert len(ragged()) == 3
    assert len(two_levels()) == 3
    assert len(ragged([])) == 0


@pytest.mark.parametrize("row", [0, 1, 2, -1, -3])
def test_a_row_is_a_view_of_the_values(row: int) -> None:
    whole = ragged()
    assert whole[row].tolist() == ROWS[row]
    assert whole[row].untyped_storage().data_ptr() == whole.values.untyped_storage().data_ptr()


@pytest.mark.parametrize("row", [3, -4])
def test_a_row_beyond_the_end_is_an_index_error_with_both_numbers(row: int) -> None:
    with pytest.raises(IndexError, match=f"row {row} of 3 rows"):
        ragged()[row]


def test_an_index_that_is_no_number_is_a_type_error() -> None:
    with pytest.raises(TypeError):
        ragged()["values"]  # type: ignore[call-overload]


@pytest.mark.parametrize("make", [ragged, two_levels])
def test_every_slice_holds_the_rows_that_a_list_would(make: Callable[[], Ragged]) -> None:
    whole, rows = make(), make().to_list()
    bounds = [None, *range(-4, 5)]
    for step in (None, 1, 2, -1, -2):
        for start in bounds:
            for stop in bounds:
                part = whole[start:stop:step]
                assert part.to_list() == rows[start:stop:step]
                assert int(part.offsets[0]) == 0
                assert len(part.values) == int(part.offsets[-1])


def test_rows_of_rows_are_ragged_rows() -> None:
    assert two_levels()[0].to_list() == [[1, 2], []]
    assert two_levels().to_list() == ROWS_OF_ROWS


def test_unbind_gives_the_rows() -> None:
    assert [row.tolist() for row in ragged().unbind()] == ROWS
    assert [row.to_list() for row in two_levels().unbind()] == ROWS_OF_ROWS


def test_lengths() -> None:
    assert ragged().lengths.tolist() == [2, 0, 1]


def test_padded_rows_are_filled_up_with_the_value() -> None:
    assert ragged().to_padded(-1).tolist() == [[7, 8], [-1, -1], [9, -1]]
    assert ragged().to_padded().tolist() == [[7, 8], [0, 0], [9, 0]]


def test_padding_keeps_dtype_and_trailing_shape() -> None:
    boxes = Ragged(torch.ones(3, 4, dtype=torch.float16), torch.tensor([0, 1, 3]))
    assert boxes.to_padded(0).shape == (2, 2, 4)
    assert boxes.to_padded(0).dtype == torch.float16


def test_padding_rows_of_rows_adds_a_dimension() -> None:
    assert two_levels().to_padded(0).tolist() == [[[1, 2], [0, 0]], [[0, 0], [0, 0]], [[3, 0], [0, 0]]]


def test_padding_no_rows_and_empty_rows() -> None:
    assert ragged([]).to_padded(0).shape == (0, 0)
    assert ragged([[], []]).to_padded(0).shape == (2, 0)


def test_nested_shares_the_values() -> None:
    whole = ragged()
    nested = whole.to_nested()
    assert [row.tolist() for row in nested.unbind()] == ROWS
    assert nested.values().data_ptr() == whole.values.data_ptr()


def test_rows_of_rows_have_no_nested_form() -> None:
    with pytest.raises(ValueError, match=r"to_padded"):
        two_levels().to_nested()


def test_to_changes_the_values_and_keeps_offsets_whole_numbers() -> None:
    moved = two_levels().to(torch.float64)
    assert moved.values.values.dtype == torch.float64
    assert moved.offsets.dtype == moved.values.offsets.dtype == torch.int64
    assert ragged().to("meta").device.type == "meta"


def test_concatenating_keeps_the_rows_in_order() -> None:
    assert concatenate_ragged([ragged(), ragged([]), ragged([[1], []])]).to_list() == [*ROWS, [1], []]
    assert concatenate_ragged([two_levels(), two_levels()]).to_list() == ROWS_OF_ROWS * 2


# What moves a batch takes it for a named tuple.


def test_unpacking_iterating_and_the_fields_are_the_two_tensors() -> None:
    whole = ragged()
    values, offsets = whole
    assert values is whole.values
    assert offsets is whole.offsets
    assert tuple(whole) == (values, offsets)
    assert whole._fields == ("values", "offsets")


def test_make_replace_and_asdict_work_whatever_the_number_of_rows() -> None:
    whole = ragged()
    assert Ragged._make(list(whole)).to_list() == ROWS
    assert whole._replace(values=torch.tensor([1, 2, 3])).to_list() == [[1, 2], [], [3]]
    assert Ragged(**whole._asdict()).to_list() == ROWS


@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles(protocol: int) -> None:
    again = pickle.loads(pickle.dumps(two_levels(), protocol))
    assert type(again) is Ragged
    assert again.to_list() == ROWS_OF_ROWS


def test_torch_rebuilds_it_when_it_pins_converts_and_maps_a_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.Tensor, "pin_memory", lambda self: self.clone())  # there is nothing to pin for here
    for rebuilt in (
        pin_memory({"tags": two_levels()}),
        default_convert({"tags": two_levels()}),
        _pytree.tree_map(torch.clone, {"tags": two_levels()}),
    ):
        assert type(rebuilt["tags"]) is Ragged
        assert type(rebuilt["tags"].values) is Ragged
        assert rebuilt["tags"].to_list() == ROWS_OF_ROWS


def test_a_pytree_has_its_tensors_as_leaves() -> None:
    leaves, spec = _pytree.tree_flatten(two_levels())
    assert [leaf.tolist() for leaf in leaves] == [[1, 2, 3], [0, 2, 2, 3], [0, 2, 2, 3]]
    assert _pytree.tree_unflatten(leaves, spec).to_list() == ROWS_OF_ROWS


def test_frameworks_rebuild_it_part_by_part() -> None:
    doubled = rebuild_by_iterating(two_levels(), lambda part: part.double())
    assert type(doubled.values) is Ragged
    assert doubled.values.values.dtype == torch.float64


def first(batch: list[Any]) -> Any:
    return batch[0]


def test_it_crosses_from_a_worker_as_itself() -> None:
    loader = DataLoader([two_levels()], batch_size=1, num_workers=1, collate_fn=first)
    [received] = loader
    assert type(received) is Ragged
    assert received.to_list() == ROWS_OF_ROWS
