"""Lengths held compactly, and places found again: against the plain sums."""

from __future__ import annotations

import numpy as np
import pytest

from shardmix.errors import CorruptShardError
from shardmix.format.corpus import Corpus
from shardmix.format.index_table import STRIDE, IndexTable, make_columns, make_entry, pack_lengths, tag_number


def table_of(*shards, members=(), damage=None):
    corpus = Corpus.of_paths([f"/d/{shard:03d}" for shard in range(len(shards))])
    entries = [make_entry(1, 2, "none", np.array(lengths, np.int64), members, damage) for lengths in shards]
    return IndexTable(make_columns(corpus.names, corpus.ends, entries))


class TestPackLengths:
    @pytest.mark.parametrize(
        ("lengths", "base", "width"),
        [
            ([], 0, 0),
            ([0], 0, 0),
            ([784] * 5, 784, 0),
            ([784, 784 + 255], 784, 1),
            ([784, 784 + 256], 784, 2),
            ([0, 65535], 0, 2),
            ([0, 65536], 0, 4),
            ([10**9, 10**9 + 2**32 - 1], 10**9, 4),
            ([0, 2**32], 0, 8),
            ([0, 2**62], 0, 8),
        ],
    )
    def test_fewest_bytes_a_record(self, lengths, base, width):
        got_base, got_width, deltas = pack_lengths(np.array(lengths, np.int64))
        assert (got_base, got_width, len(deltas)) == (base, width, width * len(lengths))
        assert table_of(lengths).spans(0, 0, len(lengths))[1].tolist() == lengths


class TestSpans:
    @pytest.mark.parametrize("spread", [1, 2, 300, 70_000, 2**33])
    @pytest.mark.parametrize("count", [0, 1, 5, STRIDE, STRIDE + 1, 3 * STRIDE])
    def test_equals_the_plain_sum(self, spread, count):
        rng = np.random.default_rng(count + spread)
        shards = [rng.integers(0, spread, number) for number in (count, 3, count, 0, count + 7)]
        table = table_of(*shards)
        for shard, lengths in enumerate(shards):
            starts = np.concatenate([[0], np.cumsum(lengths + 16)])
            near = {bound + step for bound in (0, STRIDE, 2 * STRIDE, len(lengths)) for step in (-1, 0, 1)}
            for first in sorted(place for place in near if 0 <= place <= len(lengths)):
                for stop in sorted({first, min(first + 1, len(lengths)), len(lengths)}):
                    offset, got = table.spans(shard, first, stop)
                    assert offset == starts[first]
                    assert got.dtype == np.int64
                    assert got.tolist() == lengths[first:stop].tolist()

    def test_looks_at_one_stride_more_than_asked_for_at_most(self):
        table = table_of([1, 2] * 5000)
        assert table.delta_span(0, 9000, 9010) == (9000, 9010)
        assert len(table.columns.checkpoints) == 9


class TestEntry:
    def test_comes_back_from_the_columns(self):
        damage = CorruptShardError("payload cut", path="/old/place", record=3, offset=99)
        lengths = np.arange(2500, dtype=np.int64)
        entry = make_entry(10, 20, "gzip", lengths, ((0, 0), (5, 8)), damage)
        assert entry.damage == ("payload cut", 3, 99)
        corpus = Corpus.of_paths(["/d/a", "/d/b", "/d/c"])
        other = make_entry(1, 2, "none", np.array([7, 7, 9]))
        table = IndexTable(make_columns(corpus.names, corpus.ends, [other, entry, other]))
        assert [table.entry(shard) for shard in range(3)] == [other, entry, other]
        assert table.names() == ["a", "b", "c"]


class TestTagNumber:
    def test_times_stand_for_themselves(self):
        assert tag_number("1700000000123456789") == 1700000000123456789

    def test_etags_are_told_apart_and_are_no_times(self):
        tags = [tag_number(tag) for tag in ("", '"abc"', '"abd"', "²", "9" * 30)]
        assert len(set(tags)) == 5
        assert max(tags) < 0


class TestDigest:
    def test_is_of_names_counts_and_compression(self):
        corpus = Corpus.of_paths(["/d/a", "/d/b"])

        def digest(corpus=corpus, size=1, tag=2, compression="none", lengths=(1, 2)):
            entry = make_entry(size, tag, compression, np.array(lengths))
            return IndexTable(make_columns(corpus.names, corpus.ends, [entry, entry])).digest()

        assert len(digest()) == 32
        assert digest() == digest(size=8, tag=9, lengths=(5, 6), corpus=Corpus.of_paths(["/e/a", "/e/b"]))
        assert digest(compression="gzip") == digest(compression="zlib")
        others = [digest(compression="gzip"), digest(lengths=(1,)), digest(corpus=Corpus.of_paths(["/d/a", "/d/c"]))]
        assert len({digest(), *others}) == 4

    def test_is_pinned(self):
        assert table_of([1, 2, 3], []).digest() == "d3353e8c51cfa74365872f2bef6c407d"
