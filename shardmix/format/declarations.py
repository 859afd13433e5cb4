"""The features that a user declares.

Rule 1: what can be wrong with a feature is said when it is declared.
Rule 2: a declared feature is plain data in one form: shape a tuple, dtype numpy's name (or "bytes"), default value a number,
bytes, or nested tuples. So features compare, hash, pickle, and their repr can be pasted.

Knows nothing of records.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .columns import Shape
from .values import to_byte_strings, to_numbers

LIST_DTYPES = ("int64", "float32", "bytes")
MAX_ELEMENTS = 2**31 - 1  # a record has no more bytes
MAX_DIMENSIONS = 32  # numpy takes 64, those of batch and steps included


@dataclass(frozen=True, slots=True, repr=False)
class FixedLenFeature:
    """A feature of the same number of values in every record.

        FixedLenFeature((), "int64")                      # one number: a scalar
        FixedLenFeature((28, 28), "float32")              # 784 numbers, row by row
        FixedLenFeature((), "int64", default_value=-1)    # may be missing

    `shape`: an int, tuple or list. `dtype`: "int64", "float32" or "bytes"; numpy's and torch's names and types do as well.
    `default_value`: taken where the feature is missing (absent, or of unset kind); one value for all elements, or an array of
    the shape. Raises ValueError for another dtype, a shape that no record can hold, or a default value that does not fit.
    """

    shape: Shape
    dtype: Any
    default_value: Any = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _check_shape("FixedLenFeature", self.shape))
        object.__setattr__(self, "dtype", _check_list_dtype("FixedLenFeature", self.dtype))
        if self.default_value is not None:
            object.__setattr__(self, "default_value", _check_default(self))

    def __repr__(self) -> str:
        default = "" if self.default_value is None else f", default_value={self.default_value!r}"
        return f"FixedLenFeature({self.shape!r}, {self.dtype!r}{default})"


@dataclass(frozen=True, slots=True, repr=False)
class VarLenFeature:
    """A feature of any number of values; missing and empty are both no values.

        VarLenFeature("int64")

    `dtype` as in FixedLenFeature. Raises ValueError for another dtype.
    """

    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "dtype", _check_list_dtype("VarLenFeature", self.dtype))

    def __repr__(self) -> str:
        return f"VarLenFeature({self.dtype!r})"


@dataclass(frozen=True, slots=True, repr=False)
class RawFeature:
    """One bytes value that holds an array's raw little-endian bytes.

        RawFeature((28, 28), "uint8")

    `shape`: an int, tuple or list. `dtype`: any number dtype of numpy, bool included. Raises ValueError for another.
    """

    shape: Shape
    dtype: Any

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _check_shape("RawFeature", self.shape))
        object.__setattr__(self, "dtype", _check_raw_dtype(self.dtype))

    def __repr__(self) -> str:
        return f"RawFeature({self.shape!r}, {self.dtype!r})"


Feature = FixedLenFeature | VarLenFeature | RawFeature


def default_array(feature: FixedLenFeature) -> NDArray[Any]:
    """The default value of a number feature, as a new array of its shape."""
    return np.broadcast_to(np.array(feature.default_value, feature.dtype), feature.shape).copy()


def default_bytes(feature: FixedLenFeature) -> list[bytes]:
    """The default value of a bytes feature, as a flat list."""
    count = math.prod(feature.shape)
    return [feature.default_value] * count if isinstance(feature.default_value, bytes) else list(feature.default_value)


def _check_shape(where: str, shape: Any) -> Shape:
    """A shape as a tuple of sizes."""
    sizes = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    try:
        checked = tuple(operator.index(size) for size in sizes)
    except TypeError:
        checked = (-1,)
    if any(size < 0 for size in checked):
        raise ValueError(
            f"{where}: shape: expected sizes of 0 or more, got {shape!r}; where the number varies declare VarLenFeature"
        )
    if len(checked) > MAX_DIMENSIONS or math.prod(size for size in checked if size) > MAX_ELEMENTS:
        raise ValueError(
            f"{where}: shape: expected at most {MAX_DIMENSIONS} dimensions and {MAX_ELEMENTS} elements, got {shape!r}; no record "
            "holds that many"
        )
    return checked


def _find_dtype(dtype: Any) -> np.dtype[Any] | None:
    """The numpy dtype of a name, a numpy or Python type, or a torch dtype; None where there is none."""
    name = str(dtype)
    try:
        return None if dtype is None else np.dtype(name.removeprefix("torch.") if name.startswith("torch.") else dtype)
    except TypeError:
        return None


def _check_list_dtype(where: str, dtype: Any) -> str:
    """One of LIST_DTYPES."""
    found = _find_dtype(dtype)
    name = None if found is None else "bytes" if found == np.dtype("S") else found.name
    if name not in LIST_DTYPES:
        raise ValueError(f'{where}: dtype: expected "int64", "float32" or "bytes", which an Example can hold, got {dtype!r}')
    return name


def _check_raw_dtype(dtype: Any) -> str:
    """The name of a number dtype that is not big-endian."""
    found = _find_dtype(dtype)
    if found is None or found.kind not in "biufc" or found.byteorder == ">":
        raise ValueError(f"RawFeature: dtype: expected a little-endian number dtype of numpy, bool included, got {dtype!r}")
    return found.name


def _check_default(feature: FixedLenFeature) -> Any:
    """The default value as plain data: one value, or nested tuples of the shape."""
    try:
        if feature.dtype == "bytes":
            shape, strings = to_byte_strings(feature.default_value)
            flat: Any = np.empty(len(strings), object)
            flat[:] = strings
            values = flat.reshape(shape)
        else:
            values = to_numbers(feature.default_value, feature.dtype)
    except ValueError as error:
        raise ValueError(f"FixedLenFeature: default_value: {error}") from None
    if values.shape not in ((), feature.shape):
        raise ValueError(
            f"FixedLenFeature: default_value: expected one value or the shape {feature.shape!r}, got shape {values.shape!r}"
        )
    return _to_tuples(values.tolist())


def _to_tuples(value: Any) -> Any:
    return tuple(map(_to_tuples, value)) if isinstance(value, list) else value
