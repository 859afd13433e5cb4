"""What a record holds: the features a user declares, and the schema that they resolve to.

    features = {"label": FixedLenFeature((), "int64"), "tags": VarLenFeature("bytes"), "image": RawFeature((28, 28), "uint8")}
    schema = resolve_schema(features, None, samples)

Rule 1: dtype, shape and container of a column depend on its declared feature alone.
Rule 2: a schema is resolved once, in the main process, and travels to the workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .columns import ColumnSpec, Shape


@dataclass(frozen=True, slots=True)
class FixedLenFeature:
    """A feature of the same number of values in every record."""

    shape: Shape
    dtype: Any
    default_value: Any = None


@dataclass(frozen=True, slots=True)
class VarLenFeature:
    """A feature of any number of values; missing and empty are both no values."""

    dtype: Any


@dataclass(frozen=True, slots=True)
class RawFeature:
    """One bytes value that holds an array's raw little-endian bytes."""

    shape: Shape
    dtype: Any


Feature = FixedLenFeature | VarLenFeature | RawFeature


@dataclass(frozen=True, slots=True)
class SchemaField:
    """One column to decode."""

    name: str
    kind: str  # "bytes" | "float" | "int64": the list kind in the protobuf message
    feature: Feature
    in_lists: bool  # in the feature_lists of a SequenceExample, not in its context
    spec: ColumnSpec


@dataclass(frozen=True, slots=True)
class Schema:
    """The columns to decode of each record, in order. `is_sequence`: the payload is a SequenceExample, else an Example."""

    fields: tuple[SchemaField, ...]
    is_sequence: bool


def needs_samples(features: Mapping[str, Any] | None, sequence_features: Mapping[str, Any] | None) -> bool:
    """Whether resolving wants sample payloads: features=None, or a dict form ("byte", "float", "int", None) without a shape."""
    raise NotImplementedError


def resolve_schema(
    features: Mapping[str, Any] | None,
    sequence_features: Mapping[str, Any] | None,
    samples: Iterable[memoryview] = (),
) -> Schema:
    """Check the declared features and fill in what is inferred from sample payloads."""
    raise NotImplementedError
