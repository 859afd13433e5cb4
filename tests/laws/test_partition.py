"""Law 4, in integers: for all small corpora the shares are disjoint, complete, and balanced to one record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from shardmix.order.plan import Plan
from shardmix.order.schedule import Schedule

pytestmark = pytest.mark.once

CORPORA = ([1], [0, 1], [2, 0, 3], [5], [4, 4, 4], [13, 1, 0, 2], [1] * 9, [40, 7])


def plans() -> Iterator[Plan]:
    for counts, lanes, cycle_length, block_length in product(CORPORA, (1, 2, 3, 8, 12), (1, 2, 4), (1, 3)):
        for shuffle, whole in ((True, False), (True, True), (False, False)):
            is_whole = np.full(len(counts), whole)
            yield Plan(np.array(counts), lanes, cycle_length, block_length, 5 * lanes, 7, shuffle, is_whole)


def test_lanes_are_disjoint_complete_and_balanced_to_one_record() -> None:
    for plan in plans():
        epoch = plan.epoch(1)
        dealt: Counter[tuple[int, int]] = Counter()
        sizes = [epoch.lane_size(lane) for lane in range(plan.lanes)]
        for lane, size in enumerate(sizes):
            shard, record = epoch.addresses(lane, epoch.departures(lane).take(size))
            dealt.update(zip(shard.tolist(), record.tolist(), strict=True))
        everything = [(shard, record) for shard, count in enumerate(plan.counts.tolist()) for record in range(count)]
        assert dealt == Counter(everything), plan
        assert max(sizes) - min(sizes) <= 1, plan


def test_tracks_of_a_lane_end_together_to_one_record() -> None:
    for plan in plans():
        epoch = plan.epoch(0)
        lengths = [epoch.slot_counts(lane, epoch.lane_size(lane)) for lane in range(plan.lanes)]
        assert np.ptp(np.concatenate(lengths)) <= 1, plan


@pytest.mark.parametrize("uneven", ["pad", "drop", "allow"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_are_disjoint_and_complete_and_have_equal_numbers_of_batches(uneven: str, drop_last: bool) -> None:
    for n, world_size, batch_size in product(range(1, 40), (1, 2, 3, 4), (1, 2, 3, 5)):
        schedule = Schedule(n, 12, batch_size, world_size, drop_last, uneven)
        ranks = [schedule.batch_rows(rank, 0, 0, schedule.num_batches(rank)) for rank in range(world_size)]
        rows = np.concatenate([each.row for each in ranks])
        pads = np.concatenate([each.is_pad for each in ranks])
        left_out = n % schedule.global_batch if drop_last else 0
        if uneven == "drop" and 0 < n % schedule.global_batch < world_size:
            left_out = n % schedule.global_batch
        assert sorted(rows[~pads].tolist()) == list(range(n - left_out)), schedule
        assert pads.sum() <= (world_size - 1 if uneven == "pad" else 0), schedule
        lengths = {len(each.bounds) - 1 for each in ranks}
        assert max(lengths) - min(lengths) <= (uneven == "allow"), schedule
        if uneven == "pad":
            assert len({tuple(each.bounds.tolist()) for each in ranks}) == 1, schedule


def test_every_batch_but_the_last_is_full() -> None:
    for n, world_size, batch_size in product(range(1, 40), (1, 2, 3), (1, 2, 5)):
        schedule = Schedule(n, 6, batch_size, world_size)
        for rank in range(world_size):
            sizes = np.diff(schedule.batch_rows(rank, 0, 0, schedule.num_batches(rank)).bounds)
            assert (sizes[:-1] == batch_size).all(), schedule
            assert 1 <= sizes[-1] <= batch_size, schedule
