"""What a user's `parse_batch` returns → columns.

Rule 1: a dict of name → as many rows as records: an array or tensor, a list of bytes, a Ragged; these become columns as they are.
Rule 2: anything else with that many rows (a list of str, of arrays, of objects) is taken row by row, as if `parse` had given it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from ..format.columns import Allocate, Column, ColumnSpec, Shape
from .ragged import Ragged
from .samples import Structure, pack_samples, structure_of_features

_KINDS = "biufc"  # numpy's numbers that torch has as well, bar the widest


def pack_batch(batch: Any, num_rows: int, name: str, allocate: Allocate) -> tuple[Structure, list[Column]]:
    """The columns of a parsed batch. `allocate` is called once.

        pack_batch({"x": np.zeros((2, 3)), "line": [b"a", b"b"]}, 2, "LineDataset.parse_batch", allocate_arrays)

    Raises TypeError when the batch is no dict, ValueError when a value has another number of rows.
    """
    if not isinstance(batch, dict):
        raise TypeError(f"{name}: returned a {type(batch).__name__}, expected a dict of name to a column of {num_rows} rows")
    for key, value in batch.items():
        found = _count_rows(value)
        if found != num_rows:
            raise ValueError(f"{name}: column {key!r} has {found} rows, expected one for each of the {num_rows} records")
    columns = [_find_column(key, value) for key, value in batch.items()]
    known = [column for column in columns if column is not None]
    if len(known) < len(columns) or not known:
        rows = zip(*batch.values(), strict=True) if batch else [()] * num_rows
        return pack_samples([dict(zip(batch, row, strict=True)) for row in rows], allocate)
    return structure_of_features([column.spec for column in known]), _copy(known, allocate)


def _count_rows(value: Any) -> int | None:
    """The rows of a column; None for what has none."""
    try:
        return len(value)
    except TypeError:
        return None


def _find_column(name: Any, value: Any) -> Column | None:
    """The column that a value is as it stands, or None."""
    if not isinstance(name, str):
        return None
    if isinstance(value, Ragged):
        return _ragged_column(name, value)
    if isinstance(value, Sequence) and value and all(type(item) is bytes for item in value):
        data = np.frombuffer(b"".join(value), np.uint8)
        lengths = np.fromiter(map(len, value), np.int64, len(value))
        return Column(ColumnSpec(name, "uint8", (), 1, True), data, (lengths,))
    array = _find_array(value)
    return None if array is None else Column(ColumnSpec(name, array.dtype.name, array.shape[1:], 0, False), array, ())


def _ragged_column(name: str, value: Ragged) -> Column | None:
    levels = []
    inner: Any = value
    while isinstance(inner, Ragged):
        levels.append(np.asarray(inner.lengths))
        inner = inner.values
    array = _find_array(inner)
    if array is None or int(levels[-1].sum()) != len(array):
        return None
    return Column(ColumnSpec(name, array.dtype.name, array.shape[1:], len(levels), False), array, tuple(levels))


def _find_array(value: Any) -> NDArray[Any] | None:
    """The numbers of an array or of a tensor that numpy has a dtype for."""
    if isinstance(value, torch.Tensor):
        if (
            value.requires_grad
            or value.layout is not torch.strided
            or value.device.type != "cpu"
            or value.dtype is torch.bfloat16
        ):
            return None
        value = value.numpy()
    if type(value) is not np.ndarray or value.dtype.kind not in _KINDS or not value.dtype.isnative:
        return None
    return value if value.dtype.itemsize <= 16 and value.dtype.name not in ("longdouble", "float128") else None


def _copy(columns: Sequence[Column], allocate: Allocate) -> list[Column]:
    """The columns in memory of the caller's."""
    requests: list[tuple[Shape, DTypeLike]] = []
    for column in columns:
        requests += [(array.shape, array.dtype) for array in (*column.lengths, column.values)]
    arrays = iter(allocate(requests))
    copies = []
    for column in columns:
        own = [next(arrays) for _ in range(len(column.lengths) + 1)]
        for out, array in zip(own, (*column.lengths, column.values), strict=True):
            np.copyto(out, array)
        copies.append(Column(column.spec, own[-1], tuple(own[:-1])))  # type: ignore[arg-type]
    return copies
