"""Columns: one feature of many records, as few flat arrays, dense, ragged or bytes alike.

Rule 1: one layout for all kinds. `values` holds the innermost items of all rows end to end, shape (items, *item_shape). Each
level of `lengths` says how many items of the level below an item has, outermost first. Dense: no levels, items == rows.
Ragged: one level. A list of lists: two. Bytes: the innermost level counts bytes, values are uint8.
Rule 2: dtype, item_shape, levels, is_bytes are the spec, from the declared feature alone, never from the values of a batch.

Knows nothing of protobuf, torch or where the arrays live (memory comes from the caller's `allocate`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

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


def slice_rows(column: Column, start: int, stop: int) -> Column:
    """Rows start … stop-1 of a column, as views."""
    raise NotImplementedError


def take_rows(column: Column, rows: IntArray) -> Column:
    """Some rows of a column, in the order of `rows`, as a copy."""
    raise NotImplementedError


def scatter_rows(
    parts: Sequence[Sequence[Column]], positions: Sequence[IntArray], allocate: Allocate = allocate_arrays
) -> list[Column]:
    """Put a batch together: row i of every column of parts[j] becomes row positions[j][i] of the result.

    All parts hold the same specs in the same order; together the positions are 0 … rows-1, each once. One copy a row;
    `allocate` is called once, for all columns.
    """
    raise NotImplementedError
