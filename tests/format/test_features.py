"""Declared features: what is accepted, in which form it is kept, what column it becomes, and what is refused."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
import torch

from shardmix.format.columns import ColumnSpec
from shardmix.format.features import (
    Feature,
    FixedLenFeature,
    RawFeature,
    VarLenFeature,
    needs_samples,
    resolve_schema,
)

pytestmark = pytest.mark.once

INT = FixedLenFeature((), "int64")


class TestDtypes:
    @pytest.mark.parametrize(
        ("dtype", "name"),
        [
            ("int64", "int64"),
            (np.int64, "int64"),
            (np.dtype("<i8"), "int64"),
            (torch.int64, "int64"),
            ("float32", "float32"),
            (np.float32, "float32"),
            (torch.float32, "float32"),
            ("bytes", "bytes"),
            (bytes, "bytes"),
            (np.bytes_, "bytes"),
        ],
    )
    def test_of_lists(self, dtype: Any, name: str) -> None:
        assert FixedLenFeature((), dtype).dtype == VarLenFeature(dtype).dtype == name

    @pytest.mark.parametrize("dtype", ["float64", np.int32, torch.uint8, str, "S3", "string", None, object, 3])
    def test_that_an_example_cannot_hold_are_refused(self, dtype: Any) -> None:
        text = r'FixedLenFeature: dtype: expected "int64", "float32" or "bytes", which an Example can hold, got '
        with pytest.raises(ValueError, match=text):
            FixedLenFeature((), dtype)
        with pytest.raises(ValueError, match=r"^VarLenFeature: dtype: expected"):
            VarLenFeature(dtype)

    @pytest.mark.parametrize(
        ("dtype", "name"),
        [
            ("uint8", "uint8"),
            (bool, "bool"),
            (torch.float16, "float16"),
            (torch.bool, "bool"),
            (np.complex64, "complex64"),
            ("<f8", "float64"),
        ],
    )
    def test_of_raw_arrays(self, dtype: Any, name: str) -> None:
        assert RawFeature(3, dtype).dtype == name

    @pytest.mark.parametrize("dtype", [">f4", "bytes", torch.bfloat16, object, "datetime64[s]", None])
    def test_that_are_no_raw_numbers_are_refused(self, dtype: Any) -> None:
        with pytest.raises(ValueError, match="RawFeature: dtype: expected a little-endian number dtype of numpy"):
            RawFeature((), dtype)


class TestShapes:
    @pytest.mark.parametrize(
        ("shape", "expected"),
        [((), ()), (3, (3,)), ([2, 3], (2, 3)), ((np.int64(2),), (2,)), (torch.Size([4, 5]), (4, 5)), (0, (0,))],
    )
    def test_become_tuples(self, shape: Any, expected: tuple[int, ...]) -> None:
        assert FixedLenFeature(shape, "int64").shape == RawFeature(shape, "uint8").shape == expected

    @pytest.mark.parametrize("shape", [None, (None,), (-1, 3), "3", 2.0, (2, "x")])
    def test_that_are_none_name_the_remedy(self, shape: Any) -> None:
        with pytest.raises(ValueError, match=r"shape: expected sizes of 0 or more, got .*; where .* declare VarLenFeature$"):
            FixedLenFeature(shape, "int64")

    @pytest.mark.parametrize("shape", [(2**31,), (2**16, 2**15), (2**70,), (0, 2**70), (1,) * 33], ids=str)
    def test_that_no_record_holds_are_refused(self, shape: Any) -> None:
        for declare in (lambda: FixedLenFeature(shape, "float32"), lambda: RawFeature(shape, "uint8")):
            with pytest.raises(ValueError, match="expected at most 32 dimensions and 2147483647 elements, got"):
                declare()
        assert FixedLenFeature((2**16, 2**15 - 1, 1), "int64").shape[0] == 2**16


class TestDefaults:
    @pytest.mark.parametrize(
        ("shape", "dtype", "default", "kept"),
        [
            ((), "int64", 5, 5),
            ((), "int64", True, 1),
            ((), "int64", np.int32(5), 5),
            ((3,), "int64", 5, 5),
            ((2,), "int64", [1, 2], (1, 2)),
            ((2, 1), "float32", np.array([[1], [2]]), ((1.0,), (2.0,))),
            ((), "float32", torch.tensor(0.5), 0.5),
            ((), "bytes", b"a\0", b"a\0"),
            ((), "bytes", "é", "é".encode()),
            ((2,), "bytes", ["a", b"b"], (b"a", b"b")),
        ],
    )
    def test_are_kept_as_plain_data(self, shape: Any, dtype: str, default: Any, kept: Any) -> None:
        got = FixedLenFeature(shape, dtype, default).default_value
        assert (type(got), got) == (type(kept), kept)

    @pytest.mark.parametrize(
        ("shape", "dtype", "default", "text"),
        [
            ((), "int64", 0.5, "expected int64 values, got float64"),
            ((), "int64", "5", "expected int64 values, got <U1"),
            ((), "int64", 2**63, "9223372036854775808 does not fit int64"),
            ((), "int64", 2**70, "expected int64 values, got 1180591620717411303424"),
            ((), "float32", 1e39, r"1e\+39 does not fit float32"),
            ((), "bytes", 5, "expected bytes or text, got int64"),
            ((2,), "int64", [1, 2, 3], r"expected one value or the shape \(2,\), got shape \(3,\)"),
            ((), "int64", [1], r"expected one value or the shape \(\), got shape \(1,\)"),
        ],
    )
    def test_that_do_not_fit_are_refused(self, shape: Any, dtype: str, default: Any, text: str) -> None:
        with pytest.raises(ValueError, match=f"^FixedLenFeature: default_value: {text}$"):
            FixedLenFeature(shape, dtype, default)


class TestDeclarations:
    @pytest.mark.parametrize(
        "feature",
        [
            INT,
            FixedLenFeature((2, 3), "float32", 0.5),
            FixedLenFeature(2, "bytes", [b"a\0", b""]),
            FixedLenFeature(2, "int64", np.array([1, 2])),
            VarLenFeature("bytes"),
            RawFeature((28, 28), "uint8"),
        ],
    )
    def test_compare_hash_pickle_and_can_be_pasted(self, feature: Feature) -> None:
        assert eval(repr(feature)) == feature == pickle.loads(pickle.dumps(feature))
        assert hash(pickle.loads(pickle.dumps(feature))) == hash(feature)

    def test_are_short_to_read(self) -> None:
        assert repr(INT) == "FixedLenFeature((), 'int64')"
        assert repr(FixedLenFeature(3, "float32", 0)) == "FixedLenFeature((3,), 'float32', default_value=0.0)"

    def test_cannot_be_changed(self) -> None:
        with pytest.raises(AttributeError):
            INT.dtype = "float32"  # type: ignore[misc]


class TestSpecs:
    @pytest.mark.parametrize(
        ("feature", "kind", "dtype", "item_shape", "levels", "is_bytes"),
        [
            (INT, "int64", "int64", (), 0, False),
            (FixedLenFeature((2, 3), "float32"), "float", "float32", (2, 3), 0, False),
            (FixedLenFeature((), "bytes"), "bytes", "uint8", (), 1, True),
            (FixedLenFeature((2, 3), "bytes"), "bytes", "uint8", (), 2, True),
            (FixedLenFeature((1,), "bytes"), "bytes", "uint8", (), 2, True),
            (VarLenFeature("int64"), "int64", "int64", (), 1, False),
            (VarLenFeature("bytes"), "bytes", "uint8", (), 2, True),
            (RawFeature((2, 3), "float16"), "bytes", "float16", (2, 3), 0, False),
        ],
    )
    def test_depend_on_the_feature_alone(
        self, feature: Feature, kind: str, dtype: str, item_shape: tuple[int, ...], levels: int, is_bytes: bool
    ) -> None:
        (field,) = resolve_schema({"x": feature}).fields
        assert (field.kind, field.spec, field.in_lists) == (kind, ColumnSpec("x", dtype, item_shape, levels, is_bytes), False)
        schema = resolve_schema({}, {"x": feature})
        (field,) = schema.fields
        assert (field.kind, field.spec, field.in_lists) == (kind, ColumnSpec("x", dtype, item_shape, levels + 1, is_bytes), True)
        assert schema.is_sequence

    def test_keep_the_declared_order_context_first(self) -> None:
        schema = resolve_schema({"z": INT, "a": INT}, {"y": INT, "b": INT})
        assert [field.name for field in schema.fields] == ["z", "a", "y", "b"]

    def test_travel_to_workers(self) -> None:
        schema = resolve_schema({"x": FixedLenFeature(2, "bytes", b"")}, {"y": INT})
        assert pickle.loads(pickle.dumps(schema)) == schema


class TestWhatIsRefused:
    def test_a_name_in_both(self) -> None:
        text = "feature 'x': in features and in sequence_features; a batch has one value of a name, declare one of them"
        with pytest.raises(ValueError, match=text):
            resolve_schema({"x": INT}, {"x": INT})

    def test_no_features(self) -> None:
        with pytest.raises(ValueError, match="got none to decode; declare some, or subclass ShardDataset and write parse"):
            resolve_schema({})

    @pytest.mark.parametrize("form", ["int64", "", int, 3, ["int"]])
    def test_what_is_no_feature(self, form: Any) -> None:
        with pytest.raises(ValueError, match=r"^feature 'x': expected a FixedLenFeature, .* or one of \"byte\", "):
            resolve_schema({"x": form})

    def test_what_is_no_mapping(self) -> None:
        with pytest.raises(TypeError, match=r"^features: expected a mapping of name to feature, or a list of names, got str"):
            resolve_schema("x")
        with pytest.raises(ValueError, match=r"^features: expected names that UTF-8 can write, .* got '\\udc80'"):
            resolve_schema({"\udc80": None})
        with pytest.raises(TypeError, match=r"^sequence_features: expected names as str, got 3"):
            resolve_schema({}, {3: INT})  # type: ignore[dict-item]


class TestNeedsSamples:
    def test_only_what_is_to_be_inferred(self) -> None:
        assert needs_samples(None, None)
        assert needs_samples({"x": "int"}, None)
        assert needs_samples({"x": None}, None)
        assert needs_samples(["x"], None)
        assert needs_samples({"x": INT}, {"y": "float"})
        assert not needs_samples({"x": INT, "y": VarLenFeature("bytes")}, None)
        assert not needs_samples({}, {"x": RawFeature((), "uint8")})

    def test_samples_are_not_read_when_all_is_declared(self) -> None:
        resolve_schema({"x": INT}, None, samples=iter(lambda: 1 / 0, None))  # type: ignore[arg-type]
