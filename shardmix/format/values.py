"""A user's values as arrays of a wanted dtype: scalars, nested lists, numpy arrays, torch tensors; bytes and text.

Rule 1: nothing is lost in silence. Integers keep their value or are refused; floats are rounded to the wanted precision, but a
finite number never becomes infinite; a float is no integer; bytes keep their trailing NULs. Text becomes UTF-8.
Rule 2: errors are ValueErrors that say what was expected and got; the caller puts the feature's name before.

Knows nothing of protobuf; tells a torch tensor by its `detach`, without importing torch.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

BytesLike = (bytes, bytearray, memoryview, str)
_Integers = (int, np.integer, np.bool_)
_Floats = (float, np.floating)


def find_kind(value: Any) -> str | None:
    """The list kind that holds a value: "int64" (also for bools), "float" or "bytes"; None for an empty list, which has none."""
    if isinstance(value, BytesLike):
        return "bytes"
    if isinstance(value, _Integers):
        return "int64"
    if isinstance(value, _Floats):
        return "float"
    if isinstance(value, (list, tuple)):
        kinds = {kind for kind in map(find_kind, value) if kind is not None}
        if len(kinds) > 1 and "bytes" in kinds:
            raise ValueError("got bytes and numbers in one list, expected one kind")
        return ("float" if len(kinds) > 1 else kinds.pop()) if kinds else None
    array = to_numpy(value)
    if array.dtype == object:
        if array.ndim == 0:
            raise ValueError(f"expected numbers, bytes or text, got {type(value).__name__}")
        return find_kind(array.ravel().tolist())
    kind = {"b": "int64", "i": "int64", "u": "int64", "f": "float", "S": "bytes", "U": "bytes"}.get(array.dtype.kind)
    if kind is None:
        raise ValueError(f"expected numbers, bytes or text, got {array.dtype}")
    return kind


def to_numpy(value: Any) -> NDArray[Any]:
    """A value as a numpy array, without a copy where it is one; a tensor may need a gradient or live on a device."""
    if hasattr(value, "detach"):
        value = value.detach().cpu()
    try:
        return np.asarray(value)
    except (TypeError, ValueError) as error:
        raise ValueError(f"expected an array, got {type(value).__name__}: {error}") from error


def to_numbers(value: Any, dtype: str) -> NDArray[Any]:
    """A value as an array of a number dtype, in its own shape."""
    array, wanted = to_numpy(value), np.dtype(dtype)
    if array.dtype == object and array.size:
        # Python integers of more than 64 bits end here.
        raise ValueError(f"expected {wanted} values, got {_show(array)}")
    if array.size == 0 or array.dtype == wanted:
        return np.ascontiguousarray(array, wanted).reshape(array.shape)
    if wanted.kind in "iu":
        return _to_integers(array, wanted)
    accepted = {"b": "b", "f": "biuf", "c": "biufc"}[wanted.kind]
    if array.dtype.kind not in accepted:
        raise ValueError(f"expected {wanted} values, got {array.dtype}")
    with np.errstate(over="ignore"):
        out = array.astype(wanted)
    if wanted.kind in "fc" and not np.array_equal(np.isinf(out), np.isinf(array)):
        raise ValueError(f"{_show(array[np.isinf(out) & ~np.isinf(array)])} does not fit {wanted}")
    return np.ascontiguousarray(out).reshape(array.shape)


def _to_integers(array: NDArray[Any], wanted: np.dtype[Any]) -> NDArray[Any]:
    if array.dtype.kind not in "biu":
        raise ValueError(f"expected {wanted} values, got {array.dtype}")
    limits = np.iinfo(wanted)
    for number in (int(array.min()), int(array.max())):
        if not limits.min <= number <= limits.max:
            raise ValueError(f"{number} does not fit {wanted}")
    return np.ascontiguousarray(array.astype(wanted)).reshape(array.shape)


def to_byte_strings(value: Any) -> tuple[tuple[int, ...], list[bytes]]:
    """The shape of a nesting of bytes or text, and its strings, flat."""
    if isinstance(value, BytesLike):
        return (), [_to_bytes(value)]
    if isinstance(value, (list, tuple)):
        inner = [to_byte_strings(item) for item in value]
        shapes = {shape for shape, _ in inner}
        if len(shapes) > 1:
            raise ValueError("expected lists of one length, got different ones in one list")
        return (len(inner), *(shapes.pop() if shapes else ())), [item for _, items in inner for item in items]
    array = to_numpy(value)
    if array.dtype.kind not in "SUO" and array.size:
        raise ValueError(f"expected bytes or text, got {array.dtype}")
    strings = [_to_bytes(item) for item in array.ravel().tolist()]
    return array.shape, strings


def _to_bytes(value: Any) -> bytes:
    if not isinstance(value, BytesLike):
        raise ValueError(f"expected bytes or text, got {type(value).__name__}")
    return value.encode() if isinstance(value, str) else bytes(value)


def _show(array: NDArray[Any]) -> str:
    """The first element of an array, for an error."""
    return repr(array.ravel()[0].item() if array.dtype != object else array.ravel()[0])
