"""`shardmix mix` and `shardmix bench`: the real loader over the user's corpus."""

from __future__ import annotations

import numpy as np
import pytest

from shardmix import ShardWriter
from shardmix.format.index import make_index
from shardmix.runtime.needs import RunSettings
from shardmix.tools.bench import bench_shards
from shardmix.tools.mix import measure_shards
from shardmix.tools.recommend import recommend_settings


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """600 records of 6 labels, sorted, in 6 files."""
    folder = tmp_path_factory.mktemp("corpus")
    with ShardWriter(folder / "{}.tfrecord", max_shard_records=100) as writer:
        for record in range(600):
            writer.write({"label": record // 100, "image": bytes(200)})
    return str(folder / "*.tfrecord")


class TestMix:
    def test_numbers(self, corpus, shardmix):
        ran = shardmix("mix", corpus, "--batch-size", "32", "--num-workers", "2", "--key", "label", "--json")
        assert ran.code == 0
        data = ran.data
        assert (data["num_rows"], data["loader"]["workers"]["mean"], data["plain"]["workers"]["mean"]) == (600, 2.0, 1.0)
        assert data["loader"]["labels"]["mean"] > 1.5 * data["plain"]["labels"]["mean"]
        assert data["key_order"]["is_sorted"]
        assert data["recommendation"] is None

    def test_settings_are_those_of_the_run(self, corpus, shardmix):
        options = ("--lanes", "4", "--cycle-length", "1", "--shuffle-buffer-size", "0", "--batch-size", "16")
        ran = shardmix("mix", corpus, *options, "--num-workers", "0", "--batches", "5", "--json")
        assert (ran.data["num_batches"], ran.data["loader"]["lanes"]["mean"]) == (5, 4.0)

    def test_a_sorted_corpus_is_warned_of(self, corpus, shardmix):
        ran = shardmix("mix", corpus, "--batch-size", "32", "--num-workers", "0", "--key", "label", "--shuffle-buffer-size", "0",
                       "--lanes", "2", "--cycle-length", "1")  # fmt: skip
        assert "warning: the corpus looks sorted by 'label'" in ran.out
        assert "a larger cycle_length helps most" in ran.out

    def test_records_need_not_be_examples(self, tmp_path, shardmix):
        with ShardWriter(tmp_path / "{}", num_shards=2) as writer:
            for number in range(50):
                writer.write(b"text %d" % number)
        assert shardmix("mix", tmp_path / "[01]", "--batch-size", "8", "--num-workers", "0", "--json").data["num_rows"] == 50

    def test_a_key_that_is_not_there(self, corpus, shardmix):
        ran = shardmix("mix", corpus, "--key", "lable", "--num-workers", "0")
        assert (ran.code, "'lable'" in ran.err, "'label'" in ran.err) == (2, True, True)

    def test_memory_without_recommend(self, corpus, shardmix):
        assert shardmix("mix", corpus, "--memory", "1GB").code == 2


class TestPlot:
    def test_the_picture_shows_the_shares(self, corpus, tmp_path, monkeypatch):
        pytest.importorskip("matplotlib")
        from shardmix.tools import plot

        drawn = []
        draw_panel = plot._draw_panel
        monkeypatch.setattr(plot, "_draw_panel", lambda axis, *rest: drawn.append(axis) or draw_panel(axis, *rest))
        report = measure_shards(corpus, RunSettings(batch_size=32, num_workers=0), key="label").report
        plot.plot_mixing(report, str(tmp_path / "mixing.png"))
        assert (tmp_path / "mixing.png").read_bytes()[:4] == b"\x89PNG"
        assert [axis.get_title().splitlines()[0] for axis in drawn] == ["plain DataLoader", "MixLoader", "perfect shuffle"]
        for axis, mixing in zip(drawn, (report.plain, report.loader, report.perfect), strict=True):
            shown = axis.collections[0].get_array()
            np.testing.assert_allclose(shown.filled(0), mixing.picture.shares)
            assert (axis.get_xlabel(), axis.get_ylim()) == ("batch", (0.0, 6.0))
            assert f"{mixing.files.mean:.1f} files" in axis.get_title()

    @pytest.mark.parametrize("records", [1, 3])
    def test_the_smallest_corpora(self, tmp_path, shardmix, records):
        pytest.importorskip("matplotlib")
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            for number in range(records):
                writer.write({"a": number})
        ran = shardmix("mix", tmp_path / "0", "--num-workers", "0", "--batch-size", "2", "--plot", tmp_path / "p.png")
        assert (ran.code, (tmp_path / "p.png").exists()) == (0, True)
        assert f"{(records + 1) // 2} batch{'' if records == 1 else 'es'} of 2, " in ran.out

    def test_a_picture_of_no_known_kind_is_refused_before_the_run(self, tmp_path, shardmix):
        pytest.importorskip("matplotlib")
        ran = shardmix("mix", tmp_path / "not looked for", "--plot", "mixing.txt")
        assert (ran.code, "'txt', expected one of" in ran.err, "png" in ran.err) == (2, True, True)


class TestRecommend:
    def index(self, num_shards=64, records=10_000, size=1000):
        return make_index(np.full(num_shards, records), size)

    def test_the_memory_is_used_and_not_exceeded(self):
        for megabytes in (300, 500, 1000, 5000):
            found = recommend_settings(self.index(), megabytes * 1_000_000, RunSettings(num_workers=2))
            assert found.needs.bytes <= megabytes * 1_000_000
            if found.shuffle_buffer_size < 640_000:
                assert found.needs.bytes > 0.9 * megabytes * 1_000_000

    def test_more_memory_holds_more_records(self):
        found = [recommend_settings(self.index(), size, RunSettings()) for size in (400_000_000, 500_000_000, 2_000_000_000)]
        assert [one.shuffle_buffer_size for one in found] == sorted(one.shuffle_buffer_size for one in found)
        assert found[-1].shuffle_buffer_size == 640_000

    def test_ranks_share_the_buffer(self):
        alone, of_four = (recommend_settings(self.index(), 400_000_000, RunSettings(world_size=size)) for size in (1, 4))
        assert of_four.lanes == 32
        assert of_four.shuffle_buffer_size > 2 * alone.shuffle_buffer_size

    def test_what_is_given_stands(self):
        found = recommend_settings(self.index(), 400_000_000, RunSettings(lanes=8, cycle_length=2))
        assert (found.lanes, found.cycle_length) == (8, 2)

    def test_files_are_not_opened_without_bound(self):
        assert recommend_settings(self.index(), 2_000_000_000, RunSettings()).cycle_length == 8
        assert recommend_settings(self.index(), 2_000_000_000, RunSettings(lanes=64)).cycle_length == 4

    def test_too_little_memory(self):
        with pytest.raises(ValueError, match="use a smaller batch or fewer workers"):
            recommend_settings(self.index(size=1_000_000), 100_000_000, RunSettings())

    def test_few_compressed_shards(self, tmp_path, shardmix):
        with ShardWriter(tmp_path / "{}.gz", num_shards=2, compression_type="gzip") as writer:
            for number in range(64):
                writer.write({"a": number})
        ran = shardmix("mix", tmp_path / "*.gz", "--num-workers", "0", "--recommend", "--lanes", "2", "--memory", "300MB")
        assert "shuffle_buffer_size=64, lanes=2" in ran.out
        assert ran.code == 0


class TestBench:
    def test_stages(self, corpus, shardmix):
        ran = shardmix("bench", corpus, "--num-workers", "1", "--seconds", "0.05", "--batch-size", "64", "--json")
        assert ran.code == 0
        assert [stage["name"] for stage in ran.data["stages"]] == ["read", "verify", "shuffle", "decode", "hand-off", "mix"]
        assert all(stage["records_per_second"] > 0 for stage in ran.data["stages"])
        assert ran.data["limit"]

    def test_chosen_features_and_text(self, corpus, shardmix):
        ran = shardmix("bench", corpus, "--num-workers", "0", "--seconds", "0.05", "--features", "label")
        assert ran.code == 0
        assert ran.out.splitlines()[0].split()[:2] == ["stage", "records/s"]
        assert shardmix("bench", corpus, "--num-workers", "0", "--seconds", "0.05", "--features", "lable").code == 2

    def test_payloads_that_are_no_examples_are_not_decoded(self, tmp_path):
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            writer.write(b"no Example")
        report = bench_shards(str(tmp_path / "0"), RunSettings(num_workers=0), seconds=0.05)
        assert "payloads are not decoded" in report.notes[0]
