"""What an index says: counts, places, whether a shard is still the same, and how it travels."""

from __future__ import annotations

import os
import pickle
import shutil
import tracemalloc

import numpy as np
import pytest

from shardmix.errors import StaleIndexError
from shardmix.format import index_build, index_file, index_scan
from shardmix.format.framing import frame_record
from shardmix.format.index import Index, make_index, open_index, write_index
from tests.format.small_shards import COUNTS, fail_with_a_full_disk, index_files, touch_later, write_shard


class TestContents:
    def test_counts_lengths_and_places(self, four_shards):
        index = open_index(four_shards)
        assert index.counts.tolist() == list(COUNTS)
        assert index.compressed.tolist() == [False] * 4
        assert index.lengths(2, 1, 4).tolist() == [1, 2, 3]
        assert [index.offset(2, record) for record in range(6)] == [0, 16, 33, 51, 70, 90]
        assert index.spans(2, 3, 3)[1].tolist() == []
        assert (len(index), index.num_records, index.compression(0), index.entries(0)) == (4, 9, "none", ())
        assert index.path(1) == str(four_shards / "1.tfrecord")

    def test_golden_files_in_all_compressions(self, golden_dir):
        index = open_index(golden_dir, index="memory")
        facts = {index.corpus.name(shard): (index.counts[shard], index.compression(shard)) for shard in range(len(index))}
        assert facts == {
            "empty.tfrecord": (0, "none"),
            "examples.gzip.tfrecord": (62, "gzip"),
            "examples.tfrecord": (62, "none"),
            "examples.zlib.tfrecord": (62, "zlib"),
            "raw.tfrecord": (3, "none"),
            "sequences.tfrecord": (20, "none"),
            "zero_length.tfrecord": (3, "none"),
        }
        plain, gzip, zlib = (index.lengths(shard, 0, 62).tolist() for shard in (2, 1, 3))
        assert plain == gzip == zlib

    @pytest.mark.parametrize(("first", "stop"), [(-1, 2), (2, 1), (0, 6), (6, 6)])
    def test_records_that_are_not_there(self, four_shards, first, stop):
        with pytest.raises(IndexError, match=f"2.tfrecord: records {first} to {stop} are asked for, and it has 5"):
            open_index(four_shards).lengths(2, first, stop)

    def test_digest_is_the_same_wherever_the_corpus_lies(self, four_shards, tmp_path):
        digest = open_index(four_shards).digest()
        shutil.copytree(four_shards, tmp_path / "elsewhere" / "deep")
        assert open_index(tmp_path / "elsewhere" / "deep").digest() == digest
        write_shard(four_shards / "3.tfrecord", [0, 0])
        assert open_index(four_shards).digest() != digest


class TestCheck:
    def test_unchanged_shard_passes(self, four_shards):
        index = open_index(four_shards)
        for shard in range(4):
            index.check(shard)

    def test_resized_shard(self, four_shards):
        index = open_index(four_shards)
        write_shard(four_shards / "2.tfrecord", [1])
        with pytest.raises(StaleIndexError, match=r"2.tfrecord: it has 17 bytes, and had 90 when it was indexed"):
            index.check(2)

    def test_touched_shard(self, four_shards):
        index = open_index(four_shards)
        touch_later(four_shards / "2.tfrecord")
        with pytest.raises(StaleIndexError, match="90 bytes, and was last changed at another time"):
            index.check(2)

    def test_removed_shard(self, four_shards):
        index = open_index(four_shards)
        (four_shards / "2.tfrecord").unlink()
        with pytest.raises(FileNotFoundError):
            index.check(2)

    def test_shard_that_changes_during_the_scan(self, four_shards, monkeypatch):
        scan = index_scan.scan_shard

        def scan_and_append(path, **settings):
            found = scan(path, **settings)
            with open(path, "ab") as file:
                file.write(frame_record(b"more"))
            return found

        monkeypatch.setattr(index_scan, "scan_shard", scan_and_append)
        with pytest.raises(StaleIndexError, match=r"0.tfrecord: it changed while it was indexed \(51 bytes before, 71 now\)"):
            open_index(four_shards)


class TestPickle:
    def test_is_small_and_maps_the_file_again(self, four_shards):
        index = open_index(four_shards)
        data = pickle.dumps(index)
        assert len(data) < 500
        again = pickle.loads(data)
        assert list(again.corpus) == list(index.corpus)
        assert again.spans(2, 1, 4)[0] == 16
        assert again.file_path == index.file_path

    @pytest.mark.parametrize("fate", ["removed", "replaced", "damaged"])
    def test_goes_on_with_what_it_was_when_the_file_is_not_that_any_more(self, four_shards, fate):
        index = open_index(four_shards)
        if fate == "removed":
            os.unlink(index.file_path)
        elif fate == "replaced":
            write_shard(four_shards / "2.tfrecord", [1])
            assert open_index(four_shards).counts[2] == 1
        else:
            os.unlink(index.file_path)
            with open(index.file_path, "wb") as file:
                file.write(b"x")
        again = pickle.loads(pickle.dumps(index))
        for one in (index, again):
            assert one.counts.tolist() == list(COUNTS)
            assert one.lengths(2, 0, 5).tolist() == [0, 1, 2, 3, 4]

    def test_replaced_between_pickling_and_unpickling(self, four_shards):
        data = pickle.dumps(open_index(four_shards))
        write_shard(four_shards / "2.tfrecord", [1])
        open_index(four_shards)
        with pytest.raises(StaleIndexError, match="it was replaced while a worker process started"):
            pickle.loads(data)

    def test_in_memory(self, four_shards):
        again = pickle.loads(pickle.dumps(open_index(four_shards, index="memory")))
        assert again.lengths(2, 0, 5).tolist() == [0, 1, 2, 3, 4]


class TestMakeIndex:
    def test_lengths_of_each_shard(self):
        index = make_index(np.array([2, 0, 3]), [np.array([4, 5]), np.array([], np.int64), np.array([7, 7, 7])])
        assert (index.counts.tolist(), index.offset(0, 1), index.lengths(2, 0, 3).tolist()) == ([2, 0, 3], 20, [7, 7, 7])
        index.check(0)

    def test_one_length_for_all(self):
        index = make_index(np.array([2, 0, 3]), 100)
        assert (index.path(2), index.offset(2, 3), index.lengths(0, 0, 2).tolist()) == ("shard-0000002", 348, [100, 100])
        assert pickle.loads(pickle.dumps(index)).digest() == index.digest()

    def test_million_shards_and_a_billion_records(self):
        counts = np.full(1_000_000, 1000)
        tracemalloc.start()
        index = make_index(counts, 784)
        index.digest()
        offset, lengths = index.spans(999_999, 998, 1000)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert (index.num_records, offset, lengths.tolist()) == (10**9, 798_400, [784, 784])
        assert peak < 60e6

    def test_million_shards_in_a_file(self, tmp_path):
        index = make_index(np.full(1_000_000, 1000), 784)
        path = str(tmp_path / "large.shardmix")
        index_file.write_index_file(path, index._table.columns)
        tracemalloc.start()
        opened = Index("", index_file.IndexFile(path))
        assert opened.spans(999_999, 998, 1000)[0] == 798_400
        assert opened.digest() == index.digest()
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 60e6
        assert len(pickle.dumps(opened)) < 500


class TestWriteIndex:
    def test_shards_just_written_are_not_scanned(self, four_shards, scanned):
        paths = [str(four_shards / f"{shard}.tfrecord") for shard in (2, 0, 1, 3)]
        write_index(paths, [np.arange(count) for count in (5, 3, 0, 1)])
        index = open_index(four_shards)
        assert (scanned, index.counts.tolist()) == ([], list(COUNTS))
        assert index.lengths(2, 0, 5).tolist() == [0, 1, 2, 3, 4]

    def test_compression_and_entries(self, four_shards):
        write_index([str(four_shards / "2.tfrecord")], [np.arange(5)], compression="gzip", entries=[((0, 0),)])
        index = open_index(four_shards / "2.tfrecord")
        assert (index.compression(0), index.entries(0), index.compressed.tolist()) == ("gzip", ((0, 0),), [True])

    def test_several_writers_of_a_folder(self, four_shards, scanned):
        for shard, count in enumerate(COUNTS):
            write_index([str(four_shards / f"{shard}.tfrecord")], [np.arange(count)])
        assert len(index_files(four_shards)) == 4
        assert open_index(four_shards).counts.tolist() == list(COUNTS)
        assert scanned == []
        assert len(index_files(four_shards)) == 1

    def test_failure_is_told_and_no_more(self, four_shards, scanned, monkeypatch, caplog):
        monkeypatch.setattr(index_build, "write_index_file", fail_with_a_full_disk)
        write_index([str(four_shards / "2.tfrecord")], [np.arange(5)])
        assert "the shards are whole, but their index could not be written" in caplog.text
