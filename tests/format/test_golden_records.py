"""The files that TensorFlow wrote, record for record, and the tfrecord package as a second reader and writer."""

from __future__ import annotations

import json

import pytest

from shardmix import ShardWriter, read_records
from shardmix.format.scan import scan_shard


def read(path, **options):
    return [bytes(payload) for payload in read_records(path, **options)]


@pytest.mark.parametrize("name", ["examples", "sequences"])
def test_as_many_records_as_the_json_has(golden_dir, name):
    expected = json.loads((golden_dir / f"{name}.json").read_text(encoding="utf-8"))
    assert len(read(golden_dir / f"{name}.tfrecord")) == len(expected)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_hold_the_records_of_the_plain_one(golden_dir, compression):
    path = golden_dir / f"examples.{compression}.tfrecord"
    assert scan_shard(str(path)).compression == compression
    assert read(path) == read(path, compression_type=compression) == read(golden_dir / "examples.tfrecord")


def test_raw_empty_and_zero_length(golden_dir):
    assert [len(payload) for payload in read(golden_dir / "raw.tfrecord")] == [1, 2000, 256]
    assert read(golden_dir / "empty.tfrecord") == []
    assert [len(payload) for payload in read(golden_dir / "zero_length.tfrecord")] == [0, 1, 0]


def test_uneven_shards(golden_dir):
    paths = sorted(golden_dir.glob("uneven-*"))
    assert [len(read(path)) for path in paths] == [len(scan_shard(str(path)).lengths) for path in paths] == [7, 0, 101, 40, 23]


@pytest.mark.parametrize("name", ["examples", "sequences", "raw", "zero_length", "empty"])
def test_rewriting_the_payloads_gives_the_golden_bytes(golden_dir, tmp_path, name):
    with ShardWriter(tmp_path / "again-{}", num_shards=1) as writer:
        for payload in read_records(golden_dir / f"{name}.tfrecord"):
            writer.write(payload)
    assert (tmp_path / "again-0").read_bytes() == (golden_dir / f"{name}.tfrecord").read_bytes()


class TestTfrecordPackage:
    @pytest.fixture
    def package(self):
        return pytest.importorskip("tfrecord")

    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_reads_our_files(self, package, golden_dir, tmp_path, compression):
        payloads = read(golden_dir / "examples.tfrecord")
        with ShardWriter(tmp_path / "ours-{}", num_shards=1, compression_type=compression) as writer:
            for payload in payloads:
                writer.write(payload)
        (path,) = writer.paths
        records = package.tfrecord_iterator(path, compression_type=compression)
        assert [bytes(record) for record in records] == payloads

    def test_its_files_are_read_by_us(self, package, tmp_path):
        path = str(tmp_path / "theirs")
        writer = package.TFRecordWriter(path)
        for number in range(3):
            writer.write({"id": (number, "int")})
        writer.close()
        ours = read(path)
        theirs = [bytes(record) for record in package.tfrecord_iterator(path)]
        assert ours == theirs
        assert len(ours) == 3
