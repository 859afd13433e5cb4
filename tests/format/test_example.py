"""Decoding Examples and SequenceExamples: what each declared feature makes of what a record holds."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from shardmix.errors import ParseError
from shardmix.format.columns import Column
from shardmix.format.example import FieldError, decode_examples, decode_record
from shardmix.format.features import FixedLenFeature, RawFeature, VarLenFeature, resolve_schema
from shardmix.format.records import RecordBlock
from shardmix.format.rows import all_row_values
from tests.format import wire

INT = FixedLenFeature((), "int64")
INTS = VarLenFeature("int64")


class Places:
    """Records of one file, 100 bytes apart."""

    def path(self, shard: int) -> str:
        return f"train-{shard}"

    def offset(self, shard: int, record: int) -> int:
        return record * 100


def make_block(*payloads: bytes, first: int = 0) -> RecordBlock:
    """A block of payloads, each in a buffer of its own, of shard 7."""
    rows = np.arange(len(payloads), dtype=np.int64)
    buffers = tuple(np.frombuffer(b"??" + payload, np.uint8) for payload in payloads)
    lengths = np.array([len(payload) for payload in payloads], np.int64)
    return RecordBlock(buffers, rows, np.full_like(rows, 2), lengths, np.full_like(rows, 7), rows + first, Places())


def decode(payload: bytes, feature: Any, name: str = "x") -> Any:
    """The value of one feature of an Example."""
    return decode_record(payload, resolve_schema({name: feature}))[0]


def decode_steps(payload: bytes, feature: Any, name: str = "x") -> Any:
    """The value of one feature list of a SequenceExample."""
    return decode_record(payload, resolve_schema({}, {name: feature}))[0]


def same(got: Any, expected: Any) -> bool:
    """Equal in type, dtype, shape and value."""
    if isinstance(expected, (np.ndarray, np.generic)):
        is_alike = type(got) is type(expected) and (got.dtype, got.shape) == (expected.dtype, expected.shape)
        return is_alike and bool(got.tobytes() == expected.tobytes())
    if isinstance(expected, list):
        return type(got) is list and len(got) == len(expected) and all(map(same, got, expected))
    return type(got) is type(expected) and bool(got == expected)


class TestFixedLenFeature:
    def test_one_number_is_a_scalar(self) -> None:
        assert same(decode(wire.plain_example(x=("int64", [-3])), INT), np.int64(-3))

    def test_one_float_is_a_scalar(self) -> None:
        payload = wire.plain_example(x=("float", wire.float_bytes(0.5)))
        assert same(decode(payload, FixedLenFeature((), "float32")), np.float32(0.5))

    def test_a_shape_is_filled_row_by_row(self) -> None:
        payload = wire.plain_example(x=("int64", [1, 2, 3, 4, 5, 6]))
        assert same(decode(payload, FixedLenFeature((2, 3), "int64")), np.array([[1, 2, 3], [4, 5, 6]]))

    def test_one_value_of_shape_1_is_an_array(self) -> None:
        assert same(decode(wire.plain_example(x=("int64", [1])), FixedLenFeature((1,), "int64")), np.array([1]))

    def test_bytes_are_bytes(self) -> None:
        assert same(decode(wire.plain_example(x=("bytes", [b"\0tail\0\0"])), FixedLenFeature((), "bytes")), b"\0tail\0\0")

    def test_bytes_of_a_shape_are_a_flat_list(self) -> None:
        payload = wire.plain_example(x=("bytes", [b"a", b"", b"c", b"d"]))
        assert same(decode(payload, FixedLenFeature((2, 2), "bytes")), [b"a", b"", b"c", b"d"])

    @pytest.mark.parametrize("payload", [b"", wire.plain_example(y=None), wire.plain_example(x=None)])
    def test_missing_takes_the_default(self, payload: bytes) -> None:
        assert same(decode(payload, FixedLenFeature((), "int64", -1)), np.int64(-1))
        assert same(decode(payload, FixedLenFeature((2,), "float32", 0.5)), np.array([0.5, 0.5], np.float32))
        assert same(decode(payload, FixedLenFeature((2,), "int64", [7, 8])), np.array([7, 8]))
        assert same(decode(payload, FixedLenFeature((), "bytes", "none")), b"none")
        assert same(decode(payload, FixedLenFeature((2,), "bytes", b"")), [b"", b""])
        assert same(decode(payload, FixedLenFeature((2,), "bytes", [b"a", b"b"])), [b"a", b"b"])

    def test_a_default_is_not_shared_by_the_rows(self) -> None:
        feature = FixedLenFeature((2,), "int64", 0)
        first, second = decode(b"", feature), decode(b"", feature)
        first[0] = 9
        assert second.tolist() == [0, 0]

    def test_an_empty_list_is_right_for_a_shape_of_no_elements(self) -> None:
        assert same(decode(wire.plain_example(x=("int64", [])), FixedLenFeature((0, 3), "int64")), np.empty((0, 3), np.int64))


class TestVarLenFeature:
    def test_numbers_are_an_array(self) -> None:
        assert same(decode(wire.plain_example(x=("int64", [5])), INTS), np.array([5]))
        payload = wire.plain_example(x=("float", wire.float_bytes(1, 2)))
        assert same(decode(payload, VarLenFeature("float32")), np.array([1, 2], np.float32))

    def test_bytes_are_a_list(self) -> None:
        assert same(decode(wire.plain_example(x=("bytes", [b"", b"a\0"])), VarLenFeature("bytes")), [b"", b"a\0"])

    @pytest.mark.parametrize("value", [None, ("int64", [])], ids=["unset", "empty"])
    def test_unset_and_empty_are_no_values(self, value: Any) -> None:
        assert same(decode(wire.plain_example(x=value), INTS), np.empty(0, np.int64))

    def test_missing_is_no_values_of_its_dtype(self) -> None:
        assert same(decode(b"", VarLenFeature("float32")), np.empty(0, np.float32))
        assert same(decode(b"", VarLenFeature("bytes")), [])


class TestRawFeature:
    @pytest.mark.parametrize("dtype", ["uint8", "bool", "int16", "float16", "float64", "uint64", "complex64"])
    def test_holds_an_array(self, dtype: str) -> None:
        array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
        assert same(decode(wire.plain_example(x=("bytes", [array.tobytes()])), RawFeature((2, 3), dtype)), array)

    def test_one_number_is_a_scalar(self) -> None:
        assert same(decode(wire.plain_example(x=("bytes", [b"\x01\x02"])), RawFeature((), "uint16")), np.uint16(0x0201))


class TestSequences:
    def test_numbers_of_fixed_length_are_stacked(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1, 2]), ("int64", [3, 4]), ("int64", [5, 6])]})
        assert same(decode_steps(payload, FixedLenFeature((2,), "int64")), np.array([[1, 2], [3, 4], [5, 6]]))

    def test_scalars_are_one_array(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1]), ("int64", [2])]})
        assert same(decode_steps(payload, INT), np.array([1, 2]))

    def test_numbers_of_any_length_are_an_array_a_step(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1, 2]), None, ("int64", [])]})
        none = np.empty(0, np.int64)
        assert same(decode_steps(payload, INTS), [np.array([1, 2]), none, none])

    def test_bytes(self) -> None:
        payload = wire.sequence_example({}, {"x": [("bytes", [b"a"]), ("bytes", [b""])]})
        assert same(decode_steps(payload, FixedLenFeature((), "bytes")), [b"a", b""])
        assert same(decode_steps(payload, VarLenFeature("bytes")), [[b"a"], [b""]])

    def test_raw_arrays_are_stacked(self) -> None:
        payload = wire.sequence_example({}, {"x": [("bytes", [b"\1\2"]), ("bytes", [b"\3\4"])]})
        assert same(decode_steps(payload, RawFeature(2, "uint8")), np.array([[1, 2], [3, 4]], np.uint8))

    @pytest.mark.parametrize(
        ("feature", "none"),
        [
            (FixedLenFeature((2,), "float32"), np.empty((0, 2), np.float32)),
            (RawFeature((2,), "bool"), np.empty((0, 2), np.bool_)),
            (FixedLenFeature((), "bytes"), []),
            (INTS, []),
        ],
    )
    @pytest.mark.parametrize("lists", [{}, {"x": []}], ids=["missing", "empty"])
    def test_a_missing_list_has_no_steps(self, lists: dict[str, Any], feature: Any, none: Any) -> None:
        assert same(decode_steps(wire.sequence_example({}, lists), feature), none)

    def test_a_step_without_a_kind_takes_the_default(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1]), None]})
        assert same(decode_steps(payload, FixedLenFeature((), "int64", -1)), np.array([1, -1]))

    def test_context_and_lists_are_read_from_one_payload(self) -> None:
        schema = resolve_schema({"id": INT}, {"x": INT})
        payload = wire.sequence_example({"id": ("int64", [7])}, {"x": [("int64", [1])], "other": []})
        assert same(decode_record(payload, schema), [np.int64(7), np.array([1])])

    def test_the_context_is_read_as_an_example(self) -> None:
        assert decode(wire.sequence_example({"x": ("int64", [7])}, {"y": []}), INT) == 7


class TestOddMessages:
    @given(odd=wire.odd_examples())
    def test_mean_what_they_say(self, odd: tuple[dict[str, Any], bytes]) -> None:
        features, payload = odd
        dtypes = {"bytes": "bytes", "float": "float32", "int64": "int64"}
        for name, value in features.items():
            if value is None:
                assert decode(payload, INTS, name).tolist() == []
                continue
            kind, values = value
            got = decode(payload, VarLenFeature(dtypes[kind]), name)
            if kind == "float":
                assert got.tobytes() == b"".join(values)
            else:
                assert list(got) == values

    def test_int64_extremes_are_exact(self) -> None:
        numbers = [-(2**63), 2**63 - 1, -1, 0, 2**62, 2**31, -(2**31) - 1]
        assert decode(wire.plain_example(x=("int64", numbers)), INTS).tolist() == numbers

    def test_a_negative_number_takes_ten_bytes(self) -> None:
        assert len(wire.varint(-1)) == 10
        assert decode(wire.plain_example(x=("int64", [-1])), INT) == -1

    def test_the_last_of_two_keys_wins_whole(self) -> None:
        first = wire.entry("x", wire.feature("int64", wire.packed("int64", [1, 2])))
        second = wire.entry("x", wire.feature("int64", wire.packed("int64", [3])))
        assert decode(wire.example(first, second), INTS).tolist() == [3]

    def test_the_last_of_two_keys_may_unset(self) -> None:
        first = wire.entry("x", wire.feature("int64", wire.packed("int64", [1])))
        assert decode(wire.example(first, wire.entry("x", b"")), FixedLenFeature((), "int64", -1)) == -1

    def test_every_bit_of_a_nan_is_kept(self) -> None:
        bits = [b"\x01\x00\x80\x7f", b"\x01\x00\xc0\x7f", b"\xff\xff\xff\xff"]  # signalling, quiet, negative
        packed, unpacked = wire.packed("float", bits), wire.unpacked("float", bits)
        for value in (packed, unpacked, packed + wire.delimited(9, b"new")):
            payload = wire.example(wire.entry("x", wire.feature("float", value)))
            assert decode(payload, VarLenFeature("float32")).tobytes() == b"".join(bits)
            assert decode(payload, FixedLenFeature((3,), "float32")).tobytes() == b"".join(bits)

    def test_every_bit_of_a_nan_in_a_step_is_kept(self) -> None:
        payload = wire.sequence_example({}, {"x": [("float", [b"\x01\x00\x80\x7f"])]})
        assert decode_steps(payload, FixedLenFeature((), "float32")).tobytes() == b"\x01\x00\x80\x7f"

    def test_keys_are_compared_whole(self) -> None:
        payload = wire.plain_example(**{"x": ("int64", [1]), "xy": ("int64", [2]), "": ("int64", [3]), "x\0": ("int64", [4])})
        assert [decode(payload, INT, name) for name in ("x", "xy", "", "x\0")] == [1, 2, 3, 4]


ONE = wire.plain_example(x=("int64", [1]))
TEXTS = [
    (b"", INT, "missing, and it has no default_value; give one, or declare VarLenFeature('int64')"),
    (wire.plain_example(x=None), INT, "missing, and it has no default_value; give one, or declare VarLenFeature('int64')"),
    (
        wire.plain_example(x=("int64", [1, 2])),
        INT,
        "expected 1 int64 value, got 2; where the number varies declare VarLenFeature('int64')",
    ),
    (
        wire.plain_example(x=("float", [])),
        FixedLenFeature((), "float32", 0.0),
        "expected 1 float32 value, got 0; where the number varies declare VarLenFeature('float32')",
    ),
    (
        wire.plain_example(x=("bytes", [b"a"])),
        FixedLenFeature((2, 3), "bytes"),
        "expected 6 bytes values, got 1; where the number varies declare VarLenFeature('bytes')",
    ),
    (ONE, FixedLenFeature((), "float32"), "expected float32 values, got int64"),
    (wire.plain_example(x=("int64", [])), FixedLenFeature((0,), "float32", 0.0), "expected float32 values, got int64"),
    (ONE, VarLenFeature("bytes"), "expected bytes values, got int64"),
    (wire.plain_example(x=("bytes", [])), INTS, "expected int64 values, got bytes"),
    (b"", RawFeature((), "uint8"), "missing, and a RawFeature has no default; declare VarLenFeature('bytes')"),
    (ONE, RawFeature((), "uint8"), "expected bytes values, got int64"),
    (wire.plain_example(x=("bytes", [])), RawFeature((), "uint8"), "expected 1 bytes value, got 0"),
    (wire.plain_example(x=("bytes", [b"a", b"b"])), RawFeature((), "uint8"), "expected 1 bytes value, got 2"),
    (
        wire.plain_example(x=("bytes", [b"abc"])),
        RawFeature((2, 2), "int16"),
        "expected 8 bytes for shape (2, 2) of int16, got 3",
    ),
]


class TestErrors:
    @pytest.mark.parametrize(("payload", "feature", "text"), TEXTS)
    def test_name_the_feature_and_what_was_expected(self, payload: bytes, feature: Any, text: str) -> None:
        with pytest.raises(FieldError) as caught:
            decode(payload, feature)
        assert (caught.value.text, caught.value.feature) == (f"feature 'x': {text}", "x")

    def test_where_the_key_is_absent_name_those_that_the_record_holds(self) -> None:
        payload = wire.plain_example(label=("int64", [1]), image=("bytes", [b"a"]))
        with pytest.raises(FieldError, match=r"^feature 'lable': missing, .*; the record holds 'label', 'image'$"):
            decode(payload, INT, "lable")
        with pytest.raises(FieldError, match=r"^feature 'x': missing, .*; the record holds 'image', 'label'$"):
            decode(payload, RawFeature((), "uint8"), "x")

    def test_name_the_step(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1]), ("int64", [2, 3])]})
        with pytest.raises(FieldError, match=r"^feature 'x' step 1: expected 1 int64 value, got 2; where"):
            decode_steps(payload, INT)
        with pytest.raises(FieldError, match=r"^feature 'x' step 0: expected bytes values, got int64$"):
            decode_steps(payload, VarLenFeature("bytes"))

    @pytest.mark.parametrize(
        "payload",
        [
            b"hello world",
            ONE[:-1],
            wire.example(wire.entry("x", wire.delimited(3, wire.delimited(1, b"\xff" * 10 + b"\x01")))),  # eleven bytes
            wire.example(wire.entry("x", wire.delimited(2, wire.delimited(1, b"12345")))),  # floats of five bytes
            wire.example(wire.delimited(1, wire.delimited(1, b"\xff\xfe"))),  # a key that is no UTF-8
        ],
        ids=["text", "cut", "varint", "floats", "key"],
    )
    def test_a_payload_that_is_no_example(self, payload: bytes) -> None:
        with pytest.raises(FieldError) as caught:
            decode(payload, INT)
        assert caught.value.feature is None
        assert caught.value.text == (
            f"payload of {len(payload)} bytes is no tf.train.Example (it begins with {payload[:16]!r}); "
            "for records of another format subclass ShardDataset and write parse"
        )

    def test_only_features_that_are_asked_for_can_fail(self) -> None:
        payload = wire.plain_example(x=("int64", [1]), y=("bytes", []))
        assert decode(payload, INT) == 1

    def test_the_first_bad_row_raises_with_its_place(self) -> None:
        bad = wire.plain_example(x=("int64", []))
        with pytest.raises(ParseError) as caught:
            decode_examples(make_block(ONE, bad, b"hello", first=40), resolve_schema({"x": INT}))
        error = pickle.loads(pickle.dumps(caught.value))
        assert (error.path, error.record, error.offset, error.feature) == ("train-7", 41, 4100, "x")
        assert str(error) == (
            "train-7 record 41 at byte 4100: feature 'x': expected 1 int64 value, got 0; "
            "where the number varies declare VarLenFeature('int64')"
        )

    def test_the_first_field_of_the_schema_raises(self) -> None:
        with pytest.raises(FieldError, match="feature 'b': missing"):
            decode_record(b"", resolve_schema({"b": INT, "a": INT}))


class TestColumns:
    def decode(self, *payloads: bytes, features: Any, sequence_features: Any = None) -> list[Column]:
        return decode_examples(make_block(*payloads), resolve_schema(features, sequence_features))

    def test_dense(self) -> None:
        (column,) = self.decode(ONE, ONE, features={"x": INT})
        assert (column.values.tolist(), column.values.dtype, column.lengths) == ([1, 1], np.int64, ())

    def test_ragged(self) -> None:
        payload = wire.plain_example(x=("int64", [1, 2]))
        (column,) = self.decode(payload, b"", ONE, features={"x": INTS})
        assert (column.values.tolist(), [level.tolist() for level in column.lengths]) == ([1, 2, 1], [[2, 0, 1]])

    def test_bytes(self) -> None:
        payload = wire.plain_example(x=("bytes", [b"ab", b""]))
        (column,) = self.decode(payload, b"", features={"x": VarLenFeature("bytes")})
        assert column.values.tobytes() == b"ab"
        assert [level.tolist() for level in column.lengths] == [[2, 0], [2, 0]]

    def test_lists_have_a_level_more(self) -> None:
        payload = wire.sequence_example({}, {"x": [("int64", [1]), ("int64", [2])]})
        (fixed,) = self.decode(payload, b"", features={}, sequence_features={"x": INT})
        (ragged,) = self.decode(payload, b"", features={}, sequence_features={"x": INTS})
        assert [level.tolist() for level in fixed.lengths] == [[2, 0]]
        assert [level.tolist() for level in ragged.lengths] == [[2, 0], [1, 1]]

    def test_no_rows(self) -> None:
        columns = self.decode(features={"x": INT, "y": VarLenFeature("bytes"), "z": FixedLenFeature((2,), "float32")})
        assert [(len(column.values), column.values.dtype) for column in columns] == [(0, "int64"), (0, "uint8"), (0, "float32")]
        assert all_row_values(columns) == []

    def test_memory_is_asked_for_once(self) -> None:
        asked = []

        def allocate(requests: Any) -> list[Any]:
            asked.append(list(requests))
            return [np.zeros(shape, dtype) for shape, dtype in requests]

        schema = resolve_schema({"x": INT, "y": VarLenFeature("bytes"), "z": FixedLenFeature((2,), "float32", 0.0)})
        payload = wire.plain_example(x=("int64", [1]), y=("bytes", [b"abc"]))
        decode_examples(make_block(payload), schema, allocate)
        assert asked == [[((1,), "int64"), ((1,), np.int64), ((1,), np.int64), ((3,), "uint8"), ((1, 2), "float32")]]
