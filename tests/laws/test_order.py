"""Laws 5 and 6, in integers: one order for any number of ranks, from any place, and a new one every epoch."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from itertools import chain, pairwise, product
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.order.hashing import IntArray
from shardmix.order.plan import EpochPlan, Plan
from shardmix.order.schedule import Schedule

pytestmark = pytest.mark.once

Addresses = list[tuple[int, int]]
Item = TypeVar("Item")


def flat(lists: Iterable[list[Item]]) -> list[Item]:
    return list(chain.from_iterable(lists))


def rank_batches(plan: Plan, epoch: int, schedule: Schedule, rank: int, first_step: int = 0) -> list[Addresses]:
    """(shard, record) of the rank's batches from a step on, without pads, as a worker that begins there finds them."""
    rows = schedule.batch_rows(rank, epoch, first_step, schedule.num_batches(rank) - first_step)
    shard, record = plan.epoch(epoch).locate(rows.lane, rows.position)
    addresses = list(zip(shard.tolist(), record.tolist(), rows.is_pad.tolist(), strict=True))
    return [
        [(where, number) for where, number, is_pad in addresses[start:stop] if not is_pad]
        for start, stop in pairwise(rows.bounds.tolist())
    ]


def global_batches(plan: Plan, epoch: int, global_batch: int, world_size: int) -> list[Addresses]:
    """The records of every global step, over all ranks, sorted."""
    schedule = Schedule(plan.num_records, plan.lanes, global_batch // world_size, world_size, seed=plan.seed)
    ranks = [rank_batches(plan, epoch, schedule, rank) for rank in range(world_size)]
    return [sorted(flat(step)) for step in zip(*ranks, strict=True)]


@pytest.mark.parametrize("counts", [[1], [5, 0, 2], [30, 1, 40], [100]])
def test_global_batches_are_the_same_for_any_number_of_ranks(counts: list[int]) -> None:
    for lanes, global_batch in product((4, 8, 16), (4, 8, 12, 20)):
        plan = Plan(np.array(counts), lanes, shuffle_buffer_size=3 * lanes, seed=5)
        for epoch in (0, 1):
            alone = global_batches(plan, epoch, global_batch, world_size=1)
            for world_size in (2, 4):
                assert global_batches(plan, epoch, global_batch, world_size) == alone, (plan, global_batch, world_size)


@pytest.mark.parametrize("batch_size", [2, 3, 8, 20])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_pass_that_begins_at_any_step_is_the_rest_of_the_whole(batch_size: int, world_size: int) -> None:
    plan = Plan(np.array([30, 0, 55, 1, 17]), lanes=8, block_length=2, shuffle_buffer_size=32)
    schedule = Schedule(plan.num_records, plan.lanes, batch_size, world_size)
    for epoch, rank in product((0, 1), range(world_size)):
        whole = rank_batches(plan, epoch, schedule, rank)
        for step in range(len(whole) + 1):
            assert rank_batches(plan, epoch, schedule, rank, step) == whole[step:]


@pytest.mark.parametrize("batch_size", [16, 24])
def test_a_pass_resumed_on_other_ranks_delivers_what_is_left(batch_size: int) -> None:
    plan, n = Plan(np.array([90, 60]), lanes=8, shuffle_buffer_size=32), 150
    row, shorter = 2 * batch_size, batch_size // 2
    whole = global_batches(plan, 0, batch_size, world_size=1)
    for world_size in (1, 2, 4):
        rest = Schedule(n, 8, shorter // world_size, world_size, first_row=row)
        ranks = [rank_batches(plan, 0, rest, rank) for rank in range(world_size)]
        assert sorted(flat(flat(ranks))) == sorted(flat(whole[2:]))


@settings(deadline=None, derandomize=True)
@given(st.lists(st.integers(0, 40), min_size=1, max_size=5), st.integers(1, 9), st.integers(1, 12), st.integers(1, 250))
def test_take_is_the_beginning_of_the_order(counts: list[int], lanes: int, batch_size: int, num_rows: int) -> None:
    counts = [*counts, 1]
    plan = Plan(np.array(counts), lanes, shuffle_buffer_size=4 * lanes)
    everything = rank_batches(plan, 0, Schedule(sum(counts), lanes, batch_size), 0)
    some = rank_batches(plan, 0, Schedule(sum(counts), lanes, batch_size, num_rows=num_rows), 0)
    assert flat(some) == flat(everything)[:num_rows]


# --- A record's place in one epoch says nothing about its place in the next ---------------------------------------------------
#
# Without parts, 16 or 64 equal shards put 67 % of the records into the same tenth of every epoch; chance is 10 %. The seeds are
# fixed, so the figures are too. 20 pairs of epochs of some 512 independent parts: the noise is 0.3 %.


def places(epoch: EpochPlan, counts: IntArray) -> IntArray:
    """The row at which each record comes, in listing order."""
    first = np.cumsum(counts) - counts
    result = np.empty(epoch.num_records, dtype=np.int64)
    for lane in range(epoch.lanes):
        shard, record = epoch.addresses(lane, epoch.departures(lane).take(epoch.lane_size(lane)))
        result[first[shard] + record] = np.arange(len(shard)) * epoch.lanes + lane
    return result


def equal_counts(num_shards: int) -> IntArray:
    return np.full(num_shards, 20_000 // num_shards)


def uneven_counts(num_shards: int) -> IntArray:
    weights = np.arange(1, num_shards + 1) ** 2
    return weights * 20_000 // weights.sum()


@pytest.mark.parametrize("counts_of", [equal_counts, uneven_counts])
@pytest.mark.parametrize("num_shards", [1, 3, 16, 64, 100])
def test_a_place_in_one_epoch_says_nothing_about_the_next(num_shards: int, counts_of: Callable[[int], IntArray]) -> None:
    counts = counts_of(num_shards)
    plan = Plan(counts, lanes=16, shuffle_buffer_size=2000)
    epochs = [places(plan.epoch(epoch), plan.counts) for epoch in range(21)]
    tenths = [place * 10 // plan.num_records for place in epochs]
    same = [np.mean(one == other) for one, other in pairwise(tenths)]
    correlation = [np.corrcoef(one, other)[0, 1] for one, other in pairwise(epochs)]
    assert abs(np.mean(same) - 0.1) < 0.01
    assert abs(np.mean(correlation)) < 0.04


def test_places_of_neighbouring_records_are_not_tied_between_epochs() -> None:
    plan = Plan(np.array([20_000]), lanes=16, shuffle_buffer_size=2000)
    shifts = places(plan.epoch(1), plan.counts) - places(plan.epoch(0), plan.counts)
    assert len(np.unique(shifts)) > 10_000
