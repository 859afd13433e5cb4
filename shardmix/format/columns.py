"""Columns: one feature of many records, as few flat arrays, dense, ragged or bytes alike.

Rule 1: one layout for all kinds. `values` holds the innermost items of all rows end to end, shape (items, *item_shape). Each
level of `lengths` says how many items of the level below an item has, outermost first. Dense: no levels, items == rows.
Ragged: one level. A list of lists: two. Bytes: the innermost level counts bytes, values are uint8.
Rule 2: dtype, item_shape, levels, is_bytes are the spec, from the declared feature alone, never from the values of a batch.

Knows nothing of protobuf, torch or where the arrays live (memory comes from the caller's `allocate`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import DTypeLike, NDArray

from .backend import copy_spans, place_rows
from .spans import expand_spans, starts_of

IntArray = NDArray[np.int64]
Shape = tuple[int, ...]
# All arrays of a chunk are asked for at once, so that the memory behind them can be sized exactly and allocated once.
Allocate = Callable[[Sequence[tuple[Shape, DTypeLike]]], list[NDArray[np.generic]]]


class ColumnSpec(NamedTuple):
    """What a column looks like, whatever its rows hold."""

    name: str
    dtype: str  # numpy name of the values' dtype; "uint8" for bytes
    item_shape: Shape  # trailing shape of `values`
    levels: int  # number of levels of lengths; 0 is dense
    is_bytes: bool  # the innermost level counts bytes; shown to the user as bytes objects


class Column(NamedTuple):
    """One feature of many rows. For level 0 `lengths[0]` has one entry a row; for level j as many as level j-1 sums to."""

    spec: ColumnSpec
    values: NDArray[np.generic]  # (items, *item_shape)
    lengths: tuple[IntArray, ...]  # one int64 array a level, outermost first


def allocate_arrays(requests: Sequence[tuple[Shape, DTypeLike]]) -> list[NDArray[np.generic]]:
    """Ordinary memory, one array a request: the default `Allocate`."""
    return [np.empty(shape, dtype) for shape, dtype in requests]


def count_rows(column: Column) -> int:
    """The rows of a column."""
    return len(column.lengths[0]) if column.lengths else len(column.values)


def slice_rows(column: Column, start: int, stop: int) -> Column:
    """Rows start … stop-1 of a column, as views. Bounds are those of a Python slice with 0 <= start <= stop."""
    if not column.lengths:
        return Column(column.spec, column.values[start:stop], ())
    lengths = []
    for level in column.lengths:
        lengths.append(level[start:stop])
        start = int(level[:start].sum())
        stop = start + int(lengths[-1].sum())
    return Column(column.spec, column.values[start:stop], tuple(lengths))


def take_rows(column: Column, rows: IntArray) -> Column:
    """Some rows of a column, in the order of `rows` (each 0 … rows-1, repeats allowed), as a copy."""
    rows = np.asarray(rows, np.int64)
    if not column.lengths:
        return Column(column.spec, column.values[rows], ())
    lengths: list[IntArray] = []
    items = rows
    for level in column.lengths:
        start = starts_of(level)[items]
        lengths.append(level[items])
        if len(lengths) < len(column.lengths):
            items = expand_spans(start, lengths[-1])
    values = np.empty((int(lengths[-1].sum()), *column.values.shape[1:]), column.values.dtype)
    copy_spans(column.values, start, lengths[-1], values, starts_of(lengths[-1]))
    return Column(column.spec, values, tuple(lengths))


def scatter_rows(
    parts: Sequence[Sequence[Column]],
    positions: Sequence[IntArray],
    allocate: Allocate = allocate_arrays,
    bounds: Sequence[tuple[int, int]] | None = None,
) -> list[Column]:
    """Put a batch together: row i of every column of parts[j] becomes row positions[j][i] of the result.

    All parts hold the same specs in the same order; together the positions are 0 … rows-1, each once. `bounds`: of parts[j]
    only the rows bounds[j][0] … bounds[j][1]-1. One copy a row; `allocate` is called once, for all columns: for each its levels
    of lengths, outermost first, then its values.

        two = Column(ColumnSpec("x", "int64", (), 0, False), np.array([10, 30]), ())
        one = Column(two.spec, np.array([20]), ())
        scatter_rows([[two], [one]], [np.array([0, 2]), np.array([1])])[0].values     # array([10, 20, 30])

    Raises ValueError when the parts are of different specs, or rows and positions do not fit.
    """
    positions = [np.asarray(place, np.int64) for place in positions]
    bounds = [(0, count_rows(part[0]) if part else 0) for part in parts] if bounds is None else bounds
    _check_parts(parts, positions, bounds)
    num_rows = sum(map(len, positions))
    dense, ragged, sizes = [], [], list[tuple[Shape, DTypeLike]]()
    for column in zip(*parts, strict=True):
        spec = _check_specs(column)
        if spec.levels:
            ragged.append([slice_rows(part, start, stop) for part, (start, stop) in zip(column, bounds, strict=True)])
            sizes += _size_ragged(ragged[-1])
        else:
            dense.append([part.values[start:stop] for part, (start, stop) in zip(column, bounds, strict=True)])
            sizes.append(((num_rows, *spec.item_shape), spec.dtype))
    arrays, result, outs, remaining = iter(allocate(sizes)), [], [], iter(ragged)
    for first in parts[0] if parts else ():
        if first.spec.levels:
            result.append(_scatter_ragged(next(remaining), positions, arrays))
        else:
            outs.append(next(arrays))
            result.append(Column(first.spec, outs[-1], ()))
    place_rows(dense, positions, outs, num_rows)
    return result


def _check_parts(
    parts: Sequence[Sequence[Column]], positions: Sequence[IntArray], bounds: Sequence[tuple[int, int]]
) -> None:
    if not len(parts) == len(positions) == len(bounds):
        raise ValueError(f"scatter_rows: got {len(parts)} parts and positions for {len(positions)}, expected as many")
    for part, place, (start, stop) in zip(parts, positions, bounds, strict=True):
        if len(part) != len(parts[0]):
            raise ValueError(f"scatter_rows: parts of {len(parts[0])} and {len(part)} columns, expected as many")
        if part and (stop - start != len(place) or stop > count_rows(part[0])):
            raise ValueError(
                f"scatter_rows: column {part[0].spec.name!r}: got {stop - start} rows and {len(place)} positions, of "
                f"{count_rows(part[0])} rows"
            )


def _check_specs(column: Sequence[Column]) -> ColumnSpec:
    """The spec of one column, which all parts have."""
    spec = column[0].spec
    for part in column:
        if part.spec is not spec and part.spec != spec:
            raise ValueError(f"scatter_rows: parts of different columns: {spec!r} and {part.spec!r}")
    return spec


def _size_ragged(column: Sequence[Column]) -> list[tuple[Shape, DTypeLike]]:
    """The arrays that one ragged or bytes column of the result needs, from what its parts hold."""
    spec = column[0].spec
    sizes: list[tuple[Shape, DTypeLike]] = [
        ((sum(len(part.lengths[level]) for part in column),), np.int64) for level in range(spec.levels)
    ]
    return [*sizes, ((sum(len(part.values) for part in column), *spec.item_shape), spec.dtype)]


def _scatter_ragged(
    column: Sequence[Column], positions: Sequence[IntArray], arrays: Iterator[NDArray[np.generic]]
) -> Column:
    """One ragged or bytes column of the result, in the next arrays of `arrays`."""
    spec = column[0].spec
    lengths = tuple(cast(IntArray, next(arrays)) for _ in range(spec.levels))
    values = next(arrays)
    # `items[j]`: where the items of parts[j] go, at the level at hand; `starts[j]`: where their spans go, one level below.
    items = list(positions)
    starts: list[IntArray] = []
    for level, out in enumerate(lengths):
        for part, item in zip(column, items, strict=True):
            out[item] = part.lengths[level]
        begin = starts_of(out)
        starts = [begin[item] for item in items]
        if level + 1 < spec.levels:
            items = [expand_spans(at, part.lengths[level]) for at, part in zip(starts, column, strict=True)]
    for part, start in zip(column, starts, strict=True):
        copy_spans(part.values, starts_of(part.lengths[-1]), part.lengths[-1], values, start)
    return Column(spec, values, lengths)
