"""Large records are read as they leave the shuffle buffer: one read each, nothing held, few files, the system told ahead."""

from __future__ import annotations

import os
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix import StaleIndexError
from shardmix.format import backend
from shardmix.format.framing import FRAME_BYTES, frame_record
from shardmix.order.plan import Plan
from shardmix.order.split import Split
from shardmix.runtime import places, reads
from shardmix.runtime.files import FILES_OF_LATE_TRACK, SharedFiles
from shardmix.runtime.needs import RunSettings, estimate_needs
from shardmix.runtime.places import RecordPlaces
from shardmix.runtime.reads import Share, reads_late
from tests.runtime.fetching import Corpus, Reads, addresses, batch, payloads, read_always, read_epoch


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Corpus]:
    read_always(monkeypatch, "late")
    return lambda counts, **settings: Corpus(tmp_path, counts, **settings)


# --- When


@pytest.mark.parametrize(("padding", "is_late"), [(reads.LATE_BYTES - 100, False), (reads.LATE_BYTES, True)])
def test_the_size_of_the_records_decides(tmp_path: Path, padding: int, is_late: bool) -> None:
    corpus = Corpus(tmp_path, [12], padding=padding)
    assert reads_late(corpus.index, corpus.plan(shuffle_buffer_size=4)) is is_late
    assert not reads_late(corpus.index, corpus.plan(shuffle=False))
    assert not reads_late(corpus.index, corpus.plan(shuffle_buffer_size=0))


def test_compressed_records_are_read_as_they_arrive(make: Callable[..., Corpus]) -> None:
    corpus = make([12, 12], padding=reads.LATE_BYTES, compressed=(1,))
    assert not reads_late(corpus.index, corpus.plan(shuffle_buffer_size=4))


def test_records_behind_a_url_are_read_as_they_arrive() -> None:
    pytest.importorskip("fsspec")
    from fsspec.implementations.memory import MemoryFileSystem

    from shardmix.format.index import build_index

    with MemoryFileSystem().open("/late/a.tfrecord", "wb") as file:
        file.write(frame_record(bytes(2 * reads.LATE_BYTES)))
    index = build_index("memory://late/a.tfrecord", index="memory")
    assert not reads_late(index, Plan(index.counts, lanes=1, shuffle_buffer_size=4))


def test_what_a_run_needs_counts_no_shuffle_buffer(tmp_path: Path) -> None:
    corpus = Corpus(tmp_path, [20, 0, 20, 20], padding=reads.LATE_BYTES)
    needs = estimate_needs(corpus.index, RunSettings(batch_size=4, num_workers=2, shuffle_buffer_size=32, lanes=4))
    assert needs is not None
    assert needs.buffer_bytes == 0
    assert needs.open_files == 2 * 3  # each worker: the shards that are not empty
    needs = estimate_needs(corpus.index, RunSettings(4, 2, shuffle_buffer_size=32, lanes=2, cycle_length=1))
    assert needs is not None
    assert needs.open_files == 2 * 2  # two for each track


# --- What it takes


def test_an_epoch_is_one_read_a_record_and_holds_nothing(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([300, 200, 500])
    plan = corpus.plan(shuffle_buffer_size=400)
    log = Reads(monkeypatch)
    reader = corpus.reader(plan)
    for first in range(0, 1000, 40):
        fetched = reader.fetch(0, batch(plan, first, first + 40))
        assert len(fetched.block.buffers) == 1
        assert reader.buffer_bytes == 0
        assert log.num_reads == first + 40
    assert log.num_bytes == sum(corpus.path(shard).stat().st_size for shard in range(3))


def test_after_a_seek_only_the_rows_asked_for_are_read(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([4000])
    plan = corpus.plan(lanes=1, shuffle_buffer_size=256)
    reader = corpus.reader(plan)
    log = Reads(monkeypatch)
    reader.fetch(0, batch(plan, 3000, 3008))
    assert log.num_reads == 8


def test_open_files_are_two_a_track_at_most(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([3] * 60)
    log = Reads(monkeypatch)
    plan = corpus.plan(lanes=2, cycle_length=3, shuffle_buffer_size=64)
    assert read_epoch(corpus, plan) == read_epoch(corpus, plan, step=180)
    assert log.most_open == 2 * 6
    assert log.num_open == 0


def test_files_that_are_still_needed_stay_open(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([100] * 5)
    log = Reads(monkeypatch)
    read_epoch(corpus, corpus.plan(lanes=2, cycle_length=3, shuffle_buffer_size=64))
    assert max(log.opened.values()) == 1


def test_the_file_not_needed_for_longest_makes_room(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([1] * 5)
    log = Reads(monkeypatch)
    files = SharedFiles(corpus.index, FILES_OF_LATE_TRACK)
    files.make_room(1)
    for shard in (0, 1, 0, 2, 0, 1):
        files.open(0, shard)
    assert [log.opened[str(corpus.path(shard))] for shard in range(3)] == [1, 2, 1]
    runs = np.array([0, 0, 1, 2, 2])
    assert len(files.open_many(runs, runs)) == 3
    assert len(files.open_many(runs[3:], runs[3:])) == 2
    assert files.num_open == 2
    files.close()
    assert (files.num_open, log.num_open) == (0, 0)


# --- What the system is told


@pytest.fixture
def advised(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """(offset, bytes) of each piece of advice, and (-1, records) of each read."""
    log: list[tuple[int, int]] = []
    read_runs = backend.read_runs

    def note_read(asked: Any, *arguments: Any, **settings: Any) -> Any:
        log.append((-1, len(asked.offset)))
        return read_runs(asked, *arguments, **settings)

    monkeypatch.setattr(reads, "MAX_GAP_BYTES", 0)
    monkeypatch.setattr(reads, "advise", lambda descriptor, offset, num_bytes: log.append((offset, num_bytes)))
    monkeypatch.setattr(backend, "read_runs", note_read)
    return log


def bytes_told(advised: list[tuple[int, int]]) -> set[int]:
    """The numbers of the bytes that the advice is about."""
    return {byte for offset, size in advised if offset >= 0 for byte in range(offset, offset + size)}


def test_of_every_record_the_system_is_told_in_runs(make: Callable[..., Corpus], advised: list[tuple[int, int]]) -> None:
    corpus = make([1000])
    plan = corpus.plan(lanes=1, shuffle_buffer_size=128)
    reader = corpus.reader(plan)
    reader.fetch(0, batch(plan, 0, 8))
    first = advised.index((-1, 8))
    assert first <= 8  # the first rows are told of one by one, and read before anything else is told
    for start in range(8, 1000, 8):
        reader.fetch(0, batch(plan, start, start + 8))
    told = sorted(item for item in advised[first:] if item[0] >= 0)
    assert told[0][0] == 0
    assert all(offset + size == after for (offset, size), (after, _) in pairwise(told))
    assert sum(told[-1]) == corpus.path(0).stat().st_size
    assert len(told) < 1000 / 3


def test_hardly_a_record_is_read_before_it_was_told_of(make: Callable[..., Corpus], advised: list[tuple[int, int]]) -> None:
    corpus = make([1000])
    plan = corpus.plan(lanes=1, shuffle_buffer_size=128)
    reader = corpus.reader(plan)
    told: set[int] = set()
    untold = 0
    for start in range(0, 1000, 8):
        fetched = reader.fetch(0, batch(plan, start, start + 8))
        begins = {corpus.index.offset(*address) for address in addresses(fetched)}
        untold += len(begins - told)
        told |= bytes_told(advised)
        advised.clear()
    assert 8 <= untold <= 20  # the first rows, and those that leave as soon as they have arrived


def test_after_a_seek_the_system_is_told_of_what_the_buffer_holds(
    make: Callable[..., Corpus], advised: list[tuple[int, int]]
) -> None:
    corpus = make([1000])
    plan = corpus.plan(lanes=1, shuffle_buffer_size=128)
    whole = read_epoch(corpus, plan)
    advised.clear()
    corpus.reader(plan).fetch(0, batch(plan, 500, 508))
    told = bytes_told(advised)
    assert len({corpus.index.offset(*address) for address in whole[500:530]} & told) >= 27
    frame = FRAME_BYTES + len(corpus.payload(0, 100))
    assert len(told) <= frame * 1.1 * (128 + 16 + 16)


def test_a_file_system_that_takes_no_advice_is_read(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any) -> None:
        raise OSError(22, "no advice")

    if hasattr(os, "posix_fadvise"):
        monkeypatch.setattr(os, "posix_fadvise", refuse)
    corpus = make([40, 30])
    assert len(read_epoch(corpus, corpus.plan())) == 70
    monkeypatch.delattr(os, "posix_fadvise", raising=False)
    assert len(read_epoch(corpus, corpus.plan())) == 70


# --- Damage


def test_a_shard_that_changes_between_two_openings_is_refused(make: Callable[..., Corpus]) -> None:
    corpus = make([3] * 60)
    plan = corpus.plan(lanes=2, cycle_length=1, shuffle_buffer_size=64)
    reader = corpus.reader(plan)
    reader.fetch(0, batch(plan, 0, 10))
    for shard in range(60):
        corpus.path(shard).write_bytes(corpus.path(shard).read_bytes() + frame_record(b"one more"))
    with pytest.raises(StaleIndexError, match=r"\d\.tfrecord"):
        reader.fetch(0, batch(plan, 10, 180))
    assert reader.num_open == 0


def test_a_file_cut_behind_the_first_damage_is_refused(make: Callable[..., Corpus]) -> None:
    """It was not found damaged, but another file than the one that was indexed."""
    corpus = make([40], padding=100)
    plan = corpus.plan()
    data = corpus.path(0).read_bytes()
    corpus.damage(0, 3)
    reader = corpus.reader(plan)
    reader.fetch(0, batch(plan, 0, 4))
    with corpus.path(0).open("r+b") as file:
        file.truncate(len(data) // 2)
    with pytest.raises(StaleIndexError, match="record .* at byte .*the file ends before this record does"):
        reader.fetch(0, batch(plan, 4, 40))


# --- Where records lie


@pytest.mark.parametrize("max_blocks", [1, 3, 512])
def test_places_are_those_of_the_index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_blocks: int) -> None:
    monkeypatch.setattr(places, "BLOCK_RECORDS", 8)
    monkeypatch.setattr(places, "MAX_BLOCKS", max_blocks)
    corpus = Corpus(tmp_path, [30, 0, 8, 1])
    found = RecordPlaces(corpus.index)
    rng = np.random.default_rng(0)
    for _ in range(20):
        shard = rng.choice([0, 0, 2, 3], 5)
        record = rng.integers(0, np.array(corpus.counts)[shard])
        offset, length = found.find(shard, record)
        assert offset.tolist() == [corpus.index.offset(*place) for place in zip(shard.tolist(), record.tolist(), strict=True)]
        assert length.tolist() == [len(corpus.payload(*place)) for place in zip(shard.tolist(), record.tolist(), strict=True)]


@pytest.mark.parametrize("fractions", [{"a": 0.5, "b": 0.5}, {"a": 0.02, "b": 0.9, "c": 0.08}])
def test_sets_of_sets_are_read(make: Callable[..., Corpus], fractions: dict[str, float]) -> None:
    corpus = make([400, 0, 300], padding=20)
    outer, inner = Split(fractions), Split({"x": 0.3, "y": 0.7}, seed=1)
    seen = []
    for name in fractions:
        counts = outer.counts(np.array(corpus.counts))[name]
        for part in ("x", "y"):
            plan = Plan(inner.counts(counts)[part], lanes=2, cycle_length=2, shuffle_buffer_size=16)
            reader = corpus.reader(plan, shares=(Share(outer, name), Share(inner, part)))
            for first in range(0, plan.num_records, 10):
                fetched = reader.fetch(0, batch(plan, first, min(first + 10, plan.num_records)))
                assert payloads(fetched) == [corpus.payload(*address) for address in addresses(fetched)]
                seen += addresses(fetched)
    assert sorted(seen) == [(shard, record) for shard in (0, 2) for record in range(corpus.counts[shard])]
