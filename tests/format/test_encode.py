"""Encoding values: what a value may be, what is refused, and that it decodes to the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from shardmix.format.encode import encode_example, encode_sequence_example
from shardmix.format.example import decode_record
from shardmix.format.features import FixedLenFeature, RawFeature, VarLenFeature, resolve_schema
from shardmix.format.messages import load_messages
from tests.format import wire

pytestmark = pytest.mark.once

INT = FixedLenFeature((), "int64")


def read_back(payload: bytes) -> dict[str, Any]:
    """name → None, or (kind, values), by protobuf alone."""
    features = load_messages().Example.FromString(payload).features.feature
    return {name: read_feature(feature) for name, feature in features.items()}


def read_feature(feature: Any) -> Any:
    kind = feature.WhichOneof("kind")
    return None if kind is None else (kind.removesuffix("_list"), list(getattr(feature, kind).value))


def read_lists(payload: bytes) -> dict[str, Any]:
    lists = load_messages().SequenceExample.FromString(payload).feature_lists.feature_list
    return {name: [read_feature(step) for step in steps.feature] for name, steps in lists.items()}


class TestKindsToldFromValues:
    @pytest.mark.parametrize(
        ("value", "expected"),
        [
            (3, ("int64", [3])),
            (True, ("int64", [1])),
            (np.uint8(200), ("int64", [200])),
            ([1, -2], ("int64", [1, -2])),
            ((True, 2), ("int64", [1, 2])),
            ([[1, 2], [3, 4]], ("int64", [1, 2, 3, 4])),
            (np.array([[1, 2], [3, 4]], np.uint16), ("int64", [1, 2, 3, 4])),
            (np.array([1, 2, 3, 4]).reshape(2, 2).T, ("int64", [1, 3, 2, 4])),
            (np.empty(0, np.int32), ("int64", [])),
            ([-(2**63), 2**63 - 1], ("int64", [-(2**63), 2**63 - 1])),
            (torch.tensor([1, 2]), ("int64", [1, 2])),
            ([torch.tensor(1), torch.tensor(2)], ("int64", [1, 2])),
            (0.5, ("float", [0.5])),
            ([1, 0.5], ("float", [1.0, 0.5])),
            (np.array([0.5]), ("float", [0.5])),
            (np.empty((0, 3), np.float64), ("float", [])),
            (torch.ones(2, requires_grad=True), ("float", [1.0, 1.0])),
            (float("inf"), ("float", [float("inf")])),
            (b"a\0", ("bytes", [b"a\0"])),
            ("ключ", ("bytes", ["ключ".encode()])),
            (bytearray(b"ab"), ("bytes", [b"ab"])),
            (memoryview(b"ab"), ("bytes", [b"ab"])),
            ([b"a\0\0", "b", b""], ("bytes", [b"a\0\0", b"b", b""])),
            (np.array(["a", "b"]), ("bytes", [b"a", b"b"])),
            (np.array([b"a\0", b""], object), ("bytes", [b"a\0", b""])),
        ],
    )
    def test_of_an_example(self, value: Any, expected: Any) -> None:
        assert read_back(encode_example({"x": value})) == {"x": expected}

    def test_none_is_missing(self) -> None:
        assert read_back(encode_example({"x": None, "y": 1})) == {"y": ("int64", [1])}

    def test_no_values_are_an_example_without_features(self) -> None:
        assert encode_example({}) == b"\n\x00"

    def test_of_the_steps_of_a_sequence(self) -> None:
        lists = {
            "frames": np.arange(6, dtype=np.float32).reshape(2, 3),
            "labels": [1, 2, 3],
            "words": [["a", b"b"], [], ["c"]],
            "ragged": [np.array([1]), np.empty(0, np.int64)],
            "some": [1, None],
            "none": [],
        }
        assert read_lists(encode_sequence_example({"id": 7}, lists)) == {
            "frames": [("float", [0.0, 1.0, 2.0]), ("float", [3.0, 4.0, 5.0])],
            "labels": [("int64", [1]), ("int64", [2]), ("int64", [3])],
            "words": [("bytes", [b"a", b"b"]), ("bytes", []), ("bytes", [b"c"])],
            "ragged": [("int64", [1]), ("int64", [])],
            "some": [("int64", [1]), None],
            "none": [],
        }

    def test_equal_values_give_equal_bytes(self) -> None:
        assert encode_example({"a": 1, "b": 2, "c": 3}) == encode_example({"c": 3, "b": 2, "a": 1})
        assert encode_sequence_example({}, {"a": [1], "b": [2]}) == encode_sequence_example({}, {"b": [2], "a": [1]})


class TestWithFeatures:
    @pytest.mark.parametrize(
        ("feature", "value", "expected"),
        [
            (INT, np.int8(3), ("int64", [3])),
            (FixedLenFeature((2, 2), "int64"), [[1, 2], [3, 4]], ("int64", [1, 2, 3, 4])),
            (FixedLenFeature((2, 2), "int64"), [1, 2, 3, 4], ("int64", [1, 2, 3, 4])),
            (FixedLenFeature((1,), "float32"), [3], ("float", [3.0])),
            (VarLenFeature("float32"), [], ("float", [])),
            (VarLenFeature("bytes"), [], ("bytes", [])),
            (VarLenFeature("int64"), 5, ("int64", [5])),
            (RawFeature((2,), "uint8"), [1, 255], ("bytes", [b"\x01\xff"])),
            (RawFeature((2,), "float64"), np.array([0.5, 1]), ("bytes", [np.array([0.5, 1]).tobytes()])),
            (RawFeature((2,), "int16"), torch.tensor([1, -1]), ("bytes", [b"\x01\x00\xff\xff"])),
            (RawFeature((2,), "int16"), b"abcd", ("bytes", [b"abcd"])),
            (RawFeature((), "bool"), np.True_, ("bytes", [b"\x01"])),
            ("int", [1, 2], ("int64", [1, 2])),
            ("byte", [], ("bytes", [])),
            (None, 0.5, ("float", [0.5])),
        ],
    )
    def test_values_are_stored_as_declared(self, feature: Any, value: Any, expected: Any) -> None:
        assert read_back(encode_example({"x": value}, {"x": feature})) == {"x": expected}
        assert read_lists(encode_sequence_example({}, {"x": [value]}, {}, {"x": feature})) == {"x": [expected]}

    def test_what_may_be_missing_may_be_left_out(self) -> None:
        features = {"x": VarLenFeature("int64"), "y": FixedLenFeature((), "int64", -1)}
        assert read_back(encode_example({"y": None}, features)) == {}

    def test_steps_may_be_missing_where_there_is_a_default(self) -> None:
        lists = {"x": FixedLenFeature((), "int64", -1)}
        assert read_lists(encode_sequence_example({}, {"x": [1, None]}, {}, lists)) == {"x": [("int64", [1]), None]}


class TestWhatIsRefused:
    @pytest.mark.parametrize(
        ("value", "text"),
        [
            ([], "an empty list has no kind; give an array with a dtype, or declare features"),
            ([1, "a"], "got bytes and numbers in one list, expected one kind"),
            (2**63, "9223372036854775808 does not fit int64"),
            ([2**63, -1], "expected int64 values, got "),
            (np.array([2**63], np.uint64), "9223372036854775808 does not fit int64"),
            ([0.0, 1e300], r"1e\+300 does not fit float32"),
            (1j, "expected numbers, bytes or text, got complex128"),
            (np.array(["2020"], "datetime64[Y]"), r"expected numbers, bytes or text, got datetime64\[Y\]"),
            ({"a": 1}, "expected numbers, bytes or text, got dict"),
            ([[1, 2], [3]], "expected an array, got list: "),
            ([["a"], ["b", "c"]], "expected lists of one length, got different ones in one list"),
        ],
    )
    def test_without_features(self, value: Any, text: str) -> None:
        with pytest.raises(ValueError, match=f"^feature 'x': {text}"):
            encode_example({"x": value})

    @pytest.mark.parametrize(
        ("feature", "value", "text"),
        [
            (INT, 0.5, "expected int64 values, got float64"),
            (INT, "a", "expected int64 values, got <U1"),
            (INT, [1, 2], r"expected the shape \(\), got \(2,\)"),
            (FixedLenFeature((2, 3), "int64"), np.zeros((3, 2), int), r"expected the shape \(2, 3\), got \(3, 2\)"),
            (VarLenFeature("int64"), [[1]], r"a VarLenFeature has one dimension, got the shape \(1, 1\)"),
            (VarLenFeature("bytes"), 1, "expected bytes or text, got int64"),
            (RawFeature((2,), "uint8"), [1, 256], "256 does not fit uint8"),
            (RawFeature((2,), "uint8"), [0.5, 1], "expected uint8 values, got float64"),
            (RawFeature((2,), "bool"), [0, 1], "expected bool values, got int64"),
            (RawFeature((2,), "float16"), [0, 70000], "70000 does not fit float16"),
            (RawFeature((2,), "uint8"), [1, 2, 3], r"expected the shape \(2,\), got \(3,\)"),
            (RawFeature((2,), "int16"), b"abc", r"expected 4 bytes for the shape \(2,\) of int16, got 3"),
            ("float", "a", "expected float32 values, got <U1"),
        ],
    )
    def test_with_features(self, feature: Any, value: Any, text: str) -> None:
        with pytest.raises(ValueError, match=f"^feature 'x': {text}"):
            encode_example({"x": value}, {"x": feature})
        with pytest.raises(ValueError, match=f"^feature 'x' step 0: {text}"):
            encode_sequence_example({}, {"x": [value]}, {}, {"x": feature})

    def test_a_feature_that_is_not_declared(self) -> None:
        with pytest.raises(ValueError, match="^feature 'y': not declared; declared: 'x', 'z'$"):
            encode_example({"y": 1}, {"x": INT, "z": INT})

    @pytest.mark.parametrize("values", [{}, {"x": None}])
    @pytest.mark.parametrize("feature", [INT, RawFeature((), "uint8")])
    def test_a_feature_that_must_be_there(self, values: dict[str, Any], feature: Any) -> None:
        with pytest.raises(ValueError, match="^feature 'x': missing; .* needs a value in every record$"):
            encode_example(values, {"x": feature})

    def test_a_step_that_must_be_there(self) -> None:
        with pytest.raises(ValueError, match="^feature 'x' step 1: missing; .* needs a value in every step$"):
            encode_sequence_example({}, {"x": [1, None]}, {}, {"x": INT})

    def test_steps_that_are_none(self) -> None:
        with pytest.raises(ValueError, match="^feature 'x': expected steps, a list or an array, got str$"):
            encode_sequence_example({}, {"x": "abc"})
        with pytest.raises(ValueError, match="^feature 'x': expected steps, a list or an array, got int$"):
            encode_sequence_example({}, {"x": 3})
        with pytest.raises(ValueError, match="^feature 'x': expected steps, a list or an array, got ndarray$"):
            encode_sequence_example({}, {"x": np.array(3)})

    def test_steps_without_a_kind(self) -> None:
        with pytest.raises(ValueError, match="^feature 'x' step 0: an empty list has no kind"):
            encode_sequence_example({}, {"x": [[], []]})

    def test_more_than_protobuf_can_hold(self, monkeypatch: pytest.MonkeyPatch) -> None:
        class TooLarge:
            """What protobuf does with 2 GiB, without the 2 GiB."""

            def __init__(self) -> None:
                self.features = load_messages().Example().features

            def SerializeToString(self, deterministic: bool) -> bytes:
                raise load_messages().EncodeError("Failed to serialize proto")

        messages = load_messages()._replace(Example=TooLarge)
        monkeypatch.setattr("shardmix.format.encode.load_messages", lambda: messages)
        with pytest.raises(ValueError, match="^the values take more than 2 GiB"):
            encode_example({"x": 1})

    def test_names_that_are_no_text(self) -> None:
        with pytest.raises(TypeError, match="^expected names as str, got 3$"):
            encode_example({3: 1})  # type: ignore[dict-item]


ints = st.lists(st.integers(-(2**63), 2**63 - 1), max_size=4)
floats = st.lists(st.floats(width=32), max_size=4)
strings = st.lists(st.binary(max_size=5), max_size=4)


class TestRoundTrip:
    @given(numbers=ints, decimals=floats, words=strings)
    def test_of_an_example(self, numbers: list[int], decimals: list[float], words: list[bytes]) -> None:
        features = {"i": VarLenFeature("int64"), "f": VarLenFeature("float32"), "b": VarLenFeature("bytes")}
        payload = encode_example({"i": numbers, "f": decimals, "b": words}, features)
        i, f, b = decode_record(payload, resolve_schema(features))
        assert (i.tolist(), f.tobytes(), b) == (numbers, np.array(decimals, np.float32).tobytes(), words)

    @given(numbers=st.lists(ints, max_size=3), words=st.lists(strings, max_size=3))
    def test_of_a_sequence(self, numbers: list[list[int]], words: list[list[bytes]]) -> None:
        lists = {"i": VarLenFeature("int64"), "b": VarLenFeature("bytes")}
        payload = encode_sequence_example({}, {"i": numbers, "b": words}, {}, lists)
        i, b = decode_record(payload, resolve_schema({}, lists))
        assert ([step.tolist() for step in i], b) == (numbers, words)

    @pytest.mark.parametrize("dtype", ["bool", "uint8", "int16", "uint64", "float16", "float64", "complex128"])
    def test_of_raw_arrays(self, dtype: str) -> None:
        features = {"x": RawFeature((2, 3), dtype)}
        array = np.array([[0, 1, 1], [1, 0, 1]], dtype)
        (got,) = decode_record(encode_example({"x": array}, features), resolve_schema(features))
        assert (got.dtype, got.tolist()) == (array.dtype, array.tolist())

    def test_of_more_than_64_megabytes(self) -> None:
        value = bytes(65 << 20)
        (got,) = decode_record(encode_example({"x": value}), resolve_schema({"x": FixedLenFeature((), "bytes")}))
        assert got == value

    def test_keeps_every_bit_of_a_nan(self) -> None:
        bits = np.array([0x7F800001, 0x7FC00001, 0xFFFFFFFF], np.uint32)
        (got,) = decode_record(encode_example({"x": bits.view(np.float32)}), resolve_schema({"x": VarLenFeature("float32")}))
        assert got.view(np.uint32).tolist() == bits.tolist()

    @pytest.mark.parametrize("count", [1, 31, 32, 4095, 4096])
    def test_of_many_floats(self, count: int) -> None:
        array = np.arange(count, dtype=np.float32)
        assert encode_example({"x": array}) == wire.plain_example(x=("float", [v.tobytes() for v in array]))
