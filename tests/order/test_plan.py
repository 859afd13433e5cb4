"""The whole order: row for row that of the model, pinned, and refused where it cannot be."""

from __future__ import annotations

import pickle
from hashlib import sha256
from random import Random
from typing import Any

import numpy as np
import pytest

from shardmix.order.plan import EpochPlan, Plan, Reads
from shardmix.order.schedule import Schedule

pytestmark = pytest.mark.once


def rows_of(epoch: EpochPlan, schedule: Schedule, first: int = 0, stop: int | None = None) -> list[tuple[int, int]]:
    """(shard, record) of some rows of an epoch, by default of all."""
    rows = np.arange(first, schedule.num_records if stop is None else stop)
    shard, record = epoch.locate(schedule.lane_of_rows(rows, epoch.epoch), rows // schedule.lanes)
    return list(zip(shard.tolist(), record.tolist(), strict=True))


def digest(rows: list[tuple[int, int]]) -> str:
    return sha256(np.array(rows, dtype="<i8").tobytes()).hexdigest()[:16]


@pytest.mark.parametrize("seed", range(20))
def test_rows_equal_the_model(order_model: Any, seed: int) -> None:
    random = Random(seed)
    for _ in range(250):
        counts = [random.choice([0, 0, 1, 2, random.randrange(40)]) for _ in range(random.randrange(8))]
        counts.append(random.randrange(1, 9))
        lanes, cycle_length, block_length = random.randrange(1, 25), random.randrange(1, 5), random.randrange(1, 5)
        buffer, shuffle = random.choice([0, lanes, 2 * lanes + 1, 5 * lanes, 30 * lanes]), random.random() < 0.8
        whole = [random.random() < 0.3 for _ in counts]
        epoch, global_batch, key = random.randrange(4), random.randrange(1, 30), random.randrange(-5, 2**66)
        plan = Plan(np.array(counts), lanes, cycle_length, block_length, buffer, key, shuffle, np.array(whole))
        undivided = {shard for shard, is_whole in enumerate(whole) if is_whole}
        expected = order_model.epoch_rows(
            counts, lanes, plan.effective_cycle_length, block_length, buffer, key, epoch, shuffle, undivided, global_batch
        )
        schedule = Schedule(sum(counts), lanes, global_batch, seed=key)
        assert rows_of(plan.epoch(epoch), schedule) == expected, (plan, schedule)


@pytest.mark.parametrize(("counts", "lanes"), [([1], 1), ([1], 16), ([0, 1, 0], 4), ([3], 16), ([2, 0, 2], 3)])
def test_fewer_records_than_lanes_are_each_delivered_once(counts: list[int], lanes: int) -> None:
    plan = Plan(np.array(counts), lanes)
    everything = [(shard, record) for shard, count in enumerate(counts) for record in range(count)]
    assert sorted(rows_of(plan.epoch(0), Schedule(sum(counts), lanes, 4))) == everything


def test_without_shuffle_one_lane_and_one_track_is_the_order_of_the_files() -> None:
    plan = Plan(np.array([2, 0, 3]), lanes=1, cycle_length=1, shuffle=False)
    for epoch in (0, 7):
        assert rows_of(plan.epoch(epoch), Schedule(5, 1, 2)) == [(0, 0), (0, 1), (2, 0), (2, 1), (2, 2)]


# The order is API: a change of these is a change that the changelog names.
PINNED = {
    "plain": "03c3de2f7f0823ac",
    "blocks": "e47e9bf949cd0d0b",
    "whole": "700be862780b1a3b",
    "listing": "2f343ac2b6bad308",
    "small batches": "28fea579ad3fcd85",
    "a billion records": "5ff6cd310f266c69",
    "a billion records, half way": "d0fe4b5da72268f5",
}


def pinned_rows() -> dict[str, list[tuple[int, int]]]:
    uneven = np.array([7, 0, 100, 13, 1, 50])
    whole = np.array([False, False, True, False, True, False])
    large = Plan(np.arange(1_000_000) % 2001, lanes=64, seed=42)
    large_schedule = Schedule(large.num_records, 64, 16, seed=42)
    half = large.num_records // 2
    return {
        "plain": rows_of(Plan(uneven, 16, seed=1).epoch(0), Schedule(171, 16, 32)),
        "blocks": rows_of(Plan(uneven, 3, 2, 5, 30, seed=2).epoch(1), Schedule(171, 3, 32)),
        "whole": rows_of(Plan(uneven, 4, whole=whole).epoch(2), Schedule(171, 4, 8)),
        "listing": rows_of(Plan(uneven, 4, shuffle=False).epoch(3), Schedule(171, 4, 8)),
        "small batches": rows_of(Plan(uneven, 16, 4, 1, 64).epoch(0), Schedule(171, 16, 6)),
        "a billion records": rows_of(large.epoch(0), large_schedule, 0, 4096),
        "a billion records, half way": rows_of(large.epoch(9), large_schedule, half, half + 4096),
    }


def test_orders_are_pinned() -> None:
    assert {name: digest(rows) for name, rows in pinned_rows().items()} == PINNED


def test_epochs_differ_and_are_each_the_same_again() -> None:
    plan, schedule = Plan(np.array([30, 20]), lanes=4), Schedule(50, 4, 4)
    orders = [rows_of(plan.epoch(epoch), schedule) for epoch in range(5)]
    assert len({tuple(order) for order in orders}) == 5
    assert rows_of(plan.epoch(3), schedule) == orders[3]


def test_a_plan_that_was_pickled_gives_the_same_order() -> None:
    plan, schedule = Plan(np.array([30, 20]), lanes=4, whole=np.array([True, False])), Schedule(50, 4, 4)
    assert rows_of(pickle.loads(pickle.dumps(plan)).epoch(2), schedule) == rows_of(plan.epoch(2), schedule)


def test_lanes_have_equal_sizes_to_one_record() -> None:
    epoch = Plan(np.array([10, 1]), lanes=4).epoch(0)
    assert [epoch.lane_size(lane) for lane in range(4)] == [3, 3, 3, 2]


def records_of(epoch: EpochPlan, lanes: list[int], reads: Reads) -> dict[tuple[int, int], tuple[int, int]]:
    """(lane, arrival) → (shard, record), of everything that is to be read; each slot's runs must be in sequence."""
    runs = zip(reads.shard.tolist(), reads.first.tolist(), reads.stop.tolist(), strict=True)
    addresses = [(shard, record) for shard, first, stop in runs for record in range(first, stop)]
    keys = zip(np.array(lanes)[reads.owner_of_record].tolist(), reads.arrival.tolist(), strict=True)
    found = dict(zip(keys, addresses, strict=True))
    assert len(found) == len(addresses)
    return found


@pytest.mark.parametrize("block_length", [1, 3])
def test_addresses_of_many_lanes_are_those_of_each(block_length: int) -> None:
    epoch = Plan(np.array([17, 0, 9, 4]), lanes=4, cycle_length=2, block_length=block_length, shuffle_buffer_size=8).epoch(1)
    lanes = np.repeat(np.arange(4), [epoch.lane_size(lane) for lane in range(4)])
    arrivals = np.concatenate([np.arange(epoch.lane_size(lane))[::-1] for lane in range(4)])
    each = [epoch.addresses(lane, arrivals[lanes == lane]) for lane in range(4)]
    found = epoch.addresses_of(lanes, arrivals)
    assert [column.tolist() for column in found] == [np.concatenate(column).tolist() for column in zip(*each, strict=True)]


@pytest.mark.parametrize("block_length", [1, 2, 5])
@pytest.mark.parametrize("counts", [[40, 3, 0, 60], [11], [7, 7, 7], [1, 1]])
def test_reads_of_many_lanes_name_the_records_of_the_addresses(counts: list[int], block_length: int) -> None:
    epoch = Plan(np.array(counts), lanes=3, cycle_length=3, block_length=block_length, shuffle_buffer_size=12).epoch(1)
    sizes = np.array([epoch.lane_size(lane) for lane in range(3)])
    for first, stop in ((sizes * 0, sizes), (sizes // 3, sizes), (sizes // 4, sizes // 2), (sizes, sizes)):
        found = records_of(epoch, [0, 1, 2], epoch.reads(np.arange(3), first, stop))
        expected = {}
        for lane in range(3):
            arrivals = np.arange(first[lane], stop[lane])
            shard, record = epoch.addresses(lane, arrivals)
            addresses = zip(shard.tolist(), record.tolist(), strict=True)
            expected.update({(lane, arrival): each for arrival, each in zip(arrivals.tolist(), addresses, strict=True)})
        assert found == expected


def test_reads_of_some_arrivals_name_no_others() -> None:
    epoch = Plan(np.array([40, 3, 0, 60]), lanes=2, cycle_length=3, block_length=2, shuffle_buffer_size=12).epoch(1)
    arrivals = np.array([0, 1, 2, 7, 8, 20, 33, 34, 35, 36])
    shard, record = epoch.addresses(1, arrivals)
    found = records_of(epoch, [1], epoch.reads_of(1, arrivals))
    addresses = zip(shard.tolist(), record.tolist(), strict=True)
    assert found == {(1, arrival): each for arrival, each in zip(arrivals.tolist(), addresses, strict=True)}


def test_departures_begin_at_any_position() -> None:
    epoch = Plan(np.array([300]), lanes=3, shuffle_buffer_size=30).epoch(0)
    assert epoch.departures(1, 40).take(60).tolist() == epoch.departures(1).take(100)[40:].tolist()


@pytest.mark.parametrize(
    ("counts", "whole", "lanes", "cycle_length", "expected"),
    [
        ([5, 5, 5], [True, True, True], 1, 4, 3),  # fewer shards than tracks
        ([5, 0, 5, 0], [True, False, True, False], 1, 4, 2),  # only shards with records count
        ([5], [True], 16, 4, 1),
        ([5] * 40, [True] * 40, 16, 4, 2),
        ([5] * 64, [True] * 64, 16, 4, 4),  # as many as tracks
        ([5, 5], [True, False], 1, 4, 4),  # a plain shard can be divided
        ([5, 5], None, 16, 4, 4),
    ],
)
def test_cycle_length_drops_where_all_shards_are_compressed_and_few(
    counts: list[int], whole: list[bool] | None, lanes: int, cycle_length: int, expected: int
) -> None:
    plan = Plan(np.array(counts), lanes, cycle_length, whole=None if whole is None else np.array(whole))
    assert plan.effective_cycle_length == expected
    assert plan.epoch(0).cycle_length == expected


def test_inflation_counts_the_records_before_each_cut() -> None:
    one = Plan(np.array([160]), lanes=16, whole=np.array([True]))
    assert one.inflation() == sum(range(10, 170, 10)) / 160 == 8.5
    assert Plan(np.array([160]), lanes=16).inflation() == 1.0
    assert Plan(np.array([40, 40, 40, 40]), lanes=4, cycle_length=1, whole=np.array([True] * 4)).inflation() == 1.0
    assert Plan(np.array([40, 0]), lanes=4, cycle_length=1, whole=np.array([False, True])).inflation() == 1.0


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"counts": [0, 0]}, "no records: all of the 2 shards are empty"),
        ({"counts": []}, "no records: all of the 0 shards are empty"),
        ({"counts": [3, -1]}, "shard 1 has a count of -1"),
        ({"counts": [[3]]}, r"counts have shape \(1, 1\)"),
        ({"whole": [True]}, r"whole has shape \(1,\), expected \(2,\)"),
        ({"lanes": 0}, "lanes is 0, expected at least 1"),
        ({"cycle_length": 0}, "cycle_length is 0, expected at least 1"),
        ({"block_length": 0}, "block_length is 0, expected at least 1"),
        ({"shuffle_buffer_size": -1}, "shuffle_buffer_size is -1, expected at least 0"),
        ({"shuffle_buffer_size": 15}, "shuffle_buffer_size is 15, less than one record for each of the 16 lanes"),
    ],
)
def test_a_plan_that_cannot_be_is_refused_with_the_numbers(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Plan(**{"counts": [3, 4], "lanes": 16, **changed})


def test_a_small_buffer_is_no_matter_without_shuffle() -> None:
    assert Plan(np.array([3]), lanes=16, shuffle_buffer_size=1, shuffle=False).lane_buffer_size == 0


def test_a_lane_or_an_epoch_that_is_not_there_is_refused() -> None:
    plan = Plan(np.array([3]), lanes=2)
    with pytest.raises(ValueError, match="epoch is -1"):
        plan.epoch(-1)
    for lane in (-1, 2):
        with pytest.raises(ValueError, match=f"lane {lane} asked for, expected 0 to 1"):
            plan.epoch(0).lane_size(lane)


def test_a_plan_keeps_its_own_counts() -> None:
    counts = np.array([3, 4])
    plan = Plan(counts, lanes=2)
    counts[:] = 0
    assert plan.num_records == 7
    with pytest.raises(ValueError, match="read-only"):
        plan.counts[0] = 1
