"""Reading the examples of one file: values, what they own, and what comes before an error."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix.errors import CorruptShardError, ParseError
from shardmix.format.features import FixedLenFeature, VarLenFeature
from shardmix.format.read_examples import read_examples
from shardmix.format.writer import ShardWriter

INT = FixedLenFeature((), "int64")


def write(folder: Path, records: list[Any], **options: Any) -> Path:
    """One shard of these records."""
    with ShardWriter(folder / "x-{}.tfrecord", num_shards=1, **options) as writer:
        for record in records:
            writer.write(record)
    return folder / "x-0.tfrecord"


@pytest.mark.parametrize("compression_type", [None, "gzip", "zlib"])
def test_examples_come_in_file_order(tmp_path: Path, compression_type: str | None) -> None:
    path = write(tmp_path, [{"x": number} for number in range(5)], compression_type=compression_type)
    examples = list(read_examples(path, {"x": INT}))
    assert examples == [{"x": number} for number in range(5)]
    assert all(type(example["x"]) is np.int64 for example in examples)


def test_many_blocks_are_one_stream(tmp_path: Path) -> None:
    path = write(tmp_path, [{"x": number, "fill": b"f" * 50_000} for number in range(60)])
    assert [example["x"] for example in read_examples(path, {"x": INT})] == list(range(60))


def test_values_own_their_memory(tmp_path: Path) -> None:
    path = write(tmp_path, [{"x": [1, 2], "v": [3]}, {"x": [1, 2], "v": [3]}])
    first, second = read_examples(path, {"x": FixedLenFeature(2, "int64"), "v": VarLenFeature("int64")})
    for name in ("x", "v"):
        assert first[name].flags.owndata
        first[name][0] = 9
        assert second[name][0] != 9


def test_features_are_inferred_from_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, [{"x": 1, "v": [1, 2]}, {"x": 2, "v": [3]}])
    first, second = read_examples(path)
    assert (first["x"], second["x"]) == (1, 2)
    assert (first["v"].tolist(), second["v"].tolist()) == ([1, 2], [3])
    assert list(read_examples(path, ["x"])) == list(read_examples(path, {"x": "int"})) == [{"x": 1}, {"x": 2}]


def test_an_empty_file_has_no_examples(tmp_path: Path) -> None:
    assert list(read_examples(write(tmp_path, []), {"x": INT})) == []


def test_sound_examples_come_before_one_that_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, [{"x": 1}, {"x": 2}, {"x": "three"}, {"x": 4}])
    examples = read_examples(path, {"x": INT})
    assert [next(examples)["x"], next(examples)["x"]] == [1, 2]
    with pytest.raises(ParseError) as caught:
        next(examples)
    error = caught.value
    assert (error.path, error.record, error.offset, error.feature) == (str(path), 2, 60, "x")
    assert str(error) == f"{path} record 2 at byte 60: feature 'x': expected int64 values, got bytes"


@pytest.mark.parametrize("features", [{"x": INT}, None])
def test_sound_examples_come_before_damage(tmp_path: Path, features: Any) -> None:
    path = write(tmp_path, [{"x": 1}, {"x": 2}])
    path.write_bytes(path.read_bytes()[:-1])
    examples = read_examples(path, features)
    assert next(examples) == {"x": 1}
    with pytest.raises(CorruptShardError, match="record 1 at byte 30"):
        next(examples)


@pytest.mark.parametrize("features", [{"x": INT}, None])
def test_a_file_of_another_format_is_damage(tmp_path: Path, features: Any) -> None:
    path = tmp_path / "page.html"
    path.write_bytes(b"<!doctype html><title>not found</title>")
    with pytest.raises(CorruptShardError, match=r"page\.html record 0 at byte 0: "):
        list(read_examples(path, features))


def test_wrong_arguments_are_refused_at_once(tmp_path: Path) -> None:
    path = write(tmp_path, [{"x": 1}])
    with pytest.raises(ValueError, match="compression_type"):
        read_examples(path, compression_type="zip")
    with pytest.raises(ValueError, match="verify"):
        read_examples(path, verify="some")
    with pytest.raises(ValueError, match="feature 'x': expected a FixedLenFeature"):
        read_examples(path, {"x": "number"})


def test_a_file_that_holds_no_examples_says_what_to_do(tmp_path: Path) -> None:
    path = write(tmp_path, [b"hello world"])
    with pytest.raises(ValueError, match="subclass ShardDataset and write parse"):
        read_examples(path)
    with pytest.raises(ParseError, match=r"record 0 at byte 0: payload of 11 bytes is no tf\.train\.Example"):
        list(read_examples(path, {"x": INT}))
