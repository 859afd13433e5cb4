"""The rows of columns, one plain value each: what a `transform` sees of an example.

    spec                                        the value of a row
    dense, item_shape ()                        numpy scalar
    dense, item_shape (28, 28)                  ndarray of that shape
    one level, numbers                          ndarray (items, *item_shape)
    one level, bytes                            bytes
    each further level                          a list of those

Rule 1: type, dtype and rank of a value depend on the spec alone, never on what the row holds.
Rule 2: every value owns its memory: changing one changes no other, and none keeps the column alive.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np
from numpy.typing import DTypeLike

from .columns import Allocate, Column, ColumnSpec, IntArray, Shape, allocate_arrays, slice_rows

Row = dict[str, Any]


def row_values(columns: Sequence[Column], row: int) -> Row:
    """The values of one row, by name."""
    return {column.spec.name: column_values(slice_rows(column, row, row + 1))[0] for column in columns}


def all_row_values(columns: Sequence[Column]) -> list[Row]:
    """The values of every row, by name: `[row_values(columns, i) for i in …]`, in one go."""
    names = [column.spec.name for column in columns]
    return [dict(zip(names, values, strict=True)) for values in zip(*map(column_values, columns), strict=True)]


def column_values(column: Column) -> list[Any]:
    """The value of every row of one column."""
    spec, values = column.spec, column.values
    if not column.lengths:
        return [item.copy() for item in values] if spec.item_shape else list(values)
    ends = np.cumsum(column.lengths[-1]).tolist()
    starts = [0, *ends][: len(ends)]
    if spec.is_bytes:
        data = values.tobytes()
        items: list[Any] = [data[a:b] for a, b in zip(starts, ends, strict=True)]
    else:
        items = [values[a:b].copy() for a, b in zip(starts, ends, strict=True)]
    for level in reversed(column.lengths[:-1]):
        rest = iter(items)
        items = [[next(rest) for _ in range(length)] for length in level.tolist()]
    return items


def make_columns(
    specs: Sequence[ColumnSpec], rows: Sequence[Sequence[Any]], allocate: Allocate = allocate_arrays
) -> list[Column]:
    """The columns of plain values: `rows[j]` holds the values of all rows for `specs[j]`.

    The inverse of `column_values`; a dense value or an item may also be a flat array of as many elements. `allocate` is
    called once, for all columns: for each its levels of lengths, outermost first, then its values.
    """
    flat = [_flatten(spec, values) for spec, values in zip(specs, rows, strict=True)]
    requests: list[tuple[Shape, DTypeLike]] = []
    for spec, (lengths, items) in zip(specs, flat, strict=True):
        requests += [((len(level),), np.int64) for level in lengths]
        requests.append(((_count_items(spec, items), *spec.item_shape), spec.dtype))
    arrays = iter(allocate(requests))
    return [_fill(spec, lengths, items, arrays) for spec, (lengths, items) in zip(specs, flat, strict=True)]


def _flatten(spec: ColumnSpec, values: Sequence[Any]) -> tuple[list[list[int]], list[Any]]:
    """The lengths of every level, and the innermost arrays or bytes, end to end."""
    lengths: list[list[int]] = []
    items = list(values)
    for level in range(spec.levels):
        lengths.append(list(map(len, items)))
        if level + 1 < spec.levels:
            items = [inner for item in items for inner in item]
    return lengths, [b"".join(items)] if spec.is_bytes else items


def _count_items(spec: ColumnSpec, items: Sequence[Any]) -> int:
    if spec.is_bytes:
        return sum(map(len, items))
    if not spec.levels:
        return len(items)
    return sum(map(len, items))


def _fill(spec: ColumnSpec, lengths: Sequence[Sequence[int]], items: Sequence[Any], arrays: Iterator[Any]) -> Column:
    """One column, in the next arrays of `arrays`."""
    levels = []
    for level in lengths:
        levels.append(cast(IntArray, next(arrays)))
        levels[-1][:] = level
    values = next(arrays)
    if spec.is_bytes:
        values[:] = np.frombuffer(items[0], np.uint8)
    elif values.size:
        np.concatenate(items, axis=None, out=values.reshape(-1), casting="no")
    return Column(spec, values, tuple(levels))
