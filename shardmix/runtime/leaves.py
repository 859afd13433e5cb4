"""Leaves: how one value of a sample becomes a column; shown.py has the way back.

Rule 1: a leaf is the same place of many samples; it makes a column when all its values are of one type, dtype and shape.
Rule 2: nothing is changed on the way: a column gives back values of the type, dtype and bits that went in.
Rule 3: what has no exact column (subclasses, gradients, sparse or foreign memory, numbers beyond 64 bits) is not uniform.

Knows nothing of the containers around a leaf (samples.py).
"""

from __future__ import annotations

import pickle
from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from copyreg import dispatch_table
from io import BytesIO
from itertools import chain
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from ..format.columns import Column, ColumnSpec, IntArray, Shape
from .marks import RaggedList, RaggedRow
from .shown import UTF8, as_bfloat16

Array = NDArray[Any]
_NUMBERS = tuple(
    "bool int8 int16 int32 int64 uint8 uint16 uint32 uint64 float16 float32 float64 complex64 complex128".split()
)  # what numpy and torch both have
_TORCH_NUMBERS = {getattr(torch, name): name for name in _NUMBERS}


class NotUniformError(Exception):
    """The values are not of one type, dtype and shape."""


class Leaf(NamedTuple):
    """One column to be: what it looks like, and who writes its values once there is memory for them."""

    kind: str  # a key of shown.SHOWN
    spec: ColumnSpec
    num_items: int
    lengths: tuple[IntArray, ...]
    write: Callable[[Array], object]

    def requests(self) -> list[tuple[Shape, DTypeLike]]:
        """The arrays that the column needs: values, then one a level."""
        return [((self.num_items, *self.spec.item_shape), self.spec.dtype), *((level.shape, np.int64) for level in self.lengths)]

    def fill(self, arrays: Iterator[Array]) -> Column:
        """Write into the next arrays."""
        values = next(arrays)
        self.write(values)
        levels = []
        for lengths in self.lengths:
            level = next(arrays)
            level[...] = lengths
            levels.append(level)
        return Column(self.spec, values, tuple(levels))


def plan_leaf(values: Sequence[Any], name: str) -> Leaf:
    """How the values travel. Raises NotUniformError where they have no column of their own."""
    kind = only(set(map(type, values)))
    if kind in _PLANS:
        return _PLANS[kind](values, name)
    if issubclass(kind, np.generic):
        return _plan_numpy_scalars(values, name)
    raise NotUniformError


def only(found: set[Any]) -> Any:
    """The one element of a set. Raises NotUniformError when there are others."""
    if len(found) != 1:
        raise NotUniformError
    return found.pop()


def _plan_numbers(kind: str, dtype: str) -> Callable[[Sequence[Any], str], Leaf]:
    def plan(values: Sequence[Any], name: str) -> Leaf:
        try:
            array = np.array(values, dtype)
        except OverflowError:  # torch.tensor would refuse it as well; then the error is torch's
            raise NotUniformError from None
        return _dense(kind, name, array.dtype, (), len(values), lambda out: np.copyto(out, array))

    return plan


def _plan_numpy_scalars(values: Sequence[Any], name: str) -> Leaf:
    dtype = values[0].dtype
    return _dense("scalar", name, dtype, (), len(values), lambda out: np.copyto(out, np.array(values, dtype)))


def _plan_arrays(values: Sequence[Array], name: str) -> Leaf:
    dtype, shape = values[0].dtype, only(set(map(attrgetter("shape"), values)))
    if any(value.dtype != dtype for value in values):
        raise NotUniformError
    return _dense("array", name, dtype, shape, len(values), lambda out: np.stack(values, out=out))


def _plan_tensors(values: Sequence[torch.Tensor], name: str) -> Leaf:
    if not all(map(_is_plain, values)):
        raise NotUniformError
    dtype, shape = only(set(map(attrgetter("dtype"), values))), tuple(only(set(map(attrgetter("shape"), values))))
    if dtype is torch.bfloat16:  # numpy has no such dtype; its bits travel
        spec = ColumnSpec(name, "uint16", shape, 0, False)
        return Leaf("bfloat16", spec, len(values), (), lambda out: torch.stack(list(values), out=as_bfloat16(out)))
    if dtype not in _TORCH_NUMBERS:
        raise NotUniformError
    dtype = np.dtype(_TORCH_NUMBERS[dtype])
    return _dense("tensor", name, dtype, shape, len(values), lambda out: torch.stack(list(values), out=torch.from_numpy(out)))


def _plan_bytes(values: Sequence[bytes], name: str) -> Leaf:
    return _plan_payloads("bytes", values, name)


def _plan_strings(values: Sequence[str], name: str) -> Leaf:
    return _plan_payloads("str", [value.encode(*UTF8) for value in values], name)


def plan_objects(values: Sequence[Any], name: str) -> Leaf:
    """Whole samples, one pickle each."""
    return _plan_payloads("object", list(map(_dump, values)), name)


def plan_ragged_rows(values: Sequence[Array], name: str) -> Leaf:
    """Marked arrays: one level of lengths."""
    dtype, shape = values[0].dtype, only({value.shape[1:] if value.ndim else None for value in values})
    if shape is None or dtype.name not in _NUMBERS or any(value.dtype != dtype for value in values):
        raise NotUniformError
    lengths = np.fromiter(map(len, values), np.int64, len(values))
    spec = ColumnSpec(name, dtype.name, shape, 1, False)
    return Leaf("ragged", spec, int(lengths.sum()), (lengths,), lambda out: np.concatenate(values, out=out))


def plan_ragged_lists(values: Sequence[RaggedList], name: str) -> Leaf:
    """Marked lists: a level of lengths for each list in a list, and one for the arrays or bytes in the innermost."""
    spec = only({value.spec._replace(name=name) for value in values})
    items: Sequence[Any] = values
    levels = []
    for _ in range(spec.levels - 1):
        if not all(isinstance(item, list) for item in items):
            raise NotUniformError
        levels.append(np.fromiter(map(len, items), np.int64, len(items)))
        items = list(chain.from_iterable(items))
    if not items:
        inner = Leaf("ragged", spec, 0, (np.empty(0, np.int64),), lambda _: None)
    elif spec.is_bytes:
        only(set(map(type, items)) | {bytes})
        inner = _plan_bytes(items, name)
    else:
        only(set(map(type, items)) - {RaggedRow} | {np.ndarray})
        inner = plan_ragged_rows(items, name)
        if (inner.spec.dtype, inner.spec.item_shape) != (spec.dtype, spec.item_shape):
            raise NotUniformError
    return Leaf("ragged", spec, inner.num_items, (*levels, *inner.lengths), inner.write)


def _dense(kind: str, name: str, dtype: np.dtype[Any], shape: Shape, rows: int, write: Callable[[Array], object]) -> Leaf:
    if dtype.name not in _NUMBERS or not dtype.isnative:
        raise NotUniformError
    return Leaf(kind, ColumnSpec(name, dtype.name, shape, 0, False), rows, (), write)


def _plan_payloads(kind: str, values: Sequence[bytes], name: str) -> Leaf:
    lengths = np.fromiter(map(len, values), np.int64, len(values))

    def write(out: Array) -> None:
        if len(out):
            np.concatenate([np.frombuffer(value, np.uint8) for value in values], out=out)

    return Leaf(kind, ColumnSpec(name, "uint8", (), 1, True), int(lengths.sum()), (lengths,), write)


def _is_plain(value: torch.Tensor) -> bool:
    return not (value.is_nested or value.requires_grad) and value.layout is torch.strided and value.device.type == "cpu"


_PLANS: dict[type, Callable[[Any, str], Leaf]] = {
    int: _plan_numbers("int", "int64"),
    float: _plan_numbers("float", "float64"),
    bool: _plan_numbers("bool", "bool"),
    np.ndarray: _plan_arrays,
    np.memmap: _plan_arrays,
    torch.Tensor: _plan_tensors,
    bytes: _plan_bytes,
    str: _plan_strings,
    RaggedRow: plan_ragged_rows,
    RaggedList: plan_ragged_lists,
}


def _dump(sample: Any) -> bytes:
    """One sample by value: torch's own way for other processes would share each tensor through a descriptor."""
    stream = BytesIO()
    pickler = pickle.Pickler(stream, protocol=5)
    pickler.dispatch_table = ChainMap({torch.Tensor: _reduce_tensor}, dispatch_table)  # type: ignore[arg-type]
    try:
        pickler.dump(sample)
    except Exception as error:
        raise TypeError(
            f"a sample of type {type(sample).__name__} cannot be sent from a worker: it does not pickle ({error}); "
            "return values that pickle, such as numbers, arrays, tensors, bytes, str, and dicts or lists of them"
        ) from error
    return stream.getvalue()


def _reduce_tensor(value: torch.Tensor) -> Any:
    """The items of a tensor alone, where torch pickles the whole storage that it is a view of."""
    if _is_plain(value) and value.dtype in _TORCH_NUMBERS:
        return torch.from_numpy, (value.resolve_conj().resolve_neg().numpy(),)
    return value.__reduce_ex__(5)  # type: ignore[no-untyped-call]
