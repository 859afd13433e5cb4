"""What records show of their features: counted over payloads, one at a time, in bounded memory.

Rule 1: a feature is *set* where a kind is, *unset* where its key is there without a kind, *missing* where the key is not there,
*empty* where it is set and holds no value. Of a feature list the same is counted over its steps.
Rule 2: of bytes the first VALUES_LOOKED_AT are looked at; what they are is said where all of them are so.
Rule 3: payloads that are no Examples are counted, and nothing is claimed of them beyond what describe_bytes says. One without
features is an Example where others have some.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from ..format.inference import Seen
from .contents import describe_bytes, has_features, parse_example
from .shown import describe_feature

VALUES_LOOKED_AT = 64
EXAMPLES_KEPT = 3


@dataclass
class FeatureFacts:
    """What was seen of one feature."""

    seen: Seen = field(default_factory=Seen)  # kinds, lengths, set, unset
    num_empty: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    steps: set[int] = field(default_factory=set)  # of a feature list: how many steps records have
    num_records: int = 0  # that have the key
    looked_at: list[bytes] = field(default_factory=list)
    byte_lengths: set[int] = field(default_factory=set)  # of single values
    examples: list[Any] = field(default_factory=list)

    def add(self, feature: Any) -> None:
        """Take in one Feature message."""
        self.seen.add(feature)
        which = feature.WhichOneof("kind")
        if which is None:
            return
        kind, values = which.removesuffix("_list"), getattr(feature, which).value
        self.kinds[kind] += 1
        self.num_empty += not values
        if values and len(self.examples) < EXAMPLES_KEPT:
            self.examples.append(describe_feature(feature))
        if kind == "bytes" and values:
            self.byte_lengths.update(map(len, values))
            room = VALUES_LOOKED_AT - len(self.looked_at)
            self.looked_at += list(values[: max(room, 0)])

    def content(self) -> str | None:
        """What the bytes are, or None where that is not plain."""
        return describe_bytes(self.looked_at)


@dataclass
class Facts:
    """What was seen of a corpus."""

    context: dict[str, FeatureFacts] = field(default_factory=dict)
    lists: dict[str, FeatureFacts] = field(default_factory=dict)
    num_records: int = 0
    is_sequence: bool = False
    num_with_features: int = 0
    num_blank: int = 0  # would be an Example without any feature
    others: list[bytes] = field(default_factory=list)  # payloads that are neither, the first of them
    blanks: list[bytes] = field(default_factory=list)

    @property
    def num_examples(self) -> int:
        """Records that are Examples."""
        return self.num_with_features + self.num_blank if self.num_with_features else 0

    def add(self, payload: bytes | memoryview) -> None:
        """Take in one record."""
        self.num_records += 1
        message = parse_example(payload)
        if message is None or not has_features(message):
            kept = self.others if message is None else self.blanks
            if len(kept) < VALUES_LOOKED_AT:
                kept.append(bytes(payload))
            self.num_blank += message is not None
            return
        self.num_with_features += 1
        self.is_sequence = self.is_sequence or message.HasField("feature_lists")
        for name, feature in message.context.feature.items():
            facts = self.context.setdefault(name, FeatureFacts())
            facts.num_records += 1
            facts.add(feature)
        for name, steps in message.feature_lists.feature_list.items():
            facts = self.lists.setdefault(name, FeatureFacts())
            facts.num_records += 1
            facts.steps.add(len(steps.feature))
            for step in steps.feature:
                facts.add(step)


def observe(payloads: Iterable[bytes | memoryview]) -> Facts:
    """Take in payloads.

    observe(read_records("train-00000.tfrecord")).context["label"].kinds
    """
    facts = Facts()
    for payload in payloads:
        facts.add(payload)
    return facts
