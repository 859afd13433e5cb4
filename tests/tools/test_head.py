"""`shardmix head`: the records as they are."""

from __future__ import annotations

import json
import math
import struct

import pytest

from shardmix.format.framing import frame_record


class TestGolden:
    @pytest.mark.parametrize("name", ["examples.tfrecord", "examples.gzip.tfrecord", "examples.zlib.tfrecord"])
    def test_examples(self, golden, shardmix, name):
        expected = json.loads((golden / "examples.json").read_text())
        records = shardmix("head", golden / name, "-n", "100", "--json").data["records"]
        assert [one["features"] for one in records] == [_named(row) for row in expected]
        assert {one["kind"] for one in records} == {"Example"}

    def test_sequences(self, golden, shardmix):
        expected = json.loads((golden / "sequences.json").read_text())
        records = shardmix("head", golden / "sequences.tfrecord", "-n", "100", "--json").data["records"]
        assert [one["features"] for one in records] == [_named(row["context"]) for row in expected]
        lists = [{name: steps for name, steps in one["feature_lists"].items() if steps} for one in records]
        assert [{name: [_text_free(step) for step in steps] for name, steps in row.items()} for row in lists] == [
            {name: [_values(step) for step in steps] for name, steps in row["feature_lists"].items() if steps} for row in expected
        ]

    def test_payloads_that_are_no_examples_are_not_claimed_to_be(self, golden, shardmix):
        for name in ("raw.tfrecord", "zero_length.tfrecord"):
            ran = shardmix("head", golden / name, "--json")
            assert [one["kind"] for one in ran.data["records"]] == [None, None, None]
            assert "no Example" in shardmix("head", golden / name).out


class TestPlaces:
    def test_the_first_records_in_listing_order(self, make_corpus, shardmix):
        records = shardmix("head", make_corpus([2, 0, 3]), "-n", "4", "--json").data["records"]
        assert [one["features"]["id"]["int64"] for one in records] == [[0], [1], [2000], [2001]]
        assert [one["record"] for one in records] == [0, 1, 0, 1]

    def test_one_record(self, make_corpus, shardmix):
        pattern = make_corpus([2, 0, 3])
        (one,) = shardmix("head", pattern, "--record", "3", "--json").data["records"]
        assert (one["features"]["id"]["int64"], one["record"]) == ([2001], 1)
        (one,) = shardmix("head", pattern.replace("*", "00002-0"), "--record", "2", "--json").data["records"]
        assert one["features"]["id"]["int64"] == [2002]
        ran = shardmix("head", pattern, "--record", "5")
        assert (ran.code, "5 records, 0 to 4" in ran.err) == (2, True)

    def test_damaged_records_are_named_and_the_next_shown(self, tmp_path, shardmix):
        frames = [bytearray(frame_record(payload)) for payload in (b"one", b"two", b"three")]
        frames[1][12] ^= 1
        path = tmp_path / "shard"
        path.write_bytes(b"".join(frames))
        ran = shardmix("head", path)
        assert ran.code == 1
        assert "'one'" in ran.out
        assert "'three'" in ran.out
        assert f"{path} record 1 at byte 19: payload CRC mismatch" in ran.err
        ran = shardmix("head", path, "--record", "1")
        assert (ran.code, ran.out) == (1, "")
        assert "payload CRC mismatch" in ran.err


def test_text_of_a_record(tmp_path, shardmix):
    from shardmix import ShardWriter

    with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
        writer.write({"label": 3, "name": "café", "image": b"\xff\xd8\xff\xe0" + bytes(40), "many": list(range(20))})
    assert shardmix("head", tmp_path / "0").out.splitlines()[1:] == [
        "  image  bytes × 1   JPEG, 44 bytes: ff d8 ff e0 00 00 00 00 00 00 00 00 00 00 00 00 …",
        "  label  int64 × 1   3",
        "  many   int64 × 20  0, 1, 2, 3, 4, 5, 6, 7 …",
        "  name   bytes × 1   'café'",
    ]


def _named(row):
    return {name: _values(feature) for name, feature in row.items()}


def _values(feature):
    """A feature of the golden JSON as the command describes it."""
    if feature is None:
        return None
    ((kind, values),) = feature.items()
    kind = kind.removesuffix("_list")
    if kind == "float":
        return {kind: [_number(struct.unpack("<f", bytes.fromhex(value))[0]) for value in values]}
    if kind == "bytes":
        return Bytes(values)
    return {kind: values}


def _number(value):
    """JSON has no number for some floats; of the others it has the shortest that is the same float32."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return pytest.approx(value, rel=1e-7, abs=0) if abs(value) > 1e-37 else pytest.approx(value, rel=0.3, abs=0)


class Bytes(dict):
    """Equal to a description of these bytes, whether or not it has the text beside."""

    def __init__(self, values):
        super().__init__(bytes=values)

    def __eq__(self, other):
        text = other.get("text")
        return other["bytes"] == self["bytes"] and (text is None or [value.encode().hex() for value in text] == self["bytes"])

    __hash__ = None


def _text_free(step):
    return step if step is None or "text" not in step else {"bytes": step["bytes"]}
