"""How a column is shown: as part of a batch, and as the values of its rows. leaves.py has the way there.

Rule 1: a batch shows the column's memory, without a copy of numbers; values of rows own theirs.
Rule 2: the kind of a leaf alone decides: what it shows is of the type and dtype that went in, whatever the rows hold.

Knows nothing of the containers around a leaf (samples.py).
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray

from ..format import backend
from ..format.columns import Column, IntArray
from ..format.records import Bytes
from .marks import RaggedList, RaggedRow
from .ragged import Ragged

UTF8 = ("utf-8", "surrogatepass")  # a str may hold lone surrogates, as file names do


def _bounds(lengths: IntArray) -> Iterator[tuple[int, int]]:
    return pairwise(accumulate(lengths.tolist(), initial=0))


def _offsets(lengths: IntArray) -> torch.Tensor:
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return torch.from_numpy(offsets)


def _tensor_of(column: Column) -> torch.Tensor:
    return torch.from_numpy(column.values)


def _bfloat16_of(column: Column) -> torch.Tensor:
    return as_bfloat16(column.values)


def _payloads_of(column: Column) -> list[bytes]:
    return backend.cut_bytes(cast(Bytes, column.values), column.lengths[-1])


def _strings_of(column: Column) -> list[str]:
    data = memoryview(column.values)  # type: ignore[arg-type]
    return [str(data[start:stop], *UTF8) for start, stop in _bounds(column.lengths[-1])]


def _objects_of(column: Column) -> list[Any]:
    data = memoryview(column.values)  # type: ignore[arg-type]
    return [pickle.loads(data[start:stop]) for start, stop in _bounds(column.lengths[-1])]


def _show_ragged(column: Column) -> Any:
    """A Ragged, within another for each further level; for bytes, nested lists."""
    if column.spec.is_bytes:
        return _group(_payloads_of(column), column.lengths[:-1])
    shown: Any = torch.from_numpy(column.values)
    for lengths in reversed(column.lengths):
        shown = Ragged(shown, _offsets(lengths))
    return shown


def _ragged_rows_of(column: Column) -> list[Any]:
    spec = column.spec
    if spec.is_bytes:
        rows: list[Any] = _payloads_of(column)
    else:
        rows = [column.values[start:stop].copy() for start, stop in _bounds(column.lengths[-1])]
    if spec.levels == 1:
        return [row.view(RaggedRow) for row in rows]
    return [RaggedList(row, spec) for row in _group(rows, column.lengths[:-1])]


def _group(items: list[Any], levels: Sequence[IntArray]) -> list[Any]:
    for lengths in reversed(levels):
        items = [items[start:stop] for start, stop in _bounds(lengths)]
    return items


def as_bfloat16(values: NDArray[Any]) -> torch.Tensor:
    """The bits that stand for bfloat16, which numpy does not have, as a tensor of it."""
    return torch.from_numpy(values).view(torch.bfloat16)


class Shown(NamedTuple):
    """The two ways back from a column."""

    batch: Callable[[Column], Any]  # without a copy of the values
    rows: Callable[[Column], list[Any]]  # one value a row, each owning its memory


SHOWN = {
    "int": Shown(_tensor_of, lambda column: column.values.tolist()),
    "float": Shown(_tensor_of, lambda column: column.values.tolist()),
    "bool": Shown(_tensor_of, lambda column: column.values.tolist()),
    "scalar": Shown(_tensor_of, lambda column: list(column.values)),
    "array": Shown(_tensor_of, lambda column: [np.array(row) for row in column.values]),
    "tensor": Shown(_tensor_of, lambda column: [row.clone() for row in _tensor_of(column)]),
    "bfloat16": Shown(_bfloat16_of, lambda column: [row.clone() for row in _bfloat16_of(column)]),
    "bytes": Shown(_payloads_of, _payloads_of),
    "str": Shown(_strings_of, _strings_of),
    "ragged": Shown(_show_ragged, _ragged_rows_of),
    "object": Shown(_objects_of, _objects_of),
}

DENSE = frozenset(kind for kind, shown in SHOWN.items() if shown.batch is _tensor_of)  # a tensor over the column's array
LISTED = frozenset(("bytes", "str"))  # one object a row, in a batch as in a sample
