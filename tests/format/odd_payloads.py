"""Payloads with what is odd about each in their name: for parity, and as seeds of the fuzzer (fuzz/make_seeds.py).

They are about the features of SCHEMA and SEQUENCE_SCHEMA, which hold every kind of column.
"""

from __future__ import annotations

from shardmix.format.features import FixedLenFeature, RawFeature, VarLenFeature, resolve_schema
from tests.format.wire import (
    delimited,
    entry,
    example,
    feature,
    float_bytes,
    packed,
    plain_example,
    sequence_example,
    unpacked,
    varint,
)

FEATURES = {
    "one": FixedLenFeature((), "int64", default_value=-7),
    "pair": FixedLenFeature((2,), "float32", default_value=[0.5, -0.5]),
    "ints": VarLenFeature("int64"),
    "floats": VarLenFeature("float32"),
    "text": FixedLenFeature((), "bytes", default_value="none"),
    "two": FixedLenFeature((2,), "bytes", default_value=[b"", b"second"]),
    "words": VarLenFeature("bytes"),
}
SCHEMA = resolve_schema(FEATURES)
STRICT_SCHEMA = resolve_schema(
    {
        "one": FixedLenFeature((), "int64"),
        "text": FixedLenFeature((), "bytes"),
        "raw": RawFeature((2,), "uint16"),
        "none": FixedLenFeature((0,), "float32"),
    }
)
SEQUENCE_SCHEMA = resolve_schema(
    {"one": FEATURES["one"], "words": FEATURES["words"]},
    {
        "steps": FixedLenFeature((2,), "int64"),
        "frames": VarLenFeature("float32"),
        "tokens": VarLenFeature("int64"),
        "names": FixedLenFeature((), "bytes", default_value="?"),
        "tags": VarLenFeature("bytes"),
        "pixels": RawFeature((3,), "uint8"),
    },
)
# The same names, so that one payload speaks to all three.
SCHEMAS = {"defaults": SCHEMA, "strict": STRICT_SCHEMA, "sequence": SEQUENCE_SCHEMA}

ONE = feature("int64", packed("int64", [5]))


def ints_of(*varints: bytes) -> bytes:
    """An Example whose feature `ints` is packed of given bytes."""
    return example(entry("ints", feature("int64", delimited(1, b"".join(varints)))))


def swapped_entry(name: str, message: bytes) -> bytes:
    """A map entry with the value before the key."""
    return delimited(1, delimited(2, message) + delimited(1, name.encode()))


USUAL = {
    "empty": b"",
    "no_features": example(),
    "full": plain_example(
        one=("int64", [300]),
        pair=("float", float_bytes(1.5, -2)),
        ints=("int64", [0, 127, 128, 16383, 16384, 2**21, 2**28, 2**35, 2**42, 2**49, 2**56, 2**62, 2**63 - 1]),
        floats=("float", float_bytes(1, 2, 3)),
        text=("bytes", [b"\0tail\0\0"]),
        two=("bytes", [b"a", b""]),
        words=("bytes", [b"", b"x" * 200, b"y"]),
        raw=("bytes", [b"\1\2\3\4"]),
        none=("float", []),
        unasked=("int64", [1, 2, 3]),
    ),
    "negative": plain_example(ints=("int64", [-1, -(2**63), 1] * 9), one=("int64", [-1])),
    "many": plain_example(ints=("int64", [(7**i) % 2**40 for i in range(300)])),
    "set_but_empty": plain_example(ints=("int64", []), floats=("float", []), words=("bytes", [])),
    "unset": plain_example(one=None, pair=None, ints=None, words=None, two=None),
    "strict": plain_example(one=("int64", [1]), text=("bytes", [b"t"]), raw=("bytes", [b"\1\2\3\4"]), none=("float", [])),
    "unicode_key": plain_example(**{"ключ": ("bytes", [b"v"]), "𝄞": ("float", float_bytes(1)), "one": ("int64", [1])}),
    "sequence": sequence_example(
        {"one": ("int64", [3]), "words": ("bytes", [b"w", b""])},
        {
            "steps": [("int64", [1, 2]), ("int64", [3, 400])],
            "frames": [("float", float_bytes(1)), None, ("float", [])],
            "tokens": [("int64", [1, -2, 3]), ("int64", [])],
            "names": [("bytes", [b"n"]), ("bytes", [b""])],
            "tags": [("bytes", [b"a", b"bc"]), None],
            "pixels": [("bytes", [b"rgb"])],
            "unasked": [("float", float_bytes(2)), None],
        },
    ),
    "lists_only": delimited(2, b""),
}

ODD = {
    "another_order": plain_example(words=("bytes", [b"w"]), ints=("int64", [1]), one=("int64", [2])),
    "duplicate_key": example(entry("one", feature("int64", packed("int64", [1]))), entry("one", ONE)),
    "duplicate_key_then_unset": example(entry("one", ONE), entry("one", b"")),
    "duplicate_unasked_key": example(entry("z", ONE), entry("z", b""), entry("one", ONE)),
    "features_twice": example(entry("one", ONE)) + example(entry("ints", ONE)),
    "value_before_key": example(swapped_entry("one", ONE)),
    "entry_without_key": example(delimited(1, delimited(2, ONE))),
    "entry_without_value": example(delimited(1, delimited(1, b"one"))),
    "entry_with_two_values": example(delimited(1, delimited(1, b"ints") + delimited(2, ONE) * 2)),
    "two_kinds": example(entry("one", ONE + feature("bytes", packed("bytes", [b"x"])))),
    "kind_twice": example(entry("ints", ONE + ONE)),
    "unpacked": example(entry("ints", feature("int64", unpacked("int64", [1, -1, 300])))),
    "unpacked_floats": example(entry("floats", feature("float", unpacked("float", float_bytes(1, 2))))),
    "packed_and_unpacked": example(entry("ints", feature("int64", packed("int64", [1, 2]) + unpacked("int64", [3])))),
    "packed_in_pieces": example(entry("ints", feature("int64", packed("int64", [1]) + packed("int64", [2, 3])))),
    "packed_of_nothing": example(entry("ints", feature("int64", delimited(1, b"")))),
    "wrong_kind": plain_example(one=("float", float_bytes(1))),
    "wrong_kind_empty": plain_example(one=("bytes", []), ints=("float", [])),
    "too_many": plain_example(one=("int64", [1, 2])),
    "too_few": plain_example(one=("int64", []), pair=("float", float_bytes(1))),
    "raw_too_short": plain_example(one=("int64", [1]), text=("bytes", [b""]), raw=("bytes", [b"\1\2\3"]), none=("float", [])),
    "raw_twice": plain_example(one=("int64", [1]), text=("bytes", [b""]), raw=("bytes", [b"\1\2", b"\3\4"]), none=("float", [])),
    "floats_cut": example(entry("floats", feature("float", delimited(1, b"12345")))),
    "unknown_field_first": delimited(15, b"what") + example(entry("one", ONE)),
    "unknown_field_in_features": example(entry("one", ONE), delimited(3, b"what")),
    "unknown_field_in_entry": example(delimited(1, delimited(1, b"one") + delimited(2, ONE) + delimited(3, b"what"))),
    "unknown_field_in_feature": example(entry("one", ONE + delimited(4, b"what"))),
    "unknown_field_in_list": example(entry("one", feature("int64", packed("int64", [5]) + delimited(2, b"what")))),
    "unknown_varint": varint(14 << 3) + b"\x07" + example(entry("one", ONE)),
    "unknown_group": example(entry("one", ONE)) + varint(9 << 3 | 3) + varint(1 << 3) + b"\x07" + varint(9 << 3 | 4),
    "open_group": example(entry("one", ONE)) + varint(9 << 3 | 3),
    "closed_group": example(entry("one", ONE)) + varint(9 << 3 | 4),
    "field_number_zero": example(entry("one", ONE)) + b"\x02\x00",
    "wire_type_7": example(entry("one", ONE)) + b"\x0f",
    "overlong_tag": example(entry("one", ONE)).replace(b"\x0a", b"\x8a\x00", 1),
    "overlong_length": b"\x0a\x80\x00",
    "length_of_six_bytes": b"\x0a\x80\x80\x80\x80\x80\x00",
    "length_beyond": b"\x0a\x7f" + bytes(9),
    "length_of_4_gib": b"\x0a\xff\xff\xff\xff\x0f",
    "length_negative": b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01",
    "varint_overlong": ints_of(b"\x81\x80\x00", b"\x05"),
    "varint_overlong_in_ten_bytes": ints_of(b"\x81" + b"\x80" * 8 + b"\x00"),
    "varint_of_70_bits": ints_of(b"\xff" * 9 + b"\x7f"),
    "varint_of_eleven_bytes": ints_of(b"\xff" * 10 + b"\x01"),
    "varint_of_eleven_bytes_among_many": ints_of(b"\x01" * 59, b"\xff" * 10 + b"\x01", b"\x01" * 99),
    "varint_cut": ints_of(b"\x01\x02\x83"),
    "varint_cut_among_many": ints_of(b"\x01" * 100, b"\xff" * 9),
    "key_cut_utf8": example(delimited(1, delimited(1, b"caf\xc3") + delimited(2, ONE))),
    "key_overlong_utf8": example(delimited(1, delimited(1, b"\xc0\x80") + delimited(2, ONE))),
    "key_surrogate": example(delimited(1, delimited(1, b"\xed\xa0\x80") + delimited(2, ONE))),
    "key_beyond_unicode": example(delimited(1, delimited(1, b"\xf4\x90\x80\x80") + delimited(2, ONE))),
    "key_latin1": example(delimited(1, delimited(1, b"\xe9t\xe9") + delimited(2, ONE))),
    "key_empty": plain_example(**{"": ("int64", [1])}),
    "key_is_prefix": plain_example(on=("int64", [1]), onee=("int64", [2]), one=("int64", [3])),
    "unasked_is_damaged": example(entry("z", feature("int64", delimited(1, b"\xff"))), entry("one", ONE)),
    "not_an_example": b"hello, this is plain text",
    "lists_in_an_example": example(entry("one", ONE)) + delimited(2, entry("steps", delimited(1, ONE))),
    "lists_before_context": delimited(2, entry("tokens", delimited(1, ONE))) + example(entry("one", ONE)),
    "lists_twice": delimited(2, entry("tokens", delimited(1, ONE))) * 2,
    "list_key_twice": delimited(2, entry("tokens", delimited(1, ONE)) * 2),
    "step_without_kind": sequence_example({}, {"names": [None], "tokens": [None]}),
    "step_of_wrong_kind": sequence_example({}, {"tokens": [("int64", [1]), ("float", float_bytes(1))]}),
    "step_of_wrong_size": sequence_example({}, {"steps": [("int64", [1, 2]), ("int64", [1])]}),
    "step_unpacked": delimited(2, entry("tokens", delimited(1, feature("int64", unpacked("int64", [1, 2]))))),
    "step_of_unknown_field": delimited(2, entry("tokens", delimited(1, ONE) + delimited(2, b"what"))),
    "raw_step_missing": sequence_example({}, {"pixels": [None]}),
}

PAYLOADS = {**USUAL, **ODD}
