"""Planned rows become records in memory: the right ones, wherever the cursors stand, with few reads, few files, little memory."""

from __future__ import annotations

import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix import CorruptShardError, StaleIndexError
from shardmix.format import backend
from shardmix.format.framing import FRAME_BYTES, frame_record
from shardmix.format.runs import Runs
from shardmix.order.plan import Plan
from shardmix.order.schedule import BatchRows, Schedule
from shardmix.order.split import Split
from shardmix.runtime import held
from shardmix.runtime.reads import Share
from tests.runtime.fetching import Corpus, Reads, addresses, batch, payloads, read_always, read_epoch


@pytest.fixture(params=["early", "late"])
def how(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Records are read as they arrive in the shuffle buffer, or as they leave it: what comes out is the same."""
    read_always(monkeypatch, request.param)
    return str(request.param)


@pytest.fixture
def make_early(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Corpus]:
    read_always(monkeypatch, "early")
    return lambda counts, **settings: Corpus(tmp_path, counts, **settings)


@pytest.fixture
def make(tmp_path: Path, how: str) -> Callable[..., Corpus]:
    return lambda counts, **settings: Corpus(tmp_path, counts, **settings)


@pytest.mark.parametrize("step", [1, 7, 16, 1000])
@pytest.mark.parametrize("compressed", [(), (0, 2), (0, 1, 2, 3)])
def test_rows_are_those_of_the_model(
    make: Callable[..., Corpus], order_model: Any, step: int, compressed: tuple[int, ...]
) -> None:
    corpus = make([40, 3, 101, 7], compressed=compressed)
    plan = corpus.plan()
    cycle = plan.effective_cycle_length
    expected = order_model.epoch_rows([40, 3, 101, 7], 4, cycle, buffer=32, epoch=3, whole=compressed)
    assert read_epoch(corpus, plan, epoch=3, step=step) == expected


@pytest.mark.parametrize("settings", [{"shuffle": False}, {"shuffle_buffer_size": 0}, {"block_length": 3}, {"lanes": 16}])
def test_every_setting_of_the_order_is_followed(make: Callable[..., Corpus], order_model: Any, settings: dict[str, Any]) -> None:
    corpus = make([40, 0, 50])
    given = {"lanes": 4, "shuffle_buffer_size": 32, **settings}
    given["buffer"] = given.pop("shuffle_buffer_size")
    assert read_epoch(corpus, corpus.plan(**settings)) == order_model.epoch_rows([40, 0, 50], **given)


@pytest.mark.parametrize("compressed", [(), (1,)])
def test_a_seek_to_every_row_gives_the_tail(make: Callable[..., Corpus], compressed: tuple[int, ...]) -> None:
    corpus = make([30, 41], compressed=compressed)
    plan = corpus.plan(shuffle_buffer_size=24)
    whole = read_epoch(corpus, plan)
    for first in range(plan.num_records):
        reader = corpus.reader(plan)
        middle = min(first + 5, plan.num_records)
        parts = [reader.fetch(0, batch(plan, first, middle))]
        if middle < plan.num_records:
            parts.append(reader.fetch(0, batch(plan, middle, plan.num_records)))
        assert [address for part in parts for address in addresses(part)] == whole[first:]
        assert all(payloads(part) == [corpus.payload(*address) for address in addresses(part)] for part in parts)


def test_rows_may_be_asked_for_in_any_order_of_lanes_and_epochs(make: Callable[..., Corpus]) -> None:
    corpus = make([30, 41])
    plan = corpus.plan()
    epochs = [read_epoch(corpus, plan, epoch=epoch) for epoch in range(2)]
    reader = corpus.reader(plan)
    for epoch, row in [(0, 12), (0, 13), (1, 13), (0, 14), (0, 2), (0, 70), (1, 0)]:
        assert addresses(reader.fetch(epoch, batch(plan, row, row + 1))) == [epochs[epoch][row]]


def test_a_pad_is_read_by_itself_and_moves_no_cursor(make: Callable[..., Corpus]) -> None:
    corpus = make([30, 41])
    plan = corpus.plan()
    whole = read_epoch(corpus, plan)
    reader = corpus.reader(plan)
    rows = batch(plan, 0, 4)
    padded = BatchRows(
        np.append(rows.row, 2), np.append(rows.lane, 2), np.append(rows.position, 0), np.arange(5) == 4, np.array([0, 5])
    )
    assert addresses(reader.fetch(0, padded)) == [*whole[:4], whole[2]]
    assert addresses(reader.fetch(0, batch(plan, 4, 8))) == whole[4:8]


def test_rows_beyond_a_lane_are_refused_and_the_reader_goes_on(make: Callable[..., Corpus]) -> None:
    corpus = make([30, 41])
    plan = corpus.plan()
    reader = corpus.reader(plan)
    with pytest.raises(ValueError, match="4 rows asked for at position 16 of a lane of 18"):
        reader.fetch(0, batch(plan, 64, 80))
    assert reader.num_open == 0
    assert addresses(reader.fetch(0, batch(plan, 0, 71))) == read_epoch(corpus, plan)


def test_a_track_has_one_file_open_and_none_is_left(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_early([20] * 30)
    log = Reads(monkeypatch)
    plan = corpus.plan(lanes=2, cycle_length=3)
    read_epoch(corpus, plan)
    assert log.most_open == 6
    assert log.num_open == 0


def test_tracks_share_the_files_that_they_read(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    """Parts of a shard are in several tracks; where there are fewer shards than tracks, each is opened once."""
    corpus = make_early([100] * 5)
    log = Reads(monkeypatch)
    read_epoch(corpus, corpus.plan(lanes=2, cycle_length=3, shuffle_buffer_size=64))
    assert sorted(log.opened.values()) == [1] * 5
    assert log.num_open == 0


def test_an_epoch_reads_every_byte_once(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_early([300, 200, 500])
    log = Reads(monkeypatch)
    read_epoch(corpus, corpus.plan(shuffle_buffer_size=400), step=64)
    assert log.num_bytes == sum(corpus.path(shard).stat().st_size for shard in range(3))


def test_reads_are_few_for_a_thousand_records(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    """A block is one read a track, and one more where a track passes into another part: N/8 = 128 records, 4 tracks a lane."""
    corpus = make_early([2000, 2000])
    log = Reads(monkeypatch)
    read_epoch(corpus, corpus.plan(lanes=2, shuffle_buffer_size=2048), step=32)
    assert log.num_reads <= 4000 / 128 * 4 + 2 * 8 * (8 + 1)


def test_a_seek_reads_what_the_buffer_holds_there(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make_early([4000])
    plan = corpus.plan(lanes=1, shuffle_buffer_size=256)
    reader = corpus.reader(plan)
    log = Reads(monkeypatch)
    reader.fetch(0, batch(plan, 3000, 3008))
    frame = FRAME_BYTES + len(corpus.payload(0, 1000))
    assert log.num_bytes <= frame * 1.1 * (256 + 32 + 8)


def test_held_memory_stays_near_what_is_held(make_early: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    """0.93 N are held on average; blocks at most half unwanted, and one block read ahead: within 2.2 N."""
    monkeypatch.setattr(held, "READ_SLACK_BYTES", 0)
    corpus = make_early([1000, 2000, 1000], padding=1000)
    plan = corpus.plan(lanes=1, shuffle_buffer_size=512)
    reader = corpus.reader(plan)
    for first in range(0, 3500, 50):
        reader.fetch(0, batch(plan, first, first + 50))
        assert reader.buffer_bytes <= 2.2 * 512 * 1030


def test_a_file_that_cannot_be_read_is_named_with_the_place(make: Callable[..., Corpus], monkeypatch: pytest.MonkeyPatch) -> None:
    corpus = make([400], padding=100)
    plan = corpus.plan(lanes=1, cycle_length=1, shuffle=False)
    read_runs = backend.read_runs

    def fail_once(asked: Runs, *arguments: Any, **settings: Any) -> Any:
        return read_runs(asked._replace(descriptor=asked.descriptor + 1000), *arguments, **settings)

    reader = corpus.reader(plan)
    reader.fetch(0, batch(plan, 0, 10))
    place = corpus.index.offset(0, 10)
    with monkeypatch.context() as patch, pytest.raises(OSError, match=rf"\(reading at byte {place}\)") as caught:
        patch.setattr(backend, "read_runs", fail_once)
        reader.fetch(0, batch(plan, 10, 20))
    assert (caught.value.errno, caught.value.filename) == (errno.EBADF, str(corpus.path(0)))
    assert reader.num_open == 0
    assert addresses(reader.fetch(0, batch(plan, 10, 12))) == [(0, 10), (0, 11)]


def test_a_file_that_vanished_is_named(make: Callable[..., Corpus]) -> None:
    corpus = make([40, 30])
    plan = corpus.plan()
    corpus.path(1).unlink()
    with pytest.raises(FileNotFoundError, match=r"001\.tfrecord"):
        corpus.reader(plan).fetch(0, batch(plan, 0, 70))


def test_tracks_that_pass_into_other_shards_in_the_middle_of_a_read(make: Callable[..., Corpus]) -> None:
    corpus = make([1, 2, 1, 3, 0, 1, 2] * 5)
    plan = corpus.plan(lanes=2, cycle_length=2, shuffle_buffer_size=16)
    everything = [(shard, record) for shard, count in enumerate(corpus.counts) for record in range(count)]
    assert sorted(read_epoch(corpus, plan, step=50)) == everything


def test_payload_damage_is_a_hole_and_moves_no_other_row(make: Callable[..., Corpus]) -> None:
    corpus = make([40, 30])
    plan = corpus.plan()
    whole = read_epoch(corpus, plan)
    corpus.damage(1, 7)
    for step in (1, 16, 70):
        reader = corpus.reader(plan)
        damages: list[CorruptShardError] = []
        for first in range(0, 70, step):
            fetched = reader.fetch(0, batch(plan, first, min(first + step, 70)))
            assert addresses(fetched) == whole[first : first + step]
            assert [addresses(fetched)[row] for row in fetched.damages] == [(1, 7)] * len(fetched.damages)
            damages += fetched.damages.values()
        (damage,) = damages
        assert (damage.path, damage.record, damage.offset) == (str(corpus.path(1)), 7, corpus.index.offset(1, 7))
        assert "payload CRC mismatch" in str(damage)


def test_verify_length_looks_at_no_payload(make: Callable[..., Corpus]) -> None:
    corpus = make([40, 30])
    corpus.damage(1, 7)
    plan = corpus.plan()
    assert not corpus.reader(plan, verify="length").fetch(0, batch(plan, 0, 70)).damages


def test_a_damaged_stream_loses_the_records_behind_the_damage(make: Callable[..., Corpus]) -> None:
    corpus = make([2000], padding=100, compressed=(0,))
    data = corpus.path(0).read_bytes()
    place = len(data) * 3 // 4
    corpus.overwrite(corpus.path(0), data[:place] + b"\xff" * 64 + data[place + 64 :])
    plan = corpus.plan(lanes=1, cycle_length=1, shuffle=False)
    fetched = corpus.reader(plan).fetch(0, batch(plan, 0, 2000))
    lost = sorted(fetched.damages)
    assert lost
    assert lost == list(range(lost[0], 2000))
    sound = [bytes(fetched.block.payload(row)) for row in range(lost[0])]
    assert sound == [corpus.payload(0, record) for record in range(lost[0])]
    assert [fetched.damages[row].record for row in lost] == lost
    assert fetched.damages[lost[-1]].path == str(corpus.path(0))


def test_a_shard_that_was_changed_is_refused(make: Callable[..., Corpus]) -> None:
    corpus = make([40, 30])
    plan = corpus.plan()
    corpus.path(1).write_bytes(corpus.path(1).read_bytes() + frame_record(b"one more"))
    with pytest.raises(StaleIndexError, match=r"001\.tfrecord"):
        corpus.reader(plan).fetch(0, batch(plan, 0, 70))


def test_a_shard_replaced_behind_the_index_is_refused(make: Callable[..., Corpus]) -> None:
    """Same size, same time, other records: found by the lengths."""
    corpus = make([12], padding=20)
    payload = corpus.payload(0, 0)
    data = corpus.path(0).read_bytes()
    frames = frame_record(payload + b"x" * 5) + frame_record(payload[:-5])
    corpus.overwrite(corpus.path(0), frames + data[len(frames) :])
    plan = corpus.plan()
    with pytest.raises(StaleIndexError, match="record 0 at byte 0: payload of 28 bytes where the index says 23"):
        corpus.reader(plan).fetch(0, batch(plan, 0, 12))


def test_a_shard_cut_while_it_is_open_is_refused(make: Callable[..., Corpus]) -> None:
    corpus = make([400], padding=100)
    plan = corpus.plan(lanes=1, cycle_length=1, shuffle=False)
    reader = corpus.reader(plan)
    assert addresses(reader.fetch(0, batch(plan, 0, 10)))[-1] == (0, 9)
    with corpus.path(0).open("r+b") as file:
        file.truncate(corpus.index.offset(0, 100) + 5)
    with pytest.raises(StaleIndexError, match="record 100 at byte .*the file ends before this record does"):
        reader.fetch(0, batch(plan, 10, 200))
    assert reader.num_open == 0


@pytest.mark.parametrize("name", ["train", "valid"])
def test_a_set_reads_its_own_records(
    make: Callable[..., Corpus], how: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = make([400, 0, 300], padding=20)
    split = Split({"train": 0.9, "valid": 0.1})
    counts = split.counts(np.array(corpus.counts))[name]
    plan = Plan(counts, lanes=1, cycle_length=1, shuffle_buffer_size=64)
    log = Reads(monkeypatch)
    fetched = corpus.reader(plan, shares=(Share(split, name),)).fetch(0, batch(plan, 0, plan.num_records))
    assert len(set(addresses(fetched))) == int(counts.sum())
    assert payloads(fetched) == [corpus.payload(*address) for address in addresses(fetched)]
    parts = 16  # what lies between the records of a set is read with them
    assert log.num_reads <= parts if how == "early" else log.num_reads == plan.num_records


def test_what_is_looked_at_is_not_overwritten(make: Callable[..., Corpus]) -> None:
    corpus = make([3000], padding=2000)
    plan = corpus.plan(lanes=1, shuffle_buffer_size=64)
    reader = corpus.reader(plan)
    fetched = reader.fetch(0, batch(plan, 0, 100))
    kept, expected = [fetched.block.payload(row) for row in range(100)], payloads(fetched)
    del fetched
    for first in range(100, 3000, 100):
        reader.fetch(0, batch(plan, first, first + 100))
    assert [bytes(view) for view in kept] == expected


def test_batches_of_the_schedule_are_read_with_their_pads(make: Callable[..., Corpus]) -> None:
    corpus = make([5])
    plan = corpus.plan()
    whole = read_epoch(corpus, plan)
    schedule = Schedule(5, 4, batch_size=3, world_size=2)
    for rank in range(2):
        reader = corpus.reader(plan)
        rows = schedule.batch_rows(rank, 0, 0, schedule.num_batches(rank))
        assert addresses(reader.fetch(0, rows)) == [whole[row] for row in rows.row]
