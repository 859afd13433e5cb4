"""Laws 1 and 3 for examples: of any features what is written is read, and both twins say the same, of wrong records, too."""

from __future__ import annotations

import importlib.util
import math
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix import FixedLenFeature, RawFeature, ShardWriter, VarLenFeature, read_examples, read_records
from shardmix.format.encode import encode_example, encode_sequence_example
from shardmix.format.features import Feature, resolve_schema

HAS_C = importlib.util.find_spec("shardmix.format._core") is not None
if HAS_C:
    from tests.format.test_parity import check

needs_c = pytest.mark.skipif(not HAS_C, reason="the C extension was not built")
NAMES = st.text(max_size=3) | st.sampled_from(["", "label", "label2", "ключ", "\0", "a" * 20, "a" * 19 + "b"])
DTYPES = st.sampled_from(["int64", "float32", "bytes"])
SHAPES = st.lists(st.integers(0, 3), max_size=2).map(tuple)
VALUES = {
    "int64": st.integers(-(2**63), 2**63 - 1) | st.integers(-3, 300),
    "float32": st.floats(width=32),
    "bytes": st.binary(max_size=9),
}


def draw_list(draw: st.DrawFn, dtype: str, count: int | None = None) -> Any:
    """Some values of a dtype; `count` of them, or a few."""
    least, most = (0, 5) if count is None else (count, count)
    values = draw(st.lists(VALUES[dtype], min_size=least, max_size=most))
    return values if dtype == "bytes" else np.array(values, dtype)


def draw_feature(draw: st.DrawFn) -> Feature:
    kind = draw(st.sampled_from(["fixed", "default", "var", "raw"]))
    if kind == "raw":
        return RawFeature(draw(SHAPES), draw(st.sampled_from(["uint8", "float64", "bool", "int16"])))
    dtype = draw(DTYPES)
    if kind == "var":
        return VarLenFeature(dtype)
    return FixedLenFeature(draw(SHAPES), dtype, draw(VALUES[dtype]) if kind == "default" else None)


def draw_value(draw: st.DrawFn, feature: Feature) -> Any:
    """A value of a feature, as `encode_example` takes it and `read_examples` gives it; None: missing."""
    if isinstance(feature, RawFeature):
        numbers = draw(st.binary(min_size=math.prod(feature.shape), max_size=math.prod(feature.shape)))
        return (np.frombuffer(numbers, np.uint8) & 1).astype(feature.dtype).reshape(feature.shape)
    if isinstance(feature, VarLenFeature):
        return draw_list(draw, feature.dtype)
    if feature.default_value is not None and draw(st.booleans()):
        return None
    values = draw_list(draw, feature.dtype, math.prod(feature.shape))
    if feature.dtype != "bytes":
        return values.reshape(feature.shape)
    return values[0] if feature.shape == () else values


@st.composite
def corpora(draw: st.DrawFn) -> tuple[dict[str, Feature], list[dict[str, Any]]]:
    """Features, and some examples of them."""
    features = {name: draw_feature(draw) for name in draw(st.lists(NAMES, min_size=1, max_size=6, unique=True))}
    num_examples = draw(st.integers(0, 4))
    return features, [{name: draw_value(draw, one) for name, one in features.items()} for _ in range(num_examples)]


def fill(example: dict[str, Any], features: dict[str, Feature]) -> dict[str, Any]:
    """The example as it is read: with default values where it says None."""
    return {name: find_default(features[name]) if value is None else value for name, value in example.items()}


def find_default(feature: Any) -> Any:
    if feature.dtype != "bytes":
        return np.full(feature.shape, feature.default_value, feature.dtype)
    return feature.default_value if feature.shape == () else [feature.default_value] * math.prod(feature.shape)


def to_plain(example: dict[str, Any]) -> dict[str, Any]:
    """Values as comparable data, floats by their bits."""
    return {
        name: value if isinstance(value, bytes | list) else (value.dtype, value.shape, value.tobytes())
        for name, value in example.items()
    }


@settings(max_examples=100)
@given(corpus=corpora(), compression=st.sampled_from([None, "gzip", "zlib"]))
def test_what_is_written_is_read_and_written_alike_again(corpus: Any, compression: str | None) -> None:
    features, examples = corpus
    with TemporaryDirectory() as folder:
        for name in ("first", "second"):
            with ShardWriter(f"{folder}/{name}", num_shards=1, compression_type=compression, features=features) as writer:
                for example in examples:
                    writer.write(example)
            read = list(read_examples(writer.paths[0], features))
            payloads = [bytes(payload) for payload in read_records(writer.paths[0])]
            assert [to_plain(one) for one in read] == [to_plain(fill(one, features)) for one in examples]
            if name == "first":
                first, missing = payloads, [{key: None for key in one if one[key] is None} for one in examples]
                examples = [one | none for one, none in zip(read, missing, strict=True)]
    assert payloads == first


@needs_c
@pytest.mark.once
@settings(max_examples=100)
@given(data=st.data(), corpus=corpora(), others=corpora())
def test_twins_agree_on_any_features(data: st.DataObject, corpus: Any, others: Any) -> None:
    """Records of the features asked for, and of others of the same or other names: wrong kinds, wrong numbers, missing."""
    features, examples = corpus
    payloads = [encode_example(example, features) for example in examples]
    payloads += [encode_example(example, others[0]) for example in others[1]]
    payloads = data.draw(st.permutations(payloads))
    check(payloads, resolve_schema(features))
    for payload in payloads:
        check([payload], resolve_schema(features))


@needs_c
@pytest.mark.once
@settings(max_examples=50)
@given(data=st.data(), corpus=corpora(), others=corpora())
def test_twins_agree_on_any_feature_lists(data: st.DataObject, corpus: Any, others: Any) -> None:
    lists = {f"list {name}": feature for name, feature in corpus[0].items()}
    payloads = []
    for features, examples in (corpus, others):
        steps = {f"list {name}": [one[name] for one in examples] for name in features}
        declared = {f"list {name}": feature for name, feature in features.items()}
        payloads.append(encode_sequence_example({}, steps, {}, declared))
        payloads += [encode_example(example, features) for example in examples]
    payloads = data.draw(st.permutations(payloads))
    schema = resolve_schema(corpus[0], lists)
    check(payloads, schema)
    for payload in payloads:
        check([payload], schema)
        check([payload], resolve_schema({}, lists))
