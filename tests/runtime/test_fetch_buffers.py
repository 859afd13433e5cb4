"""Memory of the read side: buffers come back when nobody looks, blocks shrink as their records leave."""

from __future__ import annotations

import numpy as np
import pytest

from shardmix import CorruptShardError
from shardmix.format.columns import IntArray
from shardmix.format.framing import FRAME_BYTES, HEADER_BYTES
from shardmix.runtime import held
from shardmix.runtime.buffers import BufferPool, round_up
from shardmix.runtime.held import BLOCK, LENGTH, RECORD, START, HeldRecords, Released
from shardmix.runtime.reads import RecordsRead

SIZE = 1 << 20


def test_a_buffer_serves_again_when_nobody_looks_at_it() -> None:
    pool = BufferPool(10 * SIZE)
    buffer = pool.take(SIZE)
    place = buffer.ctypes.data
    del buffer
    assert pool.free_bytes == SIZE
    again = pool.take(SIZE - 100)
    assert again.ctypes.data == place
    assert (len(again), pool.free_bytes) == (SIZE - 100, 0)


@pytest.mark.parametrize("look", [lambda b: b[10:20][2:], lambda b: b.data[5:], lambda b: np.frombuffer(b.data[5:], "int8")[1:]])
def test_a_buffer_that_somebody_looks_at_does_not_come_back(look: object) -> None:
    pool = BufferPool(10 * SIZE)
    buffer = pool.take(SIZE)
    view = look(buffer)  # type: ignore[operator]
    del buffer
    assert pool.free_bytes == 0
    del view
    assert pool.free_bytes == SIZE


def test_a_pool_keeps_no_more_than_its_limit() -> None:
    pool = BufferPool(2 * SIZE)
    buffers = [pool.take(SIZE) for _ in range(5)]
    buffers.clear()
    assert pool.free_bytes == 2 * SIZE
    assert BufferPool(0).take(SIZE).nbytes == SIZE


def test_the_buffer_that_came_back_last_is_kept_however_large_it_is() -> None:
    pool = BufferPool(SIZE)
    small, large = pool.take(SIZE), pool.take(8 * SIZE)
    place = large.ctypes.data
    del small, large
    assert pool.free_bytes == 8 * SIZE
    assert pool.take(8 * SIZE).ctypes.data == place
    no_pool = BufferPool(0)
    no_pool.take(SIZE)
    assert no_pool.free_bytes == 0


def test_a_buffer_that_comes_back_in_the_middle_of_a_search_disturbs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the garbage collector, or another thread, drops the last view just then."""
    pool = BufferPool(2 * SIZE)
    buffers = [pool.take(size) for size in (SIZE // 2, SIZE, 2 * SIZE)]
    late = [buffers.pop()]
    buffers.clear()  # two are free, and the third is too much for the limit
    find = pool._find

    def drop_and_find(num_bytes: int) -> object:
        late.clear()
        return find(num_bytes)

    monkeypatch.setattr(pool, "_find", drop_and_find)
    taken = pool.take(SIZE)
    assert (len(taken), pool.free_bytes) == (SIZE, SIZE // 2)
    del taken  # takes along what came back just then
    assert pool.free_bytes == SIZE


@pytest.mark.parametrize("num_bytes", [65536, 65537, 100_000, 10**6, 2**20, 2**20 + 1, 10**9])
def test_sizes_are_rounded_up_by_an_eighth_at_most(num_bytes: int) -> None:
    assert num_bytes <= round_up(num_bytes) <= num_bytes * 9 // 8


class Lane:
    """Held records whose payloads are eight bytes: their arrival."""

    def __init__(self, payload_bytes: int = 1000, number: int = 0, shared: HeldRecords | None = None) -> None:
        self.number = number
        self.held = shared or HeldRecords(BufferPool(0))
        self.payload_bytes = payload_bytes

    def add(self, arrivals: list[int], damages: dict[int, CorruptShardError] | None = None) -> None:
        """Read some arrivals, in the reverse of their order."""
        count = len(arrivals)
        frame = self.payload_bytes + FRAME_BYTES
        buffer = np.zeros(count * frame, np.uint8)
        start = np.arange(count) * frame + HEADER_BYTES
        backwards = np.array(arrivals[::-1])
        for at, arrival in zip(start, backwards, strict=True):
            buffer[at : at + 8] = np.array([arrival]).view(np.uint8)
        length = np.full(count, self.payload_bytes)
        read = RecordsRead(buffer, start, length, np.zeros(count, np.int64), backwards, damages or {})
        self.held.add(np.full(count, self.number), backwards, read)

    def release(self, *arrivals: int) -> Released:
        released = self.held.release(np.full(len(arrivals), self.number), np.array(arrivals))
        assert [self.content(released, row) for row in range(len(arrivals))] == list(arrivals)
        assert released.table[RECORD].tolist() == list(arrivals)
        return released

    @staticmethod
    def content(released: Released, row: int) -> int:
        block, start, length = (int(released.table[field, row]) for field in (BLOCK, START, LENGTH))
        return int(released.buffers[block][start : start + length][:8].view(np.int64)[0])


def shuffled_departures(count: int) -> IntArray:
    return np.random.default_rng(5).permutation(count)


def test_records_leave_in_the_order_asked_for() -> None:
    lane = Lane()
    lane.add([0, 1, 2, 3])
    lane.add([4, 5, 6])
    lane.release(5, 0, 3)
    lane.add([7, 8])
    lane.release(8, 1, 4, 2)
    lane.release(6, 7)
    assert lane.held.buffer_bytes == 0


def test_after_a_seek_the_held_arrivals_are_few_and_far_between() -> None:
    lane = Lane()
    lane.add([100, 107, 350])
    lane.add([351, 352])
    lane.release(351, 107)
    lane.release(352, 350, 100)
    assert lane.held.buffer_bytes == 0


@pytest.mark.parametrize("payload_bytes", [8, 100, 5000])
def test_what_is_held_takes_at_most_twice_its_bytes(payload_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "READ_SLACK_BYTES", 0)
    lane = Lane(payload_bytes)
    for first in range(0, 512, 64):
        lane.add(list(range(first, first + 64)))
    left = 512
    for departing in np.split(shuffled_departures(512), 32):
        lane.release(*departing.tolist())
        left -= len(departing)
        small = 8 * (1 << 14)  # eight blocks that are too small to bother
        assert lane.held.buffer_bytes <= max(2 * left * (payload_bytes + FRAME_BYTES), small)
    assert lane.held.buffer_bytes == 0


def test_blocks_of_which_only_empty_records_are_held_shrink_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held, "READ_SLACK_BYTES", 0)
    records = HeldRecords(BufferPool(0))
    lane, length = np.zeros(2, np.int64), np.array([SIZE, 0])
    start = HEADER_BYTES + np.array([0, SIZE + FRAME_BYTES])
    for first in (0, 2, 4):
        read = RecordsRead(np.zeros(SIZE + 2 * FRAME_BYTES, np.uint8), start, length, lane, lane, {})
        records.add(lane, np.array([first, first + 1]), read)
    for first in (0, 2, 4):
        records.release(lane[:1], np.array([first]))
    assert records.buffer_bytes == 0
    assert records.release(np.zeros(3, np.int64), np.array([1, 3, 5])).table[LENGTH].tolist() == [0, 0, 0]


def test_a_long_lane_keeps_a_short_table() -> None:
    lane = Lane(8)
    lane.add(list(range(50)))
    for first in range(50, 5000, 50):
        lane.add(list(range(first, first + 50)))
        lane.release(*range(first - 50, first))
    assert lane.held.num_cells <= 400


def test_a_record_that_stays_for_long_stays_right() -> None:
    lane = Lane()
    lane.add(list(range(50)))
    lane.release(*range(1, 50))
    for first in range(50, 3000, 50):
        lane.add(list(range(first, first + 50)))
        lane.release(*range(first, first + 50))
    lane.release(0)


def test_a_little_more_than_what_is_held_is_not_worth_a_copy() -> None:
    lane = Lane(5000)
    lane.add(list(range(64)))
    before = lane.held.buffer_bytes
    lane.release(*range(60))
    assert lane.held.buffer_bytes == before
    lane.release(*range(60, 64))
    assert lane.held.buffer_bytes == 0


def test_lanes_hold_what_is_theirs() -> None:
    first = Lane()
    second = Lane(number=1, shared=first.held)
    first.add([0, 1, 2])
    second.add([0, 1, 70])
    first.release(2, 0)
    first.add([3, 4, 130])
    second.release(70, 0)
    second.held.drop(1)
    with pytest.raises(RuntimeError, match="not held"):
        second.held.release(np.array([1]), np.array([1]))
    first.release(1, 130, 4, 3)
    assert first.held.buffer_bytes == 0


def test_damage_leaves_with_its_record() -> None:
    lane = Lane()
    damage = CorruptShardError("payload CRC mismatch", path="a.tfrecord", record=2)
    lane.add([0, 1, 2, 3], {1: damage})  # the second that was read is arrival 2
    assert lane.release(3, 0).damages == {}
    assert lane.release(1, 2).damages == {1: damage}
