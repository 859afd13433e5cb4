"""The protobuf messages Example and SequenceExample, as the tfrecord package and TensorFlow define them.

Rule 1: they live in a descriptor pool of their own. tfrecord's generated module puts them into protobuf's global pool, where they
clash with TensorFlow's (`duplicate symbol 'tensorflow.BytesList'`, tfrecord #103): whichever is imported second fails. From
here either, both or none may be imported, in any order. A test holds the definitions equal to tfrecord's.
Rule 2: nothing is built, and protobuf is not imported, before the first call.

Source: tensorflow/core/example/feature.proto and example.proto.
"""

from __future__ import annotations

from functools import cache
from typing import Any, NamedTuple

_PACKAGE = "tensorflow"

# message: (field, number, is_repeated, type). A map is a repeated message of (key, value), marked by its name.
_MESSAGES: dict[str, tuple[tuple[str, int, bool, str], ...]] = {
    "BytesList": (("value", 1, True, "bytes"),),
    "FloatList": (("value", 1, True, "float"),),
    "Int64List": (("value", 1, True, "int64"),),
    "Feature": (
        ("bytes_list", 1, False, "BytesList"),
        ("float_list", 2, False, "FloatList"),
        ("int64_list", 3, False, "Int64List"),
    ),
    "Features": (("feature", 1, True, "Features.FeatureEntry"),),
    "Features.FeatureEntry": (("key", 1, False, "string"), ("value", 2, False, "Feature")),
    "FeatureList": (("feature", 1, True, "Feature"),),
    "FeatureLists": (("feature_list", 1, True, "FeatureLists.FeatureListEntry"),),
    "FeatureLists.FeatureListEntry": (("key", 1, False, "string"), ("value", 2, False, "FeatureList")),
    "Example": (("features", 1, False, "Features"),),
    "SequenceExample": (("context", 1, False, "Features"), ("feature_lists", 2, False, "FeatureLists")),
}


class Messages(NamedTuple):
    """The message classes."""

    Example: Any
    SequenceExample: Any
    DecodeError: type[Exception]  # what `FromString` raises for bytes that are no such message
    EncodeError: type[Exception]  # what `SerializeToString` raises for more than 2 GiB


@cache
def load_messages() -> Messages:
    """The message classes; built once, on the first call."""
    from google.protobuf import descriptor_pool, message, message_factory

    pool = descriptor_pool.DescriptorPool()
    pool.AddSerializedFile(_describe_file())
    example, sequence = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in ("Example", "SequenceExample")
    )
    return Messages(example, sequence, message.DecodeError, message.EncodeError)


def _describe_file() -> bytes:
    """The definitions above as a serialized FileDescriptorProto."""
    from google.protobuf import descriptor_pb2

    file = descriptor_pb2.FileDescriptorProto(name="shardmix/example.proto", package=_PACKAGE, syntax="proto3")
    descriptors: dict[str, Any] = {}
    for name, fields in _MESSAGES.items():
        parent, _, own = name.rpartition(".")
        descriptor = (descriptors[parent].nested_type if parent else file.message_type).add(name=own)
        descriptors[name] = descriptor
        if parent:
            descriptor.options.map_entry = True
        if name == "Feature":
            descriptor.oneof_decl.add(name="kind")
        for field, number, is_repeated, kind in fields:
            _describe_field(descriptor, field, number, is_repeated, kind)
    return bytes(file.SerializeToString())


def _describe_field(descriptor: Any, name: str, number: int, is_repeated: bool, kind: str) -> None:
    """Add one field to a message."""
    field = descriptor.field.add(name=name, number=number)
    field.label = field.LABEL_REPEATED if is_repeated else field.LABEL_OPTIONAL
    if kind in _MESSAGES:
        field.type, field.type_name = field.TYPE_MESSAGE, f".{_PACKAGE}.{kind}"
        if descriptor.name == "Feature":
            field.oneof_index = 0
        return
    field.type = getattr(field, f"TYPE_{kind.upper()}")
    if is_repeated and kind != "bytes":
        field.options.packed = True
