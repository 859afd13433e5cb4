"""tf.train.Example and SequenceExample to columns: the Python twin, through protobuf. It defines what the C twin must give.

What protobuf says:
Rule 1: map entries come in any order, and of a key's entries the last wins; lists may be packed, unpacked, or both, in pieces;
unknown fields are passed over; a key is UTF-8. What protobuf cannot parse is a ParseError of the payload as a whole.
Rule 2: a feature is missing when its key is absent or no kind is set. A set but empty list is not missing: it is empty.
Rule 3: only the fields of the schema are looked at. The first row that fails raises, for the first of its fields, in the schema's
order, that fails; a payload that cannot be parsed fails before all fields.

What a feature says, each a ParseError where it is not so:
Rule 4: FixedLenFeature: of its kind, with exactly as many values as its shape has elements. Missing: the default value, or an
error where there is none. (So an empty list is an error, unless the shape has no elements, and never takes the default.)
Rule 5: VarLenFeature: of its kind, any number of values. Missing: none.
Rule 6: RawFeature: one bytes value of exactly the array's size. Missing is an error.
Rule 7: in feature lists a row is as many steps as the list has, none where the list is missing; rules 4 to 6 hold for each step.
A FixedLenFeature's default value is for a step without a kind.
Rule 8: float values keep all their bits, those of a NaN included.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import ParseError
from .columns import Allocate, Column, allocate_arrays
from .declarations import FixedLenFeature, RawFeature, VarLenFeature, default_array, default_bytes
from .features import Schema, SchemaField
from .messages import load_messages
from .patterns import describe_names
from .records import RecordBlock
from .rows import make_columns
from .targets import RowTargets

_DTYPES = {"bytes": "bytes", "float": "float32", "int64": "int64"}


class FieldError(Exception):
    """A payload that cannot be decoded: `feature` (None: the payload as a whole) and `text`, without its place. Internal."""

    def __init__(self, text: str, feature: str | None = None) -> None:
        super().__init__(text)
        self.text = text
        self.feature = feature


def decode_examples(
    block: RecordBlock, schema: Schema, allocate: Allocate = allocate_arrays, targets: RowTargets | None = None
) -> list[Column]:
    """Decode every row of the block, one column a field of the schema. `allocate` is called once.

    With `targets`, dense columns are written there, and only the others are returned.

    Raises ParseError for the first row (and in it the first field of the schema) that cannot be decoded.
    """
    rows: list[list[Any]] = [[] for _ in schema.fields]
    for row in range(len(block)):
        try:
            values = decode_record(block.payload(row), schema)
        except FieldError as error:
            path, record, offset = block.place(row)
            raise ParseError(error.text, path=path, record=record, offset=offset, feature=error.feature) from None
        for column, value in zip(rows, values, strict=True):
            column.append(value)
    if targets is None:
        return make_columns([field.spec for field in schema.fields], rows, allocate)
    every = np.arange(len(block))
    for number, field in enumerate(schema.fields):
        if not field.spec.levels:
            targets.put(number, every, make_columns([field.spec], [rows[number]])[0], every)
    others = [number for number, field in enumerate(schema.fields) if field.spec.levels]
    return make_columns([schema.fields[number].spec for number in others], [rows[number] for number in others], allocate)


def decode_record(payload: memoryview | bytes, schema: Schema) -> list[Any]:
    """Decode one payload: one value a field of the schema, as rows.py shows them; `rows.make_columns` makes columns of them.

    A dense value is a numpy scalar or an array of its shape; VarLen numbers are an array (n,); bytes are bytes, or a list of
    them; in feature lists an array (steps, *shape), or a list of the above, one a step. All own their memory.
    Raises FieldError.
    """
    messages = load_messages()
    kind = messages.SequenceExample if schema.is_sequence else messages.Example
    try:
        message = kind.FromString(bytes(payload))
    except messages.DecodeError:
        raise FieldError(
            f"payload of {len(payload)} bytes is no tf.train.{kind.__name__} (it begins with {bytes(payload[:16])!r}); "
            "for records of another format subclass ShardDataset and write parse"
        ) from None
    context = message.context.feature if schema.is_sequence else message.features.feature
    lists = message.feature_lists.feature_list if schema.is_sequence else {}
    return [_decode_steps(field, lists) if field.in_lists else _decode_value(field, context) for field in schema.fields]


def _decode_value(field: SchemaField, context: Any) -> Any:
    """The value of a feature of the context. Where the key is absent, what is raised says which keys there are."""
    try:
        return _READERS[type(field.feature)](field, context.get(field.name), f"feature {field.name!r}")
    except FieldError as error:
        if field.name in context or not context:
            raise
        names = describe_names(sorted(context), field.name)
        raise FieldError(f"{error.text}; the record holds {names}", error.feature) from None


def _decode_steps(field: SchemaField, lists: Any) -> Any:
    """The value of a feature list: all its steps."""
    steps = lists.get(field.name)
    features = () if steps is None else steps.feature
    read = _READERS[type(field.feature)]
    values = [read(field, feature, f"feature {field.name!r} step {step}") for step, feature in enumerate(features)]
    spec = field.spec
    if spec.levels > 1:
        return values
    return np.array(values, spec.dtype).reshape(len(values), *spec.item_shape)


def _read_fixed(field: SchemaField, feature: Any, where: str) -> Any:
    """Rule 4."""
    declared = field.feature
    assert isinstance(declared, FixedLenFeature)
    values = _read_list(field, feature, where)
    if values is None:
        if declared.default_value is None:
            raise FieldError(
                f"{where}: missing, and it has no default_value; give one, or declare {VarLenFeature(declared.dtype)!r}",
                field.name,
            )
        values = default_bytes(declared) if field.kind == "bytes" else default_array(declared).reshape(-1)
    expected = math.prod(declared.shape)
    if len(values) != expected:
        raise FieldError(
            f"{where}: expected {_count(expected, field.kind)}, got {len(values)}; where the number varies "
            f"declare {VarLenFeature(declared.dtype)!r}",
            field.name,
        )
    if declared.shape == ():
        return values[0]
    return values if field.kind == "bytes" else values.reshape(declared.shape)


def _read_var(field: SchemaField, feature: Any, where: str) -> Any:
    """Rule 5."""
    values = _read_list(field, feature, where)
    if values is None:
        return [] if field.kind == "bytes" else np.empty(0, field.spec.dtype)
    return values


def _read_raw(field: SchemaField, feature: Any, where: str) -> Any:
    """Rule 6."""
    declared = field.feature
    assert isinstance(declared, RawFeature)
    values = _read_list(field, feature, where)
    if values is None:
        raise FieldError(f"{where}: missing, and a RawFeature has no default; declare VarLenFeature('bytes')", field.name)
    if len(values) != 1:
        raise FieldError(f"{where}: expected 1 bytes value, got {len(values)}", field.name)
    dtype = np.dtype(declared.dtype)
    expected = math.prod(declared.shape) * dtype.itemsize
    if len(values[0]) != expected:
        raise FieldError(
            f"{where}: expected {expected} bytes for shape {declared.shape!r} of {dtype.name}, got {len(values[0])}", field.name
        )
    array = np.frombuffer(bytearray(values[0]), dtype)
    return array[0] if declared.shape == () else array.reshape(declared.shape)


_READERS: dict[type, Callable[[SchemaField, Any, str], Any]] = {
    FixedLenFeature: _read_fixed,
    VarLenFeature: _read_var,
    RawFeature: _read_raw,
}


def _read_list(field: SchemaField, feature: Any, where: str) -> Any:
    """The values of a Feature message: a list of bytes, or an array; None when it is missing. Raises for another kind."""
    which = None if feature is None else feature.WhichOneof("kind")
    if which is None:
        return None
    found = which.removesuffix("_list")
    if found != field.kind:
        raise FieldError(f"{where}: expected {_DTYPES[field.kind]} values, got {_DTYPES[found]}", field.name)
    if found == "bytes":
        return list(feature.bytes_list.value)
    if found == "int64":
        return np.array(feature.int64_list.value, np.int64)
    return _read_floats(feature.float_list)


def _read_floats(message: Any) -> NDArray[np.float32]:
    """The values of a FloatList. Through its bytes, as Python's own floats would change the bits of a signalling NaN."""
    message.DiscardUnknownFields()
    size = 4 * len(message.value)
    data = message.SerializeToString()  # packed: a tag, the size, then the values, and nothing after them
    return np.frombuffer(bytearray(data[len(data) - size :]), "<f4")


def _count(number: int, kind: str) -> str:
    return f"{number} {_DTYPES[kind]} value{'' if number == 1 else 's'}"
