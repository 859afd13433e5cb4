"""The shuffle buffer: the order of the model, streamed in any steps, sought at any position, held within its bounds."""

from __future__ import annotations

from math import exp, log1p, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.order import shuffle
from shardmix.order.hashing import KEYS, hash64
from shardmix.order.shuffle import Departures

pytestmark = pytest.mark.once


def order_of(size: int, buffer: int, seed: int = 0, epoch: int = 0, lane: int = 0) -> list[int]:
    return Departures(size, buffer, seed, epoch, lane).take(size).tolist()


def arrivals_by_rule(order_model: Any, size: int, buffer: int, lane: int) -> list[int]:
    """The arrivals that must have come before each row may leave, by the rule of emission as it stands."""
    keys = [order_model.key(i, buffer, 0, 0, lane) for i in range(size)]
    needed = []
    for i in order_model.shuffled(size, buffer, 0, 0, lane):
        arrived = i + 1
        while arrived < size and keys[i] > max(arrived - buffer, 0) << 24:
            arrived += 1
        needed.append(arrived)
    return needed


def test_table_holds_the_quantiles_of_the_truncated_exponential(order_model: Any) -> None:
    assert list(shuffle.TABLE) == [round(-log1p(-(j / 256) * (1 - exp(-4))) * 2**24) for j in range(257)]
    assert list(shuffle.TABLE) == order_model.TABLE


@pytest.mark.parametrize("buffer", [0, 1, 2, 3, 7, 20, 1000])
@pytest.mark.parametrize("size", [0, 1, 2, 3, 30, 171])
def test_order_equals_the_model(order_model: Any, size: int, buffer: int) -> None:
    for seed, epoch, lane in ((0, 0, 0), (7, 3, 5), (-1, 0, 63), (2**70 + 1, 9, 1)):
        expected = order_model.shuffled(size, buffer, seed, epoch, lane)
        assert order_of(size, buffer, seed, epoch, lane) == expected


@pytest.mark.parametrize("buffer", [5, 400])
def test_order_longer_than_a_block_equals_the_model(order_model: Any, buffer: int) -> None:
    size = 2 * shuffle.BLOCK + 77
    assert order_of(size, buffer) == order_model.shuffled(size, buffer, 0, 0, 0)


def test_keys_too_wide_to_be_sorted_with_their_place_give_the_order_of_the_model(order_model: Any) -> None:
    assert order_of(500, 2**31) == order_model.shuffled(500, 2**31, 0, 0, 0)


@pytest.mark.parametrize("buffer", [40, 2**36])
def test_equal_keys_leave_in_the_order_of_arrival(monkeypatch: pytest.MonkeyPatch, buffer: int) -> None:
    coarse = np.arange(257) // 64 << shuffle.FRACTION_BITS  # 0, 1, 2 or 3 instead of the exponential distribution
    monkeypatch.setattr(shuffle, "_QUANTILES", coarse.astype(np.uint64))
    monkeypatch.setattr(shuffle, "_STEPS", np.zeros(256, dtype=np.uint64))
    keys = [(max(i - buffer, 0) << 24) + buffer * int(coarse[hash64(KEYS, 0, 0, 0, i) >> 56]) for i in range(300)]
    assert len(set(keys)) < 300
    assert order_of(300, buffer) == sorted(range(300), key=lambda i: (keys[i], i))


def test_no_buffer_is_the_identity() -> None:
    assert order_of(10_000, 0) == list(range(10_000))


@settings(deadline=None, derandomize=True)
@given(st.integers(0, 300), st.integers(0, 80), st.lists(st.integers(0, 60)))
def test_any_takes_stream_the_same_order(size: int, buffer: int, takes: list[int]) -> None:
    cursor, streamed = Departures(size, buffer, 0, 0, 0), list[int]()
    for num_rows in takes:
        streamed += cursor.take(min(num_rows, size - cursor.position)).tolist()
    streamed += cursor.take(size - cursor.position).tolist()
    assert streamed == order_of(size, buffer)


SOUGHT = [(1, 0), (1, 5), (60, 0), (60, 1), (60, 3), (60, 100), (260, 20), (260, 52), (260, 51)]


@pytest.mark.parametrize(("size", "buffer"), SOUGHT)
def test_a_seek_to_every_position_stands_where_the_stream_stands(size: int, buffer: int) -> None:
    order, stream = order_of(size, buffer), Departures(size, buffer, 0, 0, 0)
    for position in range(size + 1):
        sought = Departures(size, buffer, 0, 0, 0, position)
        assert (sought.position, sought.taken_in) == (stream.position, stream.taken_in)
        assert sought.held().tolist() == stream.held().tolist()
        assert sought.take(size - position).tolist() == order[position:]
        stream.take(min(1, size - position))


@pytest.mark.parametrize("lane", range(4))
def test_a_seek_far_into_a_long_lane_stands_where_the_stream_stands(lane: int) -> None:
    size, buffer = 60_000, 300
    order = Departures(size, buffer, 0, 0, lane).take(size)
    for position in (1, 299, 1250, 1300, 1499, 1500, 1501, 4096, 30_000, 58_801, 59_999, 60_000):
        sought = Departures(size, buffer, 0, 0, lane, position)
        assert sought.taken_in == (order[:position].max() + 1)
        assert sought.held().tolist() == np.setdiff1d(np.arange(sought.taken_in), order[:position]).tolist()
        assert sought.take(min(5000, size - position)).tolist() == order[position : position + 5000].tolist()


def test_held_are_the_arrivals_taken_in_that_have_not_left() -> None:
    cursor, left = Departures(200, 20, 0, 0, 0), set[int]()
    for num_rows in (1, 0, 5, 50, 3, 100, 41):
        left |= set(cursor.take(num_rows).tolist())
        assert cursor.taken_in == max(left) + 1
        assert cursor.held().tolist() == sorted(set(range(cursor.taken_in)) - left)
    assert (cursor.position, cursor.taken_in, len(cursor.held())) == (200, 200, 0)


@pytest.mark.parametrize("buffer", [0, 1, 7, 60])
def test_no_more_is_taken_in_than_the_rule_of_emission_needs(order_model: Any, buffer: int) -> None:
    cursor = Departures(300, buffer, 0, 0, lane=2)
    for needed in arrivals_by_rule(order_model, 300, buffer, lane=2):
        cursor.take(1)
        assert cursor.taken_in <= needed


@pytest.mark.parametrize("buffer", [16, 128, 1000])
def test_held_stays_within_its_bounds(buffer: int) -> None:
    order = Departures(20_000, buffer, 0, 0, 0).take(20_000)
    held = np.maximum.accumulate(order) + 1 - np.arange(1, 20_001)
    assert held.max() <= buffer * (1 + 3 / sqrt(buffer))
    assert held[5 * buffer : -5 * buffer].mean() <= 0.93 * buffer


def test_no_record_waits_for_more_than_five_buffers() -> None:
    order = Departures(20_000, 128, 0, 0, 0).take(20_000)
    assert (np.arange(20_000) - order).max() <= 5 * 128


def test_the_first_rows_are_drawn_from_a_full_buffer() -> None:
    first = Departures(100_000, 1000, 0, 0, 0).take(100)
    assert set((first // 250).tolist()) >= {0, 1, 2, 3}


@pytest.mark.parametrize("changed", [{"seed": 1}, {"epoch": 1}, {"lane": 1}])
def test_seed_epoch_and_lane_each_change_the_order(changed: dict[str, int]) -> None:
    assert order_of(50, 10, **changed) != order_of(50, 10)


def test_what_take_returned_is_the_callers_to_change() -> None:
    cursor = Departures(50, 10, 0, 0, 0)
    taken = cursor.take(20)
    taken[:] = -1
    assert cursor.take(30).tolist() == order_of(50, 10)[20:]


@pytest.mark.parametrize("num_rows", [-1, 6])
def test_take_beyond_the_lane_is_refused_and_leaves_the_cursor(num_rows: int) -> None:
    cursor = Departures(10, 3, 0, 0, 0, position=5)
    with pytest.raises(ValueError, match=rf"{num_rows} rows asked for at position 5 of a lane of 10"):
        cursor.take(num_rows)
    assert cursor.take(5).tolist() == order_of(10, 3)[5:]


@pytest.mark.parametrize("position", [-1, 11])
def test_a_position_outside_the_lane_is_refused(position: int) -> None:
    with pytest.raises(ValueError, match=rf"lane 4: position {position} asked for, the lane has 10 records"):
        Departures(10, 3, 0, 0, 4, position)
