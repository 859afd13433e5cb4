"""`shardmix info` and `shardmix index`."""

from __future__ import annotations

import os
import shutil

import pytest

from shardmix import ShardDataset, build_index
from shardmix.format.index_store import index_paths
from tests.format.small_shards import touch_later


class TestInfo:
    def test_golden(self, golden, shardmix):
        ran = shardmix("info", golden / "*.tfrecord", "--json")
        assert ran.code == 0
        data = ran.data
        assert (data["shards"], data["empty_shards"], data["records"]) == (7, 1, 62 * 3 + 20 + 3 + 3)
        assert data["compressions"] == {"none": 5, "gzip": 1, "zlib": 1}
        assert (data["record_bytes"]["least"], data["record_bytes"]["most"]) == (0, 2000)

    def test_real_files(self, realdata, manifest, shardmix):
        for row in manifest:
            data = shardmix("info", realdata / row["file"], "--json").data
            assert data["records"] == row["records"]
            assert data["compressions"] == {row["compression"]: 1}

    def test_index_states(self, make_corpus, shardmix):
        pattern = make_corpus([2, 3])
        folder = os.path.dirname(pattern)

        def state():
            return shardmix("info", pattern, "--json").data["index_state"]

        assert state() == "current"  # the writer left it
        touch_later(os.path.join(folder, "00000-0.tfrecord"))
        assert state() == "stale"
        assert state() == "current"
        for path in index_paths(folder, ".index-"):
            os.unlink(path)
        assert state() == "none"
        shutil.copy(os.path.join(folder, "00000-0.tfrecord"), os.path.join(folder, "new.tfrecord"))
        assert state() == "partial"

    def test_needs_of_a_run(self, make_corpus, shardmix):
        pattern = make_corpus([400])
        needs = shardmix("info", pattern, "--world-size", "2", "--lanes", "8", "--cycle-length", "3", "--json").data["needs"]
        assert (needs["lanes"], needs["cycle_length"], needs["open_files"]) == (8, 3, 12)
        assert needs["bytes"] == sum(needs[name] for name in ("buffer_bytes", "shared_bytes", "batch_bytes", "read_bytes"))
        ran = shardmix("info", pattern, "--world-size", "3", "--lanes", "8")
        assert (ran.code, "cannot share equally" in ran.err) == (2, True)

    def test_text(self, make_corpus, shardmix):
        out = shardmix("info", make_corpus([2, 0])).out
        assert "2 (2 plain), 1 of them empty; 0 to 2 (median 1, mean 1) records each" in out
        assert "open files, at most" in out

    def test_files_of_a_folder_that_are_no_shards_by_their_names_are_told(self, golden, shardmix):
        ran = shardmix("info", golden)
        assert ran.code == 0
        assert "left out  'uneven-00000-of-00005', 'uneven-00001-of-00005', 'uneven-00002-of-00005' and" in ran.out
        left_out = shardmix("info", golden, "--json").data["left_out"]
        assert str(golden / "uneven-00004-of-00005") in left_out
        assert shardmix("info", golden / "*.tfrecord", "--json").data["left_out"] == []


class TestIndex:
    def test_only_what_changed_is_scanned(self, golden, shardmix):
        pattern = golden / "uneven*"
        assert shardmix("index", pattern, "--json").data["scanned"] == 5
        assert shardmix("index", pattern, "--json").data["scanned"] == 0
        touch_later(golden / "uneven-00002-of-00005")
        data = shardmix("index", pattern, "--json").data
        assert (data["scanned"], data["records"], data["shards"]) == (1, 171, 5)

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_out_is_taken_by_a_data_set(self, golden, tmp_path, shardmix, workers):
        out = tmp_path / "train.shardmix"
        ran = shardmix("index", golden / "uneven*", "--out", out, "--workers", workers, "--json")
        assert (ran.code, ran.data["index"]) == (0, str(out))
        assert len(ShardDataset(str(golden / "uneven*"), index=str(out))) == 171
        assert index_paths(str(golden), ".index-") == []

    def test_idx_is_what_the_tfrecord_package_writes(self, golden, tmp_path, shardmix):
        from tfrecord.tools.tfrecord2idx import create_index

        ran = shardmix("index", golden / "uneven*", golden / "examples.*tfrecord", "--idx")
        assert ran.code == 0
        assert "2 compressed shards can have no .idx" in ran.out
        for name in ("uneven-00002-of-00005", "examples.tfrecord"):
            create_index(str(golden / name), str(tmp_path / "theirs"))
            assert (golden / f"{name}.idx").read_text() == (tmp_path / "theirs").read_text()

    def test_compressed_shards_alone_say_that_there_is_no_idx(self, golden, shardmix):
        ran = shardmix("index", golden / "examples.gzip.tfrecord", "--idx")
        assert (ran.code, "1 compressed shard can have no .idx" in ran.out) == (0, True)
        assert "no .idx" not in shardmix("index", golden / "examples.gzip.tfrecord").out

    def test_damage_is_named_and_the_rest_indexed(self, make_corpus, shardmix):
        pattern = make_corpus([3, 2])
        path = pattern.replace("*", "00000-0")
        with open(path, "r+b") as file:
            file.truncate(os.path.getsize(path) - 1)
        ran = shardmix("index", pattern, "--json")
        assert ran.code == 1
        assert [(finding["kind"], finding["record"]) for finding in ran.data["findings"]] == [("cut", 2)]
        assert build_index(pattern, on_corrupt="skip").counts.tolist() == [2, 2]
