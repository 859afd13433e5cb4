"""Rows: columns shown as plain values, and made of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from shardmix.format.columns import Column, ColumnSpec
from shardmix.format.rows import all_row_values, column_values, make_columns, row_values

pytestmark = pytest.mark.once

# spec, the values of three rows, the same as plain Python
CASES = [
    (ColumnSpec("scalar", "int64", (), 0, False), [np.int64(1), np.int64(-2), np.int64(3)]),
    (ColumnSpec("matrix", "float32", (2, 1), 0, False), [np.array([[i], [2 * i]], np.float32) for i in range(3)]),
    (ColumnSpec("ragged", "int64", (), 1, False), [np.array([1, 2]), np.empty(0, np.int64), np.array([3])]),
    (ColumnSpec("steps", "bool", (2,), 1, False), [np.ones((steps, 2), np.bool_) for steps in (2, 0, 1)]),
    (ColumnSpec("none", "float32", (0,), 0, False), [np.empty(0, np.float32)] * 3),
    (ColumnSpec("bytes", "uint8", (), 1, True), [b"a\0", b"", b"xyz"]),
    (ColumnSpec("words", "uint8", (), 2, True), [[b"a", b""], [], [b"b\0"]]),
    (ColumnSpec("nested", "int64", (), 2, False), [[np.array([1]), np.empty(0, np.int64)], [], [np.array([2, 3])]]),
    (ColumnSpec("deep", "uint8", (), 3, True), [[[b"a"], []], [], [[b"", b"bc"]]]),
]
SPECS = [spec for spec, _ in CASES]
VALUES = [values for _, values in CASES]


def plain(value: Any) -> Any:
    """A value as comparable data: type, dtype and shape beside the numbers."""
    if isinstance(value, list):
        return [plain(item) for item in value]
    if isinstance(value, (np.ndarray, np.generic)):
        return type(value), value.dtype, value.shape, value.tolist()
    return type(value), value


def arrays_in(value: Any) -> list[Any]:
    """The arrays of a value."""
    if isinstance(value, list):
        return [array for item in value for array in arrays_in(item)]
    return [value] if isinstance(value, np.ndarray) else []


@pytest.mark.parametrize(("spec", "values"), CASES, ids=[spec.name for spec in SPECS])
class TestOneColumn:
    def test_comes_back(self, spec: ColumnSpec, values: list[Any]) -> None:
        (column,) = make_columns([spec], [values])
        assert (column.values.dtype, column.values.shape[1:], len(column.lengths)) == (spec.dtype, spec.item_shape, spec.levels)
        assert plain(column_values(column)) == plain(values)

    def test_of_no_rows_comes_back(self, spec: ColumnSpec, values: list[Any]) -> None:
        (column,) = make_columns([spec], [[]])
        assert column.values.shape == (0, *spec.item_shape)
        assert column_values(column) == []

    def test_values_own_their_memory(self, spec: ColumnSpec, values: list[Any]) -> None:
        (column,) = make_columns([spec], [values])
        arrays = arrays_in(column_values(column))
        assert all(array.flags.owndata and array.flags.writeable for array in arrays)
        assert not any(np.shares_memory(array, column.values) for array in arrays)


def test_rows_are_dicts_by_name() -> None:
    columns = make_columns(SPECS, VALUES)
    expected = [{spec.name: plain(values[row]) for spec, values in CASES} for row in range(3)]
    assert [{name: plain(value) for name, value in row.items()} for row in all_row_values(columns)] == expected
    assert [{name: plain(value) for name, value in row_values(columns, i).items()} for i in range(3)] == expected


def test_type_does_not_depend_on_the_values() -> None:
    spec = ColumnSpec("ragged", "float32", (), 1, False)
    columns = Column(spec, np.zeros(1, np.float32), (np.array([1, 0]),))
    one, none = column_values(columns)
    assert (one.shape, none.shape, one.dtype, none.dtype) == ((1,), (0,), np.float32, np.float32)


def test_memory_is_asked_for_once_outermost_level_first() -> None:
    asked = []

    def allocate(requests: Any) -> list[Any]:
        asked.append([(shape, np.dtype(dtype).name) for shape, dtype in requests])
        return [np.empty(shape, dtype) for shape, dtype in requests]

    make_columns(SPECS[3:4] + SPECS[6:7], VALUES[3:4] + VALUES[6:7], allocate)
    assert asked == [[((3,), "int64"), ((3, 2), "bool"), ((3,), "int64"), ((3,), "int64"), ((3,), "uint8")]]
