"""What a record holds: the features a user declares, and the schema that they resolve to.

    features = {"label": FixedLenFeature((), "int64"), "tags": VarLenFeature("bytes"), "image": RawFeature((28, 28), "uint8")}
    schema = resolve_schema(features, None, samples)

Rule 1: dtype, shape and container of a column depend on its declared feature alone.
Rule 2: a schema is resolved once, in the main process, and travels to the workers.

The features themselves are in declarations.py; what is inferred, and how, in inference.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .columns import ColumnSpec
from .declarations import Feature, FixedLenFeature, RawFeature, VarLenFeature
from .inference import DICT_FORMS, infer_features_of, observe_samples

__all__ = [
    "Feature",
    "FixedLenFeature",
    "RawFeature",
    "Schema",
    "SchemaField",
    "VarLenFeature",
    "check_features",
    "make_field",
    "needs_samples",
    "resolve_schema",
]

# What an Example holds, by dtype: the list kind in the protobuf message.
KINDS = {"int64": "int64", "float32": "float", "bytes": "bytes"}


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


def make_field(name: str, feature: Feature, in_lists: bool) -> SchemaField:
    """The column of one feature. In feature lists every column has one level more, its steps."""
    steps = int(in_lists)
    if isinstance(feature, RawFeature):
        return SchemaField(name, "bytes", feature, in_lists, ColumnSpec(name, feature.dtype, feature.shape, steps, False))
    kind = KINDS[feature.dtype]
    if kind == "bytes":
        is_one = isinstance(feature, FixedLenFeature) and feature.shape == ()
        spec = ColumnSpec(name, "uint8", (), steps + (1 if is_one else 2), True)
    elif isinstance(feature, FixedLenFeature):
        spec = ColumnSpec(name, feature.dtype, feature.shape, steps, False)
    else:
        spec = ColumnSpec(name, feature.dtype, (), steps + 1, False)
    return SchemaField(name, kind, feature, in_lists, spec)


def needs_samples(features: Mapping[str, Any] | Sequence[str] | None, sequence_features: Any = None) -> bool:
    """Whether resolving wants sample payloads: features=None, or a dict form ("byte", "float", "int", None) without a shape."""
    if features is None:
        return True
    declared = [*check_features("features", features).values()]
    declared += check_features("sequence_features", sequence_features or {}).values()
    return not all(isinstance(feature, Feature) for feature in declared)


def resolve_schema(
    features: Mapping[str, Any] | Sequence[str] | None,
    sequence_features: Mapping[str, Any] | Sequence[str] | None = None,
    samples: Iterable[memoryview | bytes] = (),
) -> Schema:
    """Check the declared features and fill in what is inferred from sample payloads.

        resolve_schema({"label": FixedLenFeature((), "int64")}).fields[0].spec.dtype     # 'int64'

    `features`: name → feature, or a dict form of the tfrecord package ("byte", "float", "int", None; a list of names is None for
    each), whose fixed length is inferred; None infers all. `sequence_features`: the same for the feature lists of a
    SequenceExample; None: the payloads are Examples, unless `features` is None too and a sample has feature lists.
    `samples` are read only where `needs_samples`. Declared features keep their order, inferred ones are sorted by name.

    Raises TypeError for what is no mapping, ValueError for what is no feature, a name in both, or what cannot be inferred.
    """
    context = None if features is None else check_features("features", features)
    lists = None if sequence_features is None else check_features("sequence_features", sequence_features)
    is_sequence = lists is not None
    if needs_samples(features, sequence_features):
        seen = observe_samples(samples)
        is_sequence = is_sequence or (context is None and seen.is_sequence)
        resolved = infer_features_of(seen.context, context, seen.num_samples, in_lists=False)
        resolved_lists = infer_features_of(seen.lists, lists, seen.num_samples, in_lists=True) if is_sequence else {}
    else:
        resolved, resolved_lists = dict(context or {}), dict(lists or {})
    _check_names(resolved, resolved_lists)
    fields = [make_field(name, feature, False) for name, feature in resolved.items()]
    fields += [make_field(name, feature, True) for name, feature in resolved_lists.items()]
    return Schema(tuple(fields), is_sequence)


def check_features(where: str, features: Any) -> dict[str, Any]:
    """Declared features as a dict of name → Feature or dict form."""
    if isinstance(features, (list, tuple)):
        features = dict.fromkeys(features)
    if not isinstance(features, Mapping):
        raise TypeError(f"{where}: expected a mapping of name to feature, or a list of names, got {type(features).__name__}")
    for name, feature in features.items():
        if not isinstance(name, str):
            raise TypeError(f"{where}: expected names as str, got {name!r}")
        if not _is_text(name):
            raise ValueError(f"{where}: expected names that UTF-8 can write, as an Example does, got {name!r}")
        is_form = (feature is None or isinstance(feature, str)) and feature in DICT_FORMS
        if not (is_form or isinstance(feature, Feature)):
            raise ValueError(
                f"feature {name!r}: expected a FixedLenFeature, VarLenFeature or RawFeature, "
                f'or one of "byte", "float", "int", None, got {feature!r}'
            )
    return dict(features)


def _is_text(name: str) -> bool:
    """Whether it is free of lone surrogates, which stand for bytes that were no text."""
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True


def _check_names(context: Mapping[str, Feature], lists: Mapping[str, Feature]) -> None:
    both = sorted(context.keys() & lists.keys())
    if both:
        raise ValueError(
            f"feature {both[0]!r}: in features and in sequence_features; a batch has one value of a name, declare one of them"
        )
    if not context and not lists:
        raise ValueError("features: got none to decode; declare some, or subclass ShardDataset and write parse")
