"""Columns: slicing, taking and scattering rows equals the same on plain lists."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shardmix.format.columns import (
    Column,
    ColumnSpec,
    count_rows,
    scatter_rows,
    slice_rows,
    take_rows,
)
from shardmix.format.spans import copy_spans, expand_spans, starts_of

pytestmark = pytest.mark.once

DENSE = ColumnSpec("dense", "int64", (), 0, False)
MATRIX = ColumnSpec("matrix", "float32", (2,), 0, False)
RAGGED = ColumnSpec("ragged", "int64", (), 1, False)
STEPS = ColumnSpec("steps", "float32", (2,), 1, False)
WORDS = ColumnSpec("words", "uint8", (), 2, True)
SPECS = (DENSE, MATRIX, RAGGED, STEPS, WORDS)


def to_column(spec: ColumnSpec, rows: list[Any]) -> Column:
    """A column of nested lists, the plain way."""
    lengths, items = [], rows
    for _ in range(spec.levels):
        lengths.append(np.array([len(item) for item in items], np.int64))
        items = [inner for item in items for inner in item]
    return Column(spec, np.array(items, spec.dtype).reshape(-1, *spec.item_shape), tuple(lengths))


def to_lists(column: Column) -> list[Any]:
    """The nested lists of a column, the plain way."""
    items = column.values.tolist()
    for level in reversed(column.lengths):
        rest = iter(items)
        items = [[next(rest) for _ in range(n)] for n in level.tolist()]
    return items


def rows_of(spec: ColumnSpec) -> st.SearchStrategy[Any]:
    item: st.SearchStrategy[Any] = st.integers(0, 255)
    for size in spec.item_shape:
        item = st.lists(item, min_size=size, max_size=size)
    for _ in range(spec.levels):
        item = st.lists(item, max_size=4)
    return st.lists(item, max_size=9)


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.name)
class TestEqualsPlainLists:
    @given(data=st.data())
    def test_slice_rows(self, spec: ColumnSpec, data: st.DataObject) -> None:
        rows = data.draw(rows_of(spec))
        start = data.draw(st.integers(0, len(rows)))
        stop = data.draw(st.integers(start, len(rows)))
        assert to_lists(slice_rows(to_column(spec, rows), start, stop)) == rows[start:stop]

    @given(data=st.data())
    def test_take_rows(self, spec: ColumnSpec, data: st.DataObject) -> None:
        rows = data.draw(rows_of(spec))
        chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=12)) if rows else []
        taken = take_rows(to_column(spec, rows), np.array(chosen, np.int64))
        assert to_lists(taken) == [rows[i] for i in chosen]
        assert taken.spec == spec

    @given(data=st.data())
    def test_scatter_rows(self, spec: ColumnSpec, data: st.DataObject) -> None:
        rows = data.draw(rows_of(spec))
        owner = data.draw(st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
        order = data.draw(st.permutations(range(len(rows))))
        positions = [[p for p in order if owner[p] == j] for j in range(3)]
        parts = [[to_column(spec, [rows[p] for p in place])] for place in positions]
        (whole,) = scatter_rows(parts, [np.array(place, np.int64) for place in positions])
        assert to_lists(whole) == rows

    def test_regular_positions(self, spec: ColumnSpec) -> None:
        rows = {
            "dense": [1, 2, 3, 4, 5],
            "matrix": [[1, 2], [3, 4], [5, 6], [7, 8], [9, 0]],
            "ragged": [[1], [], [2, 3], [4], [5, 6]],
            "steps": [[[1, 2]], [], [[3, 4], [5, 6]], [], [[7, 8]]],
            "words": [[[1, 2], []], [], [[3]], [[]], [[4, 5, 6]]],
        }[spec.name]
        parts = [[to_column(spec, rows[0::2])], [to_column(spec, rows[1::2])]]
        (whole,) = scatter_rows(parts, [np.array([0, 2, 4]), np.array([1, 3])])
        assert to_lists(whole) == rows

    def test_no_rows(self, spec: ColumnSpec) -> None:
        empty = to_column(spec, [])
        assert count_rows(empty) == 0
        assert to_lists(take_rows(empty, np.empty(0, np.int64))) == []
        (whole,) = scatter_rows([[empty]], [np.empty(0, np.int64)])
        assert (count_rows(whole), whole.values.dtype, whole.values.shape[1:]) == (0, spec.dtype, spec.item_shape)


def test_slices_are_views_and_taken_rows_are_copies() -> None:
    column = to_column(RAGGED, [[1, 2], [3], []])
    assert np.shares_memory(slice_rows(column, 0, 2).values, column.values)
    assert not np.shares_memory(take_rows(column, np.array([0, 1])).values, column.values)


def test_scatter_asks_for_all_memory_at_once() -> None:
    asked: list[list[tuple[Any, Any]]] = []

    def allocate(requests: Any) -> list[Any]:
        asked.append(list(requests))
        return [np.empty(shape, dtype) for shape, dtype in requests]

    part = [to_column(DENSE, [1, 2]), to_column(WORDS, [[[1], [2, 3]], []])]
    scatter_rows([part], [np.array([1, 0])], allocate)
    assert asked == [[((2,), "int64"), ((2,), np.int64), ((2,), np.int64), ((3,), "uint8")]]


def test_parts_of_other_columns_are_refused() -> None:
    with pytest.raises(ValueError, match="parts of different columns"):
        scatter_rows([[to_column(DENSE, [1])], [to_column(RAGGED, [[1]])]], [np.array([0]), np.array([1])])


def test_rows_without_positions_are_refused() -> None:
    with pytest.raises(ValueError, match=r"column 'dense': got 2 rows and 1 positions"):
        scatter_rows([[to_column(DENSE, [1, 2])]], [np.array([0])])


class TestSpans:
    def test_starts(self) -> None:
        assert starts_of(np.array([2, 0, 3])).tolist() == [0, 2, 2]
        assert starts_of(np.empty(0, np.int64)).tolist() == []

    def test_expand(self) -> None:
        assert expand_spans(np.array([5, 9, 0]), np.array([2, 0, 3])).tolist() == [5, 6, 0, 1, 2]

    @pytest.mark.parametrize("scale", [1, 200], ids=["short", "long"])
    @given(lengths=st.lists(st.integers(0, 3), max_size=8), data=st.data())
    def test_copy_equals_slices(self, scale: int, lengths: list[int], data: st.DataObject) -> None:
        length = np.array(lengths, np.int64) * scale
        order = np.array(data.draw(st.permutations(range(len(lengths)))), np.int64)
        source = np.arange(int(length.sum()), dtype=np.int32)
        source_start = starts_of(length)
        out_start = np.empty_like(source_start)
        out_start[order] = starts_of(length[order])
        out = np.full(len(source), -1, np.int32)
        copy_spans(source, source_start, length, out, out_start)
        expected = np.concatenate([source[source_start[i] :][: length[i]] for i in order] or [source])
        assert out.tolist() == expected.tolist()
