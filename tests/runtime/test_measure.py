"""measure_mixing: what it counts, and what it compares with."""

from __future__ import annotations

import json

import numpy as np
import pytest

from shardmix import FixedLenFeature, MixLoader, ShardDataset, ShardWriter, VarLenFeature, measure_mixing
from shardmix.runtime.mixing import (
    Distinct,
    PlainLoader,
    Rows,
    count_distinct,
    draw,
    measure_rows,
    plain_order,
    shuffle_perfectly,
    tenths_apart,
)

FEATURES = {"id": FixedLenFeature((), "int64"), "label": FixedLenFeature((), "int64"), "name": FixedLenFeature((), "bytes")}


@pytest.fixture(scope="module")
def sorted_corpus(tmp_path_factory):
    """1200 records of 12 labels, sorted by label, in 6 files of 200."""
    folder = tmp_path_factory.mktemp("sorted")
    with ShardWriter(folder / "{}.tfrecord", max_shard_records=200) as writer:
        for record in range(1200):
            label = record // 100
            writer.write({"id": record, "label": label, "name": f"label {label}", "many": [1, 2]})
    return str(folder / "*.tfrecord")


def make_loader(pattern, batch_size=48, num_workers=0, drop_last=False, **options):
    options = {"features": FEATURES, "with_source": True, "shuffle_buffer_size": 64, **options}
    return MixLoader(ShardDataset(pattern, **options), batch_size, num_workers=num_workers, drop_last=drop_last)


def in_order(places, counts, size):
    """The rows at some places, in batches of one size."""
    places = np.array(places)
    shard = np.searchsorted(np.cumsum(counts), places, side="right")
    return Rows(places, shard, np.append(np.arange(0, len(places), size), len(places)))


class TestNumbers:
    def test_of_an_order_that_is_that_of_the_disk(self):
        counts = np.array([10, 0, 10])
        mixing = measure_rows(in_order(range(20), counts, 5), counts, 5)
        assert (mixing.files, mixing.distance, mixing.disk_neighbours) == (Distinct(1.0, 1), 1 / 20, 1.0)
        assert (mixing.displacement, mixing.tenths_apart, mixing.lanes) == (0.0, 1.0, None)

    def test_of_two_files_in_turn(self):
        counts = np.array([10, 10])
        places = np.stack([np.arange(10), np.arange(10, 20)], axis=1).reshape(-1)
        mixing = measure_rows(in_order(places, counts, 4), counts, 4)
        assert (mixing.files, mixing.disk_neighbours, mixing.tenths_apart) == (Distinct(2.0, 2), 0.0, 0.0)
        assert mixing.distance == pytest.approx((10 * 10 + 9 * 9) / 19 / 20)

    def test_a_short_last_batch_counts_only_where_all_are_short(self):
        numbers, bounds = np.array([1, 2, 3, 3]), np.array([0, 3, 4])
        assert count_distinct(numbers, bounds, 3) == (3.0, 3)
        assert count_distinct(numbers, bounds, 5) == (2.0, 1)

    def test_tenths(self):
        assert tenths_apart(np.array([0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 9, 9, 9, 9, 9, 9, 9, 0, 9])) == 0.5

    def test_a_perfect_shuffle_has_the_numbers_of_the_formulas(self):
        counts = np.full(20, 500)
        rows = in_order(range(10_000), counts, 100)
        mixing = measure_rows(shuffle_perfectly(rows, counts, seed=0), counts, 100)
        assert mixing.distance == pytest.approx(1 / 3, abs=0.01)
        assert mixing.displacement == pytest.approx(1 / 3, abs=0.01)
        assert mixing.files.mean == pytest.approx(20 * (1 - (19 / 20) ** 100), abs=0.1)
        assert mixing.disk_neighbours == pytest.approx(2 / 10_000, abs=5e-4)


class TestPlainLoader:
    COUNTS = np.array([4, 3, 5, 0])

    def test_each_batch_is_of_one_worker_in_turn(self):
        plain = PlainLoader(batch_size=2, num_workers=2, buffer=0, seed=0, shuffle=False)
        rows = plain_order(plain, self.COUNTS)
        assert rows.place.tolist() == [0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 10, 11]
        assert np.diff(rows.bounds).tolist() == [2, 2, 2, 1, 2, 2, 1][: len(rows.bounds) - 1] or len(rows) == 12
        assert sorted(rows.place.tolist()) == list(range(12))

    @pytest.mark.parametrize("num_workers", [1, 2, 3, 7])
    @pytest.mark.parametrize("buffer", [0, 3])
    def test_every_record_once(self, num_workers, buffer):
        rows = plain_order(PlainLoader(5, num_workers, buffer, seed=1), self.COUNTS)
        assert sorted(rows.place.tolist()) == list(range(12))
        for first, stop in zip(rows.bounds[:-1], rows.bounds[1:], strict=True):
            assert len(set(rows.worker[first:stop].tolist())) == 1

    def test_ranks_share_the_files(self):
        places = [plain_order(PlainLoader(5, 1, 0, seed=1, rank=rank, world_size=2), self.COUNTS).place for rank in (0, 1)]
        assert sorted(np.concatenate(places).tolist()) == list(range(12))

    def test_drop_last_drops_one_of_each_worker(self):
        rows = plain_order(PlainLoader(2, 2, 0, seed=0, shuffle=False, drop_last=True), np.array([3, 3]))
        assert rows.place.tolist() == [0, 1, 3, 4]


class TestPicture:
    def test_columns_are_batches_and_lines_are_files(self):
        counts = np.array([2, 2])
        picture = draw(in_order([0, 2, 1, 3, 3, 2], counts, 2), 2)
        assert picture.shares.tolist() == [[0.5, 0.5, 0.0], [0.5, 0.5, 1.0]]
        assert (picture.batches.tolist(), picture.first_file.tolist()) == ([0, 1, 2], [0, 1])

    def test_many_are_thinned_out_not_averaged(self):
        counts = np.ones(1000, int)
        picture = draw(in_order(range(1000), counts, 1), 1000)
        assert picture.shares.shape == (160, 240)
        assert set(picture.shares.sum(axis=0).tolist()) == {1.0}
        assert picture.batches[[0, -1]].tolist() == [0, 999]


class TestReport:
    @pytest.mark.parametrize("num_workers", [0, 2])
    def test_what_is_delivered_is_what_is_counted(self, sorted_corpus, num_workers):
        report = measure_mixing(make_loader(sorted_corpus, num_workers=num_workers), key="label")
        batches = [batch["source"] for batch in make_loader(sorted_corpus, num_workers=num_workers)]
        files = [len(set(source.shard.tolist())) for source in batches]
        assert report.loader.files == (np.mean(files), min(files))
        assert report.loader.lanes == (16.0, 16)
        assert report.loader.workers == (max(1, num_workers), max(1, num_workers))
        assert (report.num_rows, report.num_batches, report.num_files) == (1200, 25, 6)

    def test_a_sorted_corpus_clumps_in_a_plain_loader_and_not_here(self, sorted_corpus):
        report = measure_mixing(make_loader(sorted_corpus), key="label")
        assert report.plain.labels.mean < 0.5 * report.loader.labels.mean
        assert report.loader.labels.mean > 0.8 * report.perfect.labels.mean
        assert report.plain.disk_neighbours > 5 * report.loader.disk_neighbours
        assert report.key_order.is_sorted
        assert report.key_order.labels == 12
        text = str(report)
        assert "the corpus looks sorted by it" in text
        assert "25 batches of 48, 1,200 rows, 6 files" in text

    def test_text_as_key_and_a_key_that_sorts_nothing(self, sorted_corpus):
        by_name = measure_mixing(make_loader(sorted_corpus), key="name").key_order
        assert (by_name.is_sorted, by_name.correlation) == (True, 0.0)
        unsorted = measure_mixing(make_loader(sorted_corpus, transform=scramble), key="label").key_order
        assert not unsorted.is_sorted
        by_id = measure_mixing(make_loader(sorted_corpus), key="id").key_order  # all different, and ascending
        assert (by_id.is_sorted, by_id.same_neighbours) == (True, 0.0)

    def test_plain_numbers(self, sorted_corpus):
        data = json.loads(json.dumps(measure_mixing(make_loader(sorted_corpus), key="label").as_dict()))
        assert data["loader"]["lanes"] == {"mean": 16.0, "least": 16}
        assert data["plain"]["lanes"] is None

    def test_a_part_of_an_epoch_knows_no_other_labels(self, sorted_corpus):
        report = measure_mixing(make_loader(sorted_corpus), key="label", max_batches=4)
        assert (report.num_batches, report.num_rows) == (4, 192)
        assert report.loader.labels is not None
        assert (report.perfect.labels, report.plain.labels) == (None, None)
        assert "192 rows (of 1,200 in the corpus)" in str(report)

    def test_pads_and_fills_are_left_out(self, sorted_corpus):
        report = measure_mixing(make_loader(sorted_corpus, batch_size=7, rank=1, world_size=16, lanes=16))
        assert report.num_rows == 75
        assert report.loader.workers == (1.0, 1)

    def test_one_file_of_one_record(self, tmp_path):
        with ShardWriter(tmp_path / "{}", num_shards=1) as writer:
            writer.write({"id": 1, "label": 1, "name": "a"})
        report = measure_mixing(make_loader(str(tmp_path / "0")), key="label")
        assert (report.loader.files, report.loader.distance, report.key_order.is_sorted) == ((1.0, 1), 0.0, False)


class TestWrongCalls:
    def test_without_source(self, sorted_corpus):
        with pytest.raises(ValueError, match="with_source=True"):
            measure_mixing(make_loader(sorted_corpus, with_source=False))
        with pytest.raises(ValueError, match="with_source=True"):
            measure_mixing(MixLoader([1, 2, 3], 1))

    def test_a_key_that_is_none(self, sorted_corpus):
        with pytest.raises(ValueError, match="key='lable' is not in the batches; they hold 'id', 'label', 'name'"):
            measure_mixing(make_loader(sorted_corpus), key="lable")
        with pytest.raises(ValueError, match="not one number or text a record"):
            measure_mixing(make_loader(sorted_corpus, features={"many": VarLenFeature("int64")}), key="many")

    def test_no_rows(self, sorted_corpus):
        with pytest.raises(ValueError, match="no rows"):
            measure_mixing(make_loader(sorted_corpus, batch_size=5000, drop_last=True))


def scramble(sample):
    """Labels that have nothing to do with the place."""
    return {**sample, "label": np.int64(hash_of(int(sample["id"])) % 12)}


def hash_of(number):
    return (number * 0x9E3779B97F4A7C15 & (2**64 - 1)) >> 40
