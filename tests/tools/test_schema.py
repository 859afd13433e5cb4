"""`shardmix schema`: what records hold, and a dict that loads them."""

from __future__ import annotations

import pytest

import shardmix as library
from shardmix import FixedLenFeature, RawFeature, ShardDataset, ShardWriter, VarLenFeature  # noqa: F401 (the pasted dicts)
from shardmix.format.framing import frame_record
from shardmix.tools.contents import describe_bytes, is_message

PNG = b"\x89PNG\r\n\x1a\n" + bytes(20)
JPEG = b"\xff\xd8\xff\xe0" + bytes(20)


def paste(text):
    """Run the dicts of the output as Python, as a user who copies them does."""
    code = text[text.index("features = {") :]
    names = {}
    exec(code, {name: getattr(library, name) for name in ("FixedLenFeature", "VarLenFeature", "RawFeature")}, names)
    return names


class TestPaste:
    @pytest.mark.parametrize(
        ("pattern", "records"), [("examples.*tfrecord", 186), ("sequences.tfrecord", 20), ("uneven-*", 171)]
    )
    def test_golden(self, golden, shardmix, pattern, records):
        ran = shardmix("schema", golden / pattern)
        assert ran.code == 0
        dataset = ShardDataset(str(golden / pattern), lanes=1, cycle_length=1, **paste(ran.out))
        assert len(list(dataset)) == records

    @pytest.mark.parametrize("pattern", ["iris/*", "yggdrasil/toy*", "yggdrasil/sent*", "torchdata/ex*", "torchdata/seq*"])
    def test_real_files(self, realdata, shardmix, pattern):
        pasted = paste(shardmix("schema", realdata / pattern).out)
        dataset = ShardDataset(str(realdata / pattern), lanes=1, cycle_length=1, **pasted)
        assert len(list(dataset)) == len(dataset)


class TestContents:
    def test_what_bytes_are(self, tmp_path, shardmix):
        message = bytes.fromhex("0a0e0a0663746731323310e70718a846")  # of the nucleus files
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            for number in range(3):
                writer.write({"jpeg": JPEG, "png": PNG, "text": "größe", "message": message, "raw": bytes([200 + number, 255])})
        features = shardmix("schema", tmp_path / "0", "--json").data["features"]
        assert {name: facts["content"] for name, facts in features.items()} == {
            "jpeg": "JPEG",
            "png": "PNG",
            "text": "UTF-8 text",
            "message": "serialised message",
            "raw": None,
        }
        out = shardmix("schema", tmp_path / "0").out
        assert "'jpeg': FixedLenFeature((), 'bytes'),  # JPEG" in out

    def test_values_of_several_formats_are_none_of_them(self):
        assert describe_bytes([JPEG, PNG]) is None
        assert describe_bytes([b"", b""]) is None
        assert describe_bytes([b"text", b"\xff\xfe"]) is None

    def test_a_cut_message_is_none(self):
        message = bytes.fromhex("0a0e0a0663746731323310e70718a846")
        assert is_message(message)
        assert not any(is_message(message[:stop]) for stop in range(len(message)))

    def test_other_payloads_are_described_and_not_claimed_to_be_examples(self, realdata, shardmix):
        nucleus = shardmix("schema", realdata / "nucleus" / "*")
        assert nucleus.code == 0
        assert "no tf.train.Examples" in nucleus.out
        assert "serialised message" in nucleus.out
        assert "features = {" not in nucleus.out
        text = shardmix("schema", realdata / "text" / "*", "--json").data
        assert (text["kind"], text["payloads"], text["features"]) == (None, "UTF-8 text", {})


class TestPresence:
    def test_missing_unset_and_empty_are_told_apart(self, golden, shardmix):
        features = shardmix("schema", golden / "examples.tfrecord", "--json").data["features"]
        told = {name: (facts["records"], facts["set"], facts["unset"], facts["empty"]) for name, facts in features.items()}
        assert told["unset"] == (9, 0, 9, 0)
        assert told["rare"] == (12, 12, 0, 0)
        assert told["tags"] == (60, 60, 0, 15)
        assert features["tags"]["values"] == [0, 3]

    def test_steps_of_feature_lists(self, golden, shardmix):
        lists = shardmix("schema", golden / "sequences.tfrecord", "--json").data["sequence_features"]
        assert (lists["frames"]["steps"], lists["labels"]["records"]) == ([0, 4], 5)

    def test_a_feature_of_two_kinds_is_a_finding_and_not_in_the_dict(self, tmp_path, shardmix):
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            writer.write({"a": 1, "b": 1})
            writer.write({"a": 0.5, "b": 2})
        ran = shardmix("schema", tmp_path / "0")
        assert ran.code == 1
        assert "feature 'a' is of several kinds (float32 in 1, int64 in 1 of 2 records)" in ran.err
        assert list(paste(ran.out)["features"]) == ["b"]

    def test_a_stranger_among_examples_is_a_finding(self, tmp_path, shardmix):
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            writer.write({"a": 1})
            writer.write(b"\xff\xff no Example")
            writer.write(b"")  # an Example without features, as any is allowed to be
        ran = shardmix("schema", tmp_path / "0")
        assert ran.code == 1
        assert "1 of 3 records are no Examples" in ran.err


def test_all_looks_at_every_record(tmp_path, shardmix):
    payloads = [library.encode_example({"a": 1})] * 2000 + [library.encode_example({"rare": 1})]
    (tmp_path / "shard").write_bytes(b"".join(map(frame_record, payloads)))
    assert list(shardmix("schema", tmp_path / "shard", "--json").data["features"]) == ["a"]
    everything = shardmix("schema", tmp_path / "shard", "--all", "--json").data
    assert (everything["records"], list(everything["features"])) == (2001, ["a", "rare"])
