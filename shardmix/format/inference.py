"""Infer features from sample payloads.

Rule 1: FixedLenFeature only where every sample has the feature, with one and the same number of values, at least one: shape ()
for one value, (k,) for k. Anything else (missing, unset, empty, different lengths) is VarLenFeature. In feature lists the
same holds for every step, and a missing list says nothing.
Rule 2: the kinds of a feature must agree. One that no sample sets has no kind and is left out.
Rule 3: a dict form of the tfrecord package asks for a fixed length; where the samples vary that is an error, not a VarLenFeature.
Rule 4: a sample with fields that Example and SequenceExample do not have is no Example, though protobuf would read it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from .declarations import Feature, FixedLenFeature, RawFeature, VarLenFeature
from .messages import load_messages

# The dict forms of the tfrecord package: the list kind that each asks for.
DICT_FORMS = {"byte": "bytes", "float": "float", "int": "int64", None: None}
_DTYPES = {"bytes": "bytes", "float": "float32", "int64": "int64"}
_OTHER_FORMAT = "for records of another format subclass ShardDataset and write parse"


@dataclass
class Seen:
    """What the samples show of one feature."""

    kinds: set[str] = field(default_factory=set)
    lengths: set[int] = field(default_factory=set)
    num_set: int = 0
    num_unset: int = 0  # steps or records that name the feature, but set no kind

    def add(self, feature: Any) -> None:
        """Take in one Feature message."""
        which = feature.WhichOneof("kind")
        if which is None:
            self.num_unset += 1
            return
        self.num_set += 1
        self.kinds.add(which.removesuffix("_list"))
        self.lengths.add(len(getattr(feature, which).value))


@dataclass
class Observed:
    """What the samples show."""

    context: dict[str, Seen] = field(default_factory=dict)
    lists: dict[str, Seen] = field(default_factory=dict)
    num_samples: int = 0
    is_sequence: bool = False


def observe_samples(samples: Iterable[memoryview | bytes]) -> Observed:
    """Take in all samples. Raises ValueError when there are none, or one is no Example or SequenceExample."""
    messages = load_messages()
    seen = Observed()
    for payload in samples:
        try:
            # A SequenceExample's context has the field number of an Example's features: one class reads both.
            message = messages.SequenceExample.FromString(bytes(payload))
        except messages.DecodeError:
            raise ValueError(_describe_no_example(seen.num_samples, payload)) from None
        size = message.ByteSize()
        message.DiscardUnknownFields()
        if message.ByteSize() != size:
            raise ValueError(_describe_no_example(seen.num_samples, payload))
        seen.num_samples += 1
        seen.is_sequence = seen.is_sequence or message.HasField("feature_lists")
        for name, feature in message.context.feature.items():
            seen.context.setdefault(name, Seen()).add(feature)
        for name, steps in message.feature_lists.feature_list.items():
            of_list = seen.lists.setdefault(name, Seen())
            for feature in steps.feature:
                of_list.add(feature)
    if not seen.num_samples:
        raise ValueError("features: there are no records to infer them from; declare them")
    if not seen.context and not seen.lists:
        raise ValueError(f"features: none in {seen.num_samples} sampled records; {_OTHER_FORMAT}")
    return seen


def infer_features_of(
    seen: Mapping[str, Seen], declared: Mapping[str, Any] | None, num_samples: int, *, in_lists: bool
) -> dict[str, Feature]:
    """The declared features with the dict forms filled in; all that were seen, sorted by name, when `declared` is None."""
    if declared is None:
        inferred = {name: _infer(name, seen[name], num_samples, in_lists) for name in sorted(seen)}
        return {name: feature for name, feature in inferred.items() if feature is not None}
    return {
        name: form
        if isinstance(form, (FixedLenFeature, VarLenFeature, RawFeature))
        else _fill_in(name, form, seen, num_samples, in_lists)
        for name, form in declared.items()
    }


def _infer(name: str, seen: Seen, num_samples: int, in_lists: bool) -> Feature | None:
    """The feature that the samples show, None where they show no kind."""
    if len(seen.kinds) > 1:
        kinds = " in one record, ".join(_DTYPES[kind] for kind in sorted(seen.kinds))
        raise ValueError(f"feature {name!r}: {kinds} in another; features are of one kind, declare those to decode")
    if not seen.kinds:
        return None
    dtype = _DTYPES[next(iter(seen.kinds))]
    is_always_set = seen.num_unset == 0 and (in_lists or seen.num_set == num_samples)
    if not is_always_set or len(seen.lengths) > 1 or 0 in seen.lengths:
        return VarLenFeature(dtype)
    (length,) = seen.lengths
    return FixedLenFeature(() if length == 1 else (length,), dtype)


def _fill_in(name: str, form: str | None, seen: Mapping[str, Seen], num_samples: int, in_lists: bool) -> Feature:
    """The fixed-length feature that a dict form stands for."""
    if name not in seen:
        others = ", ".join(map(repr, sorted(seen))) or "none"
        where = "feature lists" if in_lists else "features"
        raise ValueError(f"feature {name!r}: in none of {num_samples} sampled records; their {where}: {others}")
    feature = _infer(name, seen[name], num_samples, in_lists)
    if feature is None:
        raise ValueError(f"feature {name!r}: set in none of {num_samples} sampled records; declare its dtype")
    wanted = DICT_FORMS[form]
    if wanted is not None and _DTYPES[wanted] != feature.dtype:
        raise ValueError(f"feature {name!r}: declared {form!r}, which is {_DTYPES[wanted]}; the records hold {feature.dtype}")
    if isinstance(feature, VarLenFeature):
        raise ValueError(
            f"feature {name!r}: {_describe_variation(seen[name], num_samples, in_lists)}, and {form!r} asks for a fixed "
            f"number; declare {feature!r}"
        )
    return feature


def _describe_variation(seen: Seen, num_samples: int, in_lists: bool) -> str:
    """Why a feature is not of fixed length."""
    lengths = sorted(seen.lengths)
    if len(lengths) > 1:
        return f"{lengths[0]} to {lengths[-1]} values in the sampled {'steps' if in_lists else 'records'}"
    if lengths == [0]:
        return "no values in the sampled records"
    if in_lists:
        return f"unset in {seen.num_unset} of {seen.num_set + seen.num_unset} sampled steps"
    return f"missing in {num_samples - seen.num_set} of {num_samples} sampled records"


def _describe_no_example(sample: int, payload: memoryview | bytes) -> str:
    return (
        f"features: sampled record {sample} of {len(payload)} bytes is no tf.train.Example or SequenceExample "
        f"(it begins with {bytes(payload[:16])!r}); {_OTHER_FORMAT}"
    )
