"""`shardmix reshard`: the same records, in other shards."""

from __future__ import annotations

import os
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from shardmix import CorruptShardError, ShardWriter, build_index, read_records
from shardmix.format.index import make_index
from shardmix.tools.cuts import cut_shards
from shardmix.tools.full_shuffle import FullShuffle
from shardmix.tools.reshard import MIN_MEMORY, reshard


def payloads(paths):
    return [bytes(payload) for path in paths for payload in read_records(path)]


def write(folder, counts, rng, compression=None, size=40):
    """Shards of records of different lengths; returns (pattern, payloads in listing order)."""
    written = []
    for shard, count in enumerate(counts):
        with ShardWriter(folder / f"{shard}-{{}}", num_shards=1, compression_type=compression) as writer:
            for _ in range(count):
                written.append(rng.bytes(int(rng.integers(size))))
                writer.write(written[-1])
    return str(folder / "*"), written


class TestOrder:
    @pytest.mark.parametrize("compression", [None, "gzip"])
    @pytest.mark.parametrize("num_shards", [1, 3, 50])
    def test_without_shuffle_it_stays(self, tmp_path, compression, num_shards):
        pattern, written = write(tmp_path / "in", [5, 0, 17, 20], np.random.default_rng(0), compression)
        report = reshard(pattern, tmp_path / "out" / "new", num_shards=num_shards)
        assert payloads(report.paths) == written
        assert max(report.records) - min(report.records) <= 1
        assert os.path.basename(report.paths[0]) == f"new-00000-of-{num_shards:05d}"

    def test_a_shuffle_is_the_same_whatever_memory_tasks_and_shards(self, tmp_path):
        pattern, written = write(tmp_path / "in", [300, 0, 900], np.random.default_rng(1), size=60_000)
        orders = []
        for number, options in enumerate([{"num_shards": 1}, {"num_shards": 7}, {"num_shards": 2, "num_workers": 3}]):
            report = reshard(pattern, tmp_path / f"out{number}" / "{}", shuffle=True, memory_bytes=MIN_MEMORY, **options)
            orders.append(payloads(report.paths))
        assert orders[0] != written
        assert Counter(orders[0]) == Counter(written)
        assert orders[0] == orders[1] == orders[2]
        assert payloads(reshard(pattern, tmp_path / "other" / "{}", shuffle=True, seed=1).paths) != orders[0]

    def test_the_result_is_compressed_and_indexed(self, tmp_path):
        pattern, written = write(tmp_path / "in", [30], np.random.default_rng(2))
        report = reshard(pattern, tmp_path / "out" / "{}.gz", num_shards=4, compression_type="gzip", shuffle=True)
        index = build_index(str(tmp_path / "out" / "*.gz"))
        assert (index.counts.tolist(), index.compressed.all()) == (list(report.records), True)
        assert len(list((tmp_path / "out").glob(".index-*"))) == 1
        assert Counter(payloads(report.paths)) == Counter(written)

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_any_executor(self, tmp_path, shuffle):
        pattern, written = write(tmp_path / "in", [50, 50], np.random.default_rng(3))
        with ThreadPoolExecutor(2) as executor:
            report = reshard(pattern, tmp_path / "out" / "{}", num_shards=5, shuffle=shuffle, executor=executor, num_workers=2)
        assert Counter(payloads(report.paths)) == Counter(written)


class TestFullShuffle:
    @pytest.mark.parametrize("num_records", [1, 2, 3, 4, 5, 16, 17, 1000])
    def test_it_is_a_permutation_at_every_size(self, num_records):
        places = FullShuffle(num_records, seed=3).places(np.arange(num_records))
        assert sorted(places.tolist()) == list(range(num_records))

    def test_every_place_is_about_as_likely(self):
        counts = np.zeros((6, 6))
        for seed in range(3000):
            counts[np.arange(6), FullShuffle(6, seed).places(np.arange(6))] += 1
        assert abs(counts - 500).max() < 110  # five standard deviations

    def test_neighbours_part(self):
        places = FullShuffle(100_000, seed=0).places(np.arange(100_000))
        assert abs(np.abs(np.diff(places)).mean() / 100_000 - 1 / 3) < 0.01
        assert abs(np.corrcoef(places, np.arange(100_000))[0, 1]) < 0.02


class TestSizes:
    INDEX = make_index(np.array([3, 0, 4]), [np.array([100, 0, 100]), np.array([], int), np.array([100, 100, 100, 100])])

    def test_as_many_shards_as_hold_records(self):
        assert cut_shards(self.INDEX).tolist() == [0, 3, 7]

    def test_records_are_at_most(self):
        assert cut_shards(self.INDEX, shard_records=3).tolist() == [0, 2, 4, 7]

    def test_bytes_are_about(self):
        bounds = cut_shards(self.INDEX, shard_bytes=250).tolist()
        assert bounds == [0, 3, 5, 7]

    def test_one_size_is_given(self):
        with pytest.raises(ValueError, match="one of num_shards, shard_records and shard_bytes"):
            cut_shards(self.INDEX, num_shards=2, shard_bytes=3)
        with pytest.raises(ValueError, match="no records"):
            cut_shards(make_index(np.array([0]), 1), num_shards=2)


class TestDamage:
    def damage(self, pattern, offset):
        path = pattern.replace("*", "0-0")
        data = bytearray(Path(path).read_bytes())
        data[offset] ^= 1
        Path(path).write_bytes(data)
        return path

    @pytest.mark.parametrize("shuffle", [False, True])
    def test_a_damaged_payload_stops_it_or_is_left_out(self, tmp_path, shuffle):
        pattern, written = write(tmp_path / "in", [5, 5], np.random.default_rng(4), size=50)
        path = self.damage(pattern, 12)
        with pytest.raises(CorruptShardError, match="payload CRC"):
            reshard(pattern, tmp_path / "out" / "{}", num_shards=2, shuffle=shuffle)
        assert not (tmp_path / "out").exists()
        report = reshard(pattern, tmp_path / "out" / "{}", num_shards=2, shuffle=shuffle, on_corrupt="skip")
        assert Counter(payloads(report.paths)) == Counter(written[1:])
        assert [(finding.path, finding.kind, finding.record) for finding in report.findings] == [(path, "payload", 0)]

    def test_damaged_framing_cuts_its_shard_off(self, tmp_path, shardmix):
        pattern, written = write(tmp_path / "in", [5, 5], np.random.default_rng(5))
        os.truncate(pattern.replace("*", "0-0"), os.path.getsize(pattern.replace("*", "0-0")) - 1)
        ran = shardmix("reshard", pattern, tmp_path / "out" / "{}", "--shards", "1", "--json")
        assert ran.code == 1
        assert [finding["kind"] for finding in ran.data["findings"]] == ["cut"]
        assert payloads(ran.data["paths"]) == written[:4] + written[5:]


class TestCommand:
    def test_golden(self, golden, tmp_path, shardmix):
        ran = shardmix("reshard", golden / "examples.*tfrecord", tmp_path / "out" / "x", "--records", "50", "--shuffle", "--json")
        assert ran.code == 0
        assert Counter(payloads(ran.data["paths"])) == Counter(payloads([golden / "examples.tfrecord"] * 3))
        assert max(ran.data["records"]) <= 50

    def test_real_files(self, realdata, manifest, tmp_path, shardmix):
        for number, row in enumerate(manifest):
            ran = shardmix("reshard", realdata / row["file"], tmp_path / f"{number}" / "{}", "--shards", "2", "--json")
            assert ran.code == 0
            assert payloads(ran.data["paths"]) == payloads([realdata / row["file"]])

    def test_older_shards_of_the_same_name_are_told(self, make_corpus, tmp_path, monkeypatch, shardmix):
        monkeypatch.chdir(tmp_path)
        pattern = make_corpus([4])
        assert "warning" not in shardmix("reshard", pattern, "new/part", "--shards", "2").out
        ran = shardmix("reshard", pattern, "new/part", "--shards", "3")
        assert ran.code == 0
        assert f"warning: 2 older files beside them would be read by a glob for the new shards: {tmp_path}/new/part-" in ran.out
        data = shardmix("reshard", pattern, "new/part", "--shards", "4", "--json").data
        assert (len(data["paths"]), len(data["others"])) == (4, 5)

    def test_nothing_is_overwritten(self, make_corpus, shardmix):
        pattern = make_corpus([2])
        ran = shardmix("reshard", pattern, pattern.replace("*", "00000-{}"))
        assert (ran.code, "nothing is overwritten" in ran.err) == (2, True)

    def test_two_processes(self, make_corpus, tmp_path, shardmix):
        pattern = make_corpus([20, 30])
        ran = shardmix("reshard", pattern, tmp_path / "out" / "{}", "--shuffle", "--workers", "2", "--memory", "40MB", "--json")
        assert ran.code == 0
        assert sum(ran.data["records"]) == 50
