"""Every value of the files that TensorFlow wrote, and the digests of the real ones."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix.format.features import FixedLenFeature, VarLenFeature
from shardmix.format.infer import infer_features
from shardmix.format.messages import load_messages
from shardmix.format.read_examples import read_examples
from shardmix.format.reader import read_records

VAR = {"bytes_list": VarLenFeature("bytes"), "float_list": VarLenFeature("float32"), "int64_list": VarLenFeature("int64")}
EXAMPLE = {
    "id": VAR["int64_list"],
    "name": VAR["bytes_list"],
    "rare": VAR["int64_list"],
    "score": VAR["float_list"],
    "tags": VAR["bytes_list"],
    "tokens": VAR["int64_list"],
    "unset": VAR["int64_list"],
    "vec": VAR["float_list"],
    "ключ": VAR["bytes_list"],
}


def expected_value(feature: dict[str, list[Any]] | None) -> Any:
    """The values of the JSON beside the files: a list of int or bytes, or the bytes of the floats."""
    if feature is None:
        return []
    ((kind, values),) = feature.items()
    if kind == "int64_list":
        return values
    decoded = [bytes.fromhex(value) for value in values]
    return decoded if kind == "bytes_list" else b"".join(decoded)


def comparable(value: Any) -> Any:
    """A decoded value in the form of `expected_value`."""
    if isinstance(value, np.ndarray):
        return value.tobytes() if value.dtype == np.float32 else value.tolist()
    return value


@pytest.mark.parametrize("compression", ["", "gzip.", "zlib."])
def test_every_value_of_the_examples(golden_dir: Path, compression: str) -> None:
    expected = json.loads((golden_dir / "examples.json").read_text("utf-8"))
    examples = list(read_examples(golden_dir / f"examples.{compression}tfrecord", EXAMPLE))
    assert len(examples) == len(expected) == 62
    for example, features in zip(examples, expected, strict=True):
        assert list(example) == list(EXAMPLE)
        for name, value in example.items():
            want = expected_value(features.get(name))
            assert comparable(value) == (want or type(comparable(value))())


def test_features_of_fixed_length(golden_dir: Path) -> None:
    expected = json.loads((golden_dir / "examples.json").read_text("utf-8"))[:60]
    features = {
        "id": FixedLenFeature((), "int64"),
        "score": FixedLenFeature((), "float32"),
        "vec": FixedLenFeature((2, 2), "float32"),
        "name": FixedLenFeature((), "bytes"),
        "rare": FixedLenFeature((), "int64", default_value=-1),
        "ключ": FixedLenFeature((), "bytes", default_value=b"none"),
    }
    for want, example in zip(expected, read_examples(golden_dir / "examples.tfrecord", features), strict=False):
        assert example["id"] == want["id"]["int64_list"][0]
        assert example["score"].tobytes() == expected_value(want["score"])
        assert (example["vec"].shape, example["vec"].tobytes()) == ((2, 2), expected_value(want["vec"]))
        assert example["name"] == expected_value(want["name"])[0]
        assert example["rare"] == want.get("rare", {"int64_list": [-1]})["int64_list"][0]
        assert example["ключ"] == (b"\0tail\0\0" if "ключ" in want else b"none")


def test_every_value_of_the_sequences(golden_dir: Path) -> None:
    expected = json.loads((golden_dir / "sequences.json").read_text("utf-8"))
    context = {"id": FixedLenFeature((), "int64"), "len": FixedLenFeature((), "int64")}
    lists = {"frames": FixedLenFeature(3, "float32"), "labels": FixedLenFeature((), "int64"), "words": VarLenFeature("bytes")}
    examples = list(read_examples(golden_dir / "sequences.tfrecord", context, lists))
    assert len(examples) == len(expected) == 20
    for example, want in zip(examples, expected, strict=True):
        steps = {name: [expected_value(step) for step in want["feature_lists"].get(name, [])] for name in lists}
        assert (example["id"], example["len"]) == tuple(want["context"][name]["int64_list"][0] for name in ("id", "len"))
        assert example["frames"].shape == (len(steps["frames"]), 3)
        assert example["frames"].tobytes() == b"".join(steps["frames"])
        assert example["labels"].tolist() == [value for (value,) in steps["labels"]]
        assert example["words"] == steps["words"]


def test_sequences_are_told_from_the_samples(golden_dir: Path) -> None:
    inferred = infer_features(golden_dir / "sequences.tfrecord")
    assert inferred.features == {"id": FixedLenFeature((), "int64"), "len": FixedLenFeature((), "int64")}
    assert inferred.sequence_features == {
        "frames": FixedLenFeature((3,), "float32"),
        "labels": FixedLenFeature((), "int64"),
        "words": VarLenFeature("bytes"),
    }


def test_features_are_told_from_the_samples(golden_dir: Path) -> None:
    inferred = infer_features(golden_dir / "examples.tfrecord")
    assert inferred.sequence_features is None
    assert inferred.features == {name: feature for name, feature in EXAMPLE.items() if name != "unset"}


# --- Real files ----------------------------------------------------------------------------------------------------------------


def test_parsed_digests_of_real_files(realdata_dir: Path, manifest: list[dict[str, Any]]) -> None:
    parsed = [entry for entry in manifest if entry["parsed_digest"] is not None]
    assert len(parsed) >= 8
    assert {entry["file"]: digest_file(realdata_dir / entry["file"]) for entry in parsed} == {
        entry["file"]: entry["parsed_digest"] for entry in parsed
    }


def test_real_files_of_other_formats_are_no_examples(realdata_dir: Path, manifest: list[dict[str, Any]]) -> None:
    others = [entry["file"] for entry in manifest if entry["parsed_digest"] is None]
    assert len(others) >= 8
    for file in others:
        with pytest.raises(ValueError, match="for records of another format subclass ShardDataset and write parse"):
            read_examples(realdata_dir / file)


def digest_file(path: Path) -> str:
    """The parsed_digest of manifest.json: presence by protobuf, every value by `read_examples`.

    What its README leaves out: a feature list is `#`, its name, the number of its steps as uint64le, then the steps; a record
    ends with a newline.
    """
    messages = [load_messages().SequenceExample.FromString(bytes(payload)) for payload in read_records(path)]
    context, lists = kinds_of(messages)
    features = {name: VAR[kind] for name, kind in context.items()}
    sequence_features = {name: VAR[kind] for name, kind in lists.items()} if lists else None
    digest = hashlib.sha256()
    for message, example in zip(messages, read_examples(path, features, sequence_features), strict=True):
        present = message.context.feature
        for name in sorted(present, key=str.encode):
            digest.update(prefixed(name.encode()) + digest_feature(present[name], example.get(name)))
        steps = message.feature_lists.feature_list
        for name in sorted(steps, key=str.encode):
            digest.update(b"#" + prefixed(name.encode()) + struct.pack("<Q", len(steps[name].feature)))
            for step, value in zip(steps[name].feature, example[name], strict=True):
                digest.update(digest_feature(step, value))
        digest.update(b"\n")
    return digest.hexdigest()


def kinds_of(messages: list[Any]) -> tuple[dict[str, str], dict[str, str]]:
    """The list kind of every feature, and of every feature list, that is ever set."""

    def kinds(named: Iterator[tuple[str, Any]]) -> dict[str, str]:
        return {name: kind for name, feature in named if (kind := feature.WhichOneof("kind"))}

    context = kinds((name, feature) for message in messages for name, feature in message.context.feature.items())
    lists = kinds(
        (name, step)
        for message in messages
        for name, steps in message.feature_lists.feature_list.items()
        for step in steps.feature
    )
    return context, lists


def digest_feature(feature: Any, value: Any) -> bytes:
    kind = feature.WhichOneof("kind")
    if kind is None:
        return b"|unset"
    data = b"".join(map(prefixed, value)) if kind == "bytes_list" else value.tobytes()
    return b"|" + kind.encode() + b"|" + str(len(value)).encode() + b"|" + data


def prefixed(data: bytes) -> bytes:
    return struct.pack("<Q", len(data)) + data
