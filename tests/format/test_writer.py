"""Writing shards: how records are dealt, what files are called, and what is left when it fails."""

from __future__ import annotations

import gzip
import logging
import mmap
import os
import resource

import numpy as np
import pytest

from shardmix import FixedLenFeature, ShardWriter, read_records
from shardmix.format.framing import frame_record

PAYLOADS = [bytes([65 + n]) * n for n in range(7)]  # b"", b"B", b"CC", …; frames of 16 to 22 bytes


def write_all(pattern, payloads=PAYLOADS, **options):
    with ShardWriter(pattern, **options) as writer:
        for payload in payloads:
            writer.write(payload)
    return writer.paths


def read_all(paths):
    return [[bytes(payload) for payload in read_records(path)] for path in paths]


def visible(folder):
    return sorted(name for name in os.listdir(folder) if not name.startswith("."))


def hidden_shards(folder):
    return [name for name in os.listdir(folder) if name.startswith(".") and name.endswith(".tmp")]


class TestDealing:
    @pytest.mark.parametrize("compression", [None, "gzip", "ZLIB"])
    def test_num_shards_deals_round_robin(self, tmp_path, compression):
        paths = write_all(tmp_path / "train", num_shards=3, compression_type=compression)
        assert read_all(paths) == [PAYLOADS[0::3], PAYLOADS[1::3], PAYLOADS[2::3]]

    def test_max_shard_records_fills_one_after_the_other(self, tmp_path):
        paths = write_all(tmp_path / "train", max_shard_records=3)
        assert read_all(paths) == [PAYLOADS[0:3], PAYLOADS[3:6], PAYLOADS[6:7]]

    def test_a_last_full_shard_is_not_followed_by_an_empty_one(self, tmp_path):
        assert len(write_all(tmp_path / "train", PAYLOADS[:6], max_shard_records=3)) == 2

    def test_max_shard_bytes_is_not_exceeded(self, tmp_path):
        paths = write_all(tmp_path / "train", max_shard_bytes=51)
        assert [os.path.getsize(path) for path in paths] == [16 + 17 + 18, 19 + 20, 21 + 22]
        assert sum(read_all(paths), []) == PAYLOADS

    def test_a_record_larger_than_max_shard_bytes_has_a_shard_of_its_own(self, tmp_path):
        paths = write_all(tmp_path / "train", [b"a", bytes(100), b"b"], max_shard_bytes=40)
        assert read_all(paths) == [[b"a"], [bytes(100)], [b"b"]]

    def test_more_shards_than_records(self, tmp_path):
        paths = write_all(tmp_path / "train", [b"only"], num_shards=3, compression_type="gzip")
        assert read_all(paths) == [[b"only"], [], []]

    @pytest.mark.parametrize("limit", ["num_shards", "max_shard_records", "max_shard_bytes"])
    def test_no_records_make_an_empty_shard(self, tmp_path, limit):
        paths = write_all(tmp_path / "train", [], **{limit: 1})
        assert [os.path.basename(path) for path in paths] == ["train-00000-of-00001"]
        assert read_all(paths) == [[]]

    def test_large_payloads_among_small_ones(self, tmp_path):
        payloads = [b"small", bytes(3_000_000), b"", b"x" * 70_000, b"last"]
        for compression in (None, "gzip"):
            assert read_all(write_all(tmp_path / "train", payloads, num_shards=1, compression_type=compression)) == [payloads]

    def test_many_shards_need_few_descriptors(self, tmp_path):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/dev/fd")) + 12, hard))
        try:
            paths = write_all(tmp_path / "train", num_shards=64)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        assert len(paths) == 64


class TestNames:
    @pytest.mark.parametrize(
        ("pattern", "names"),
        [
            ("train", ["train-00000-of-00002", "train-00001-of-00002"]),
            ("train.tfrecord", ["train.tfrecord-00000-of-00002", "train.tfrecord-00001-of-00002"]),
            ("train-{}.tfrecord", ["train-0.tfrecord", "train-1.tfrecord"]),
            ("{:05d}.tfrecord", ["00000.tfrecord", "00001.tfrecord"]),
        ],
    )
    def test_patterns(self, tmp_path, pattern, names):
        paths = write_all(tmp_path / "made" / pattern, num_shards=2)
        assert paths == tuple(str(tmp_path / "made" / name) for name in names)
        assert visible(tmp_path / "made") == names

    def test_a_pattern_in_the_current_folder(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        assert write_all("train-{}", num_shards=1) == ("train-0",)
        assert visible(tmp_path) == ["train-0"]

    @pytest.mark.parametrize("bad", ["a-{}-{}", "a-{name}", "a-{", "a-{{}}", "{}/a", "a-{:s}", "a-{:.0f}{0.real.x}", "folder/"])
    def test_bad_patterns(self, tmp_path, bad):
        with pytest.raises(ValueError, match="pattern"):
            ShardWriter(f"{tmp_path}/{bad}", num_shards=2)
        assert visible(tmp_path) == []

    def test_a_file_url_is_a_local_path(self, tmp_path):
        assert write_all(f"file://{tmp_path}/t", num_shards=1) == (f"{tmp_path}/t-00000-of-00001",)

    def test_urls_are_refused(self):
        with pytest.raises(ValueError, match="local files"):
            ShardWriter("s3://bucket/train", num_shards=1)

    def test_older_shards_are_replaced_and_others_that_match_are_named(self, tmp_path, caplog):
        write_all(tmp_path / "train-{}", num_shards=3)
        write_all(tmp_path / "train-other-{}", num_shards=1)
        caplog.clear()
        with caplog.at_level(logging.WARNING, "shardmix"):
            paths = write_all(tmp_path / "train-{}", [b"new"], num_shards=2)
        assert read_all(paths) == [[b"new"], []]
        assert [message.split(":")[0] for message in caplog.messages] == [str(tmp_path / "train-2")]


class TestArguments:
    def test_exactly_one_limit(self, tmp_path):
        for limits in ({}, {"num_shards": 1, "max_shard_records": 1}):
            with pytest.raises(TypeError, match="exactly one of num_shards, max_shard_records, max_shard_bytes"):
                ShardWriter(tmp_path / "train", **limits)

    def test_limits_are_positive_integers(self, tmp_path):
        with pytest.raises(ValueError, match="num_shards is 0"):
            ShardWriter(tmp_path / "train", num_shards=0)
        for bad in (1.5, True, "3"):
            with pytest.raises(TypeError, match="max_shard_records is"):
                ShardWriter(tmp_path / "train", max_shard_records=bad)
        assert len(write_all(tmp_path / "train", max_shard_records=np.int64(4))) == 2

    @pytest.mark.parametrize("bad", ["auto", "snappy", 9])
    def test_compression(self, tmp_path, bad):
        with pytest.raises(ValueError, match="compression_type is"):
            ShardWriter(tmp_path / "train", num_shards=1, compression_type=bad)


    @pytest.mark.parametrize("bad", [{"label": "int64"}, {"label": 3}, {7: FixedLenFeature((), "int64")}, 5])
    def test_features_are_checked_before_a_file_is_made(self, tmp_path, bad):
        with pytest.raises((TypeError, ValueError), match=r"^feature"):
            ShardWriter(tmp_path / "train", num_shards=1, features=bad)
        assert os.listdir(tmp_path) == []


class TestWrite:
    def test_any_contiguous_buffer(self, tmp_path):
        array = np.arange(4, dtype="<u2").reshape(2, 2)
        records = [b"ab", bytearray(b"cd"), memoryview(b"ef"), array, np.zeros((0, 2))]
        paths = write_all(tmp_path / "train", records, num_shards=1)
        assert read_all(paths) == [[b"ab", b"cd", b"ef", array.tobytes(), b""]]

    def test_a_buffer_may_be_used_again(self, tmp_path):
        buffer = bytearray(b"one")
        with ShardWriter(tmp_path / "train", num_shards=1) as writer:
            writer.write(buffer)
            buffer[:] = b"two"
            writer.write(buffer)
        assert read_all(writer.paths) == [[b"one", b"two"]]

    @pytest.mark.parametrize("bad", ["text", 3, None, [1, 2], np.arange(6)[::2]], ids=repr)
    def test_what_is_no_record_is_refused_and_the_writer_goes_on(self, tmp_path, bad):
        with ShardWriter(tmp_path / "train", num_shards=2) as writer:
            writer.write(b"a")
            with pytest.raises(TypeError, match="a record is bytes or a mapping"):
                writer.write(bad)
            writer.write(b"b")
        assert read_all(writer.paths) == [[b"a"], [b"b"]]

    def test_over_2_gib_is_refused_before_a_byte_is_written(self, tmp_path):
        with mmap.mmap(-1, 2**31) as memory, ShardWriter(tmp_path / "train", num_shards=1) as writer:
            with pytest.raises(ValueError, match="a payload of 2147483648 bytes; a record holds at most 2147483647"):
                writer.write(memory)
            writer.write(b"after")
        assert read_all(writer.paths) == [[b"after"]]

    def test_a_mapping_becomes_an_example(self, tmp_path):
        example = {"label": 3}
        (path,) = write_all(tmp_path / "train", [example], num_shards=1)
        (payload,) = read_records(path)
        assert bytes(payload) == bytes.fromhex("0a10 0a0e 0a05 6c6162656c 1205 1a03 0a01 03".replace(" ", ""))

    def test_a_mapping_is_held_against_the_features(self, tmp_path):
        with ShardWriter(tmp_path / "t", num_shards=1, features={"label": FixedLenFeature((2,), "int64")}) as writer:
            with pytest.raises(ValueError, match="feature 'label': expected the shape"):
                writer.write({"label": [1, 2, 3]})
            writer.write({"label": [1, 2]})
        assert len(list(read_records(writer.paths[0]))) == 1

    def test_after_close_nothing_can_be_written(self, tmp_path):
        writer = ShardWriter(tmp_path / "train", num_shards=1)
        writer.close()
        writer.close()
        with pytest.raises(ValueError, match="closed"):
            writer.write(b"late")


class TestBytes:
    def test_plain_shards_are_frames_end_to_end(self, tmp_path):
        (path,) = write_all(tmp_path / "train", num_shards=1)
        with open(path, "rb") as file:
            assert file.read() == b"".join(map(frame_record, PAYLOADS))

    @pytest.mark.parametrize("compression", ["gzip", "zlib"])
    def test_the_same_records_give_the_same_bytes(self, tmp_path, compression):
        contents = set()
        for name in ("a", "b"):
            (path,) = write_all(tmp_path / name, num_shards=1, compression_type=compression)
            with open(path, "rb") as file:
                contents.add(file.read())
        assert len(contents) == 1

    def test_gzip_has_no_time_stamp_and_is_read_by_gzip(self, tmp_path):
        (path,) = write_all(tmp_path / "a", num_shards=1, compression_type="gzip")
        with open(path, "rb") as file:
            data = file.read()
        assert data[4:8] == bytes(4)
        assert gzip.decompress(data) == b"".join(map(frame_record, PAYLOADS))

    def test_files_have_the_usual_permissions(self, tmp_path):
        (path,) = write_all(tmp_path / "train", num_shards=1)
        usual = tmp_path / "usual"
        usual.touch()
        assert os.stat(path).st_mode == usual.stat().st_mode
