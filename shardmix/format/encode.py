"""Values to the payload of a tf.train.Example or SequenceExample: the inverse of example.py.

Rule 1: with features, values are checked against them, and what is not declared is refused. Without, the kind is told from the
values: bytes and text are bytes; bools and integers of any width int64; floats of any width float32. An empty list has no kind.
Rule 2: None is a feature that is missing. An empty array, or an empty list of a declared feature, is set and empty.
Rule 3: equal values give equal bytes: keys are sorted.
Rule 4: what a value may be and what is refused for it is in values.py; names are put before its errors here.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .declarations import Feature, FixedLenFeature, RawFeature, VarLenFeature
from .features import KINDS, check_features
from .inference import DICT_FORMS
from .messages import load_messages
from .values import BytesLike, find_kind, to_byte_strings, to_numbers

_DTYPES = {kind: dtype for dtype, kind in KINDS.items()}
Features = Mapping[str, Any] | Sequence[str]


def encode_example(values: Mapping[str, Any], features: Features | None = None) -> bytes:
    """The payload of a tf.train.Example.

        payload = encode_example({"label": 3, "name": "kiwi", "vec": np.zeros(4, np.float32)})
        payload = encode_example({"image": pixels}, {"image": RawFeature((28, 28), "uint8")})

    values: name → a number, bytes or text, a list of those, a numpy array, a torch tensor; None for a missing feature. Arrays of
        more than one dimension are stored row by row.
    features: as in ShardDataset; None tells the kinds from the values.

    Raises ValueError naming the feature: of another kind or shape, out of range, not declared, or missing without a default;
    and ValueError for more than 2 GiB.
    """
    message = load_messages().Example()
    _fill_features(message.features, values, None if features is None else check_features("features", features))
    return _serialize(message)


def encode_sequence_example(
    context: Mapping[str, Any],
    feature_lists: Mapping[str, Any],
    features: Features | None = None,
    sequence_features: Features | None = None,
) -> bytes:
    """The payload of a tf.train.SequenceExample.

        payload = encode_sequence_example({"id": 7}, {"frames": np.zeros((5, 3), np.float32), "words": [["a"], [], ["b", "c"]]})

    context, features: as `encode_example`'s values and features.
    feature_lists: name → the steps, a list or an array with the steps in front; each step is a value as above.
    sequence_features: as in ShardDataset; None tells the kinds from the values, one kind for all steps of a list.

    Raises ValueError naming the feature and the step.
    """
    message = load_messages().SequenceExample()
    _fill_features(message.context, context, None if features is None else check_features("features", features))
    message.feature_lists.SetInParent()
    declared = None if sequence_features is None else check_features("sequence_features", sequence_features)
    _check_declared(feature_lists, declared)
    for name, steps in feature_lists.items():
        if steps is not None:
            _fill_steps(message.feature_lists.feature_list[name], name, steps, None if declared is None else declared[name])
    return _serialize(message)


def _serialize(message: Any) -> bytes:
    """Rule 3."""
    try:
        return bytes(message.SerializeToString(deterministic=True))
    except load_messages().EncodeError:
        raise ValueError("the values take more than 2 GiB, which no protobuf message can hold; write less a record") from None


def _fill_features(message: Any, values: Mapping[str, Any], declared: Mapping[str, Any] | None) -> None:
    """Put values into a Features message."""
    message.SetInParent()
    _check_declared(values, declared)
    for name, value in values.items():
        if value is not None:
            with _naming(f"feature {name!r}"):
                _fill_feature(message.feature[name], value, find_kind(value) if declared is None else declared[name])
    for name, feature in (declared or {}).items():
        if values.get(name) is None and not _may_be_missing(feature):
            raise ValueError(f"feature {name!r}: missing; {feature!r} needs a value in every record")


def _fill_steps(message: Any, name: str, steps: Any, declared: Any) -> None:
    """Put the steps of one feature into a FeatureList message."""
    if isinstance(steps, BytesLike) or not hasattr(steps, "__len__") or getattr(steps, "ndim", 1) == 0:
        raise ValueError(f"feature {name!r}: expected steps, a list or an array, got {type(steps).__name__}")
    if declared is None:
        with _naming(f"feature {name!r}"):
            declared = find_kind([step for step in steps if step is not None])
    for step, value in enumerate(steps):
        with _naming(f"feature {name!r} step {step}"):
            feature = message.feature.add()
            if value is not None:
                _fill_feature(feature, value, declared)
            elif isinstance(declared, Feature) and not _may_be_missing(declared):
                raise ValueError(f"missing; {declared!r} needs a value in every step")


def _fill_feature(message: Any, value: Any, declared: Any) -> None:
    """Put one value into a Feature message. `declared`: a feature, a dict form, or a list kind."""
    feature, kind = _resolve_kind(value, declared)
    if isinstance(feature, RawFeature):
        message.bytes_list.value.append(_to_raw(value, feature))
        return
    target = getattr(message, f"{kind}_list")
    target.SetInParent()  # an empty list is set
    if kind == "bytes":
        shape, strings = to_byte_strings(value)
        target.value.extend(strings)
    else:
        array = to_numbers(value, _DTYPES[kind])
        shape = array.shape
        if kind == "int64":
            target.value.extend(array.ravel().tolist())
        else:
            target.MergeFromString(_pack_floats(array))
    if feature is not None:
        _check_shape(shape, feature)


def _resolve_kind(value: Any, declared: Any) -> tuple[Feature | None, str]:
    """The feature that a value must fit, if one is declared, and its list kind."""
    if isinstance(declared, RawFeature):
        return declared, "bytes"
    if isinstance(declared, (FixedLenFeature, VarLenFeature)):
        return declared, KINDS[declared.dtype]
    kind = declared if declared in _DTYPES else DICT_FORMS[declared] or find_kind(value)
    if kind is None:
        raise ValueError("an empty list has no kind; give an array with a dtype, or declare features")
    return None, kind


def _pack_floats(array: NDArray[Any]) -> bytes:
    """The bytes of a FloatList. Python's own floats would change the bits of a signalling NaN."""
    data = array.astype("<f4").tobytes()
    size, prefix = len(data), bytearray(b"\x0a")
    while size >= 0x80:
        prefix.append(size & 0x7F | 0x80)
        size >>= 7
    prefix.append(size)
    return bytes(prefix) + data


def _check_shape(shape: tuple[int, ...], feature: Feature) -> None:
    """A value must have its feature's shape; a flat list of as many elements does as well."""
    if isinstance(feature, FixedLenFeature):
        if shape not in (feature.shape, (math.prod(feature.shape),)):
            raise ValueError(f"expected the shape {feature.shape!r}, got {shape!r}")
    elif len(shape) > 1:
        raise ValueError(f"a VarLenFeature has one dimension, got the shape {shape!r}")


def _to_raw(value: Any, feature: RawFeature) -> bytes:
    """The bytes of an array; bytes of its size are taken as they are."""
    dtype = np.dtype(feature.dtype)
    num_bytes = math.prod(feature.shape) * dtype.itemsize
    if isinstance(value, (bytes, bytearray, memoryview)):
        if memoryview(value).nbytes != num_bytes:
            raise ValueError(
                f"expected {num_bytes} bytes for the shape {feature.shape!r} of {dtype}, got {memoryview(value).nbytes}"
            )
        return bytes(value)
    array = to_numbers(value, feature.dtype)
    if array.shape != feature.shape:
        raise ValueError(f"expected the shape {feature.shape!r}, got {array.shape!r}")
    return array.tobytes()


def _check_declared(values: Mapping[str, Any], declared: Mapping[str, Any] | None) -> None:
    """Names must be text, and declared."""
    for name in values:
        if not isinstance(name, str):
            raise TypeError(f"expected names as str, got {name!r}")
        if declared is not None and name not in declared:
            raise ValueError(f"feature {name!r}: not declared; declared: {', '.join(map(repr, declared)) or 'none'}")


def _may_be_missing(feature: Any) -> bool:
    return isinstance(feature, VarLenFeature) or (isinstance(feature, FixedLenFeature) and feature.default_value is not None)


@contextmanager
def _naming(where: str) -> Iterator[None]:
    """Put the name of a feature before the text of a ValueError."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error.__cause__
