"""Example payloads byte by byte: what a writer may write, though none of ours does.

`features` maps a name to None (no kind set) or (kind, values), kind "bytes", "float" or "int64"; floats are given as 4 bytes.
`odd_examples` draws such a mapping and one of the many payloads that mean it.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

NUMBERS = {"bytes": 1, "float": 2, "int64": 3}  # of the list kinds in Feature


def varint(number: int) -> bytes:
    """A varint; negative numbers take ten bytes."""
    number &= 2**64 - 1
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def delimited(number: int, data: bytes) -> bytes:
    """A length-delimited field."""
    return varint(number << 3 | 2) + varint(len(data)) + data


def packed(kind: str, values: Sequence[Any]) -> bytes:
    """The values of a list in one piece (bytes lists have no packed form)."""
    if kind == "bytes":
        return unpacked(kind, values)
    return delimited(1, b"".join(values if kind == "float" else map(varint, values)))


def unpacked(kind: str, values: Sequence[Any]) -> bytes:
    """The values of a list, each a field of its own."""
    head = {"bytes": b"\x0a", "float": b"\x0d", "int64": b"\x08"}[kind]
    encode = {"bytes": lambda v: varint(len(v)) + v, "float": bytes, "int64": varint}[kind]
    return b"".join(head + encode(value) for value in values)


def feature(kind: str | None, list_bytes: bytes = b"") -> bytes:
    """A Feature message."""
    return b"" if kind is None else delimited(NUMBERS[kind], list_bytes)


def entry(name: str, message: bytes) -> bytes:
    """A map entry, in Features or in FeatureLists."""
    return delimited(1, delimited(1, name.encode()) + delimited(2, message))


def example(*entries: bytes) -> bytes:
    """An Example of map entries."""
    return delimited(1, b"".join(entries))


def plain_example(**features: Any) -> bytes:
    """An Example as writers write it: `plain_example(label=("int64", [3]), rare=None)`."""
    return example(*(entry(name, _plain_feature(value)) for name, value in features.items()))


def sequence_example(context: dict[str, Any], lists: dict[str, list[Any]]) -> bytes:
    """A SequenceExample as writers write it."""
    entries = [
        entry(name, b"".join(delimited(1, _plain_feature(step)) for step in steps)) for name, steps in lists.items()
    ]
    return plain_example(**context) + delimited(2, b"".join(entries))


def float_bytes(*numbers: float) -> list[bytes]:
    """The bytes of some floats."""
    return [struct.pack("<f", number) for number in numbers]


def _plain_feature(value: Any) -> bytes:
    return feature(None) if value is None else feature(value[0], packed(*value))


# --- Payloads that are odd -----------------------------------------------------------------------------------------------------

_names = st.sampled_from(["a", "b", "label", "ключ", ""])
_values = {
    "bytes": st.lists(st.binary(max_size=4), max_size=3),
    "float": st.lists(st.binary(min_size=4, max_size=4), max_size=3),
    "int64": st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-2, 300), max_size=3),
}
_filled = st.sampled_from(sorted(_values)).flatmap(lambda kind: st.tuples(st.just(kind), _values[kind]))
# Not inside a map entry: there protobuf's implementations differ (upb takes the whole entry for unknown).
_unknown = st.sampled_from(
    [
        *[b""] * 4,
        delimited(15, b"what"),
        varint(14 << 3) + b"\x07",
        varint(13 << 3 | 5) + b"1234",
        varint(12 << 3 | 1) + b"12345678",
    ]
)


@st.composite
def odd_examples(draw: st.DrawFn) -> tuple[dict[str, Any], bytes]:
    """(features, a payload that means them): any order, duplicate keys, lists in pieces, unknown fields, features in pieces."""
    features = draw(st.dictionaries(_names, st.none() | _filled, max_size=4))
    decoys = draw(st.lists(st.tuples(_names.filter(lambda name: name in features), _filled), max_size=2)) if features else []
    entries = [_odd_entry(draw, name, value) for name, value in decoys]
    entries += [_odd_entry(draw, name, features[name]) for name in draw(st.permutations(sorted(features)))]
    cut = draw(st.integers(0, len(entries)))
    pieces = [example(*entries[:cut]), draw(_unknown), example(*entries[cut:])]
    return features, b"".join(pieces)


def _odd_entry(draw: st.DrawFn, name: str, value: Any) -> bytes:
    key = delimited(1, name.encode())
    message = delimited(2, draw(_unknown) + (b"" if value is None else _odd_feature(draw, *value)))
    return delimited(1, message + key if draw(st.booleans()) else key + message)


def _odd_feature(draw: st.DrawFn, kind: str, values: Sequence[Any]) -> bytes:
    """A Feature; a list of another kind may come before its own, which then counts alone."""
    other = draw(st.sampled_from([None, *NUMBERS]))
    before = b"" if other in (None, kind) else feature(other, packed(other, draw(_values[other])))
    cut = draw(st.integers(0, len(values)))
    first, second = (draw(st.sampled_from([packed, unpacked])) for _ in range(2))
    lists = first(kind, values[:cut]) + draw(_unknown) + second(kind, values[cut:]) + draw(_unknown)
    return before + feature(kind, lists)
