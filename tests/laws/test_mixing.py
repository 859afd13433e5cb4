"""Law 7, in integers: every batch holds the lanes that were promised, and as many classes as of a classic buffer."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random

import numpy as np
import pytest

from shardmix.order.hashing import IntArray
from shardmix.order.schedule import Schedule
from shardmix.order.shuffle import Departures

pytestmark = pytest.mark.once


def lanes_of_full_batches(schedule: Schedule, rank: int, epoch: int = 0) -> list[IntArray]:
    num_full = schedule.num_records // schedule.global_batch
    rows = schedule.batch_rows(rank, epoch, 0, num_full)
    return [rows.lane[start:stop] for start, stop in pairwise(rows.bounds.tolist())]


def test_a_full_batch_holds_every_lane_of_its_rank_alike_to_one_row() -> None:
    for world_size, per_rank, extra in product((1, 2, 3), (1, 2, 5, 8), (0, 1, 3, 8, 20)):
        lanes, batch_size = world_size * per_rank, per_rank + extra
        schedule = Schedule(12 * lanes + 5, lanes, batch_size, world_size)
        for rank in range(world_size):
            own = np.arange(rank, lanes, world_size)
            for batch in lanes_of_full_batches(schedule, rank):
                counts = np.bincount(batch, minlength=lanes)
                assert counts.sum() == counts[own].sum(), schedule
                assert counts[own].min() >= 1, schedule
                assert np.ptp(counts[own]) <= 1, schedule


def test_a_small_batch_holds_different_lanes_or_at_most_two_rows_of_one() -> None:
    for world_size, per_rank, batch_size in product((1, 2, 3), (4, 6, 16), (1, 2, 3, 4, 5, 8)):
        lanes, global_batch = world_size * per_rank, batch_size * world_size
        if batch_size >= per_rank:
            continue
        schedule = Schedule(9 * lanes + 5, lanes, batch_size, world_size)
        allowed = 1 if lanes % global_batch == 0 else 2
        for rank, epoch in product(range(world_size), (0, 1)):
            for batch in lanes_of_full_batches(schedule, rank, epoch):
                assert set((batch % world_size).tolist()) == {rank}, schedule
                assert np.bincount(batch).max() <= allowed, schedule


def test_a_round_of_small_batches_holds_every_lane_once() -> None:
    for lanes, batch_size in product((4, 12, 16), (1, 2, 3, 4, 6, 8)):
        schedule = Schedule(10 * lanes + 3, lanes, batch_size)
        rounds = schedule.lane_of_rows(np.arange(10 * lanes), 0).reshape(10, lanes)
        assert (np.sort(rounds, axis=1) == np.arange(lanes)).all(), schedule


def test_any_two_lanes_of_different_classes_meet_in_small_batches() -> None:
    schedule = Schedule(16 * 200, lanes=16, batch_size=8)
    met = {(int(a), int(b)) for batch in lanes_of_full_batches(schedule, 0) for a in batch for b in batch}
    assert met == {(a, b) for a in range(16) for b in range(16) if a == b or a % 8 != b % 8}


def test_the_last_incomplete_round_is_left_alone() -> None:
    schedule = Schedule(num_records=16 * 3 + 11, lanes=16, batch_size=8)
    assert schedule.lane_of_rows(np.arange(48, 59), 0).tolist() == list(range(11))


def test_small_batches_differ_between_epochs_and_seeds() -> None:
    rows = np.arange(160)
    orders = [
        Schedule(160, lanes=16, batch_size=8, seed=seed).lane_of_rows(rows, epoch).tolist()
        for seed, epoch in ((0, 0), (0, 1), (1, 0))
    ]
    assert orders[0] != orders[1] != orders[2] != orders[0]


# --- The shuffle buffer against the usual one: 50,000 records sorted by label, 50 labels, batches of 64 ------------------------


def classic_buffer(size: int, buffer: int) -> IntArray:
    """A buffer that replaces one record at random by the next to arrive."""
    random, held, order = Random(0), list(range(buffer)), []
    for arrival in range(buffer, size):
        place = random.randrange(buffer)
        order.append(held[place])
        held[place] = arrival
    random.shuffle(held)
    return np.array(order + held)


def classes_per_batch(order: IntArray) -> float:
    labels = order[: len(order) // 64 * 64].reshape(-1, 64) // 1000
    return float(np.mean([len(np.unique(batch)) for batch in labels]))


@pytest.mark.parametrize(("buffer", "classes", "displacement"), [(10_000, 21.4, 6162), (1_000, 4.3, 651)])
def test_the_keys_mix_as_was_measured(buffer: int, classes: float, displacement: float) -> None:
    order = Departures(50_000, buffer, 0, 0, 0).take(50_000)
    assert classes_per_batch(order) == pytest.approx(classes, rel=0.02)
    assert np.abs(order - np.arange(50_000)).mean() == pytest.approx(displacement, rel=0.02)


def test_a_batch_holds_nearly_as_many_classes_as_of_a_classic_buffer() -> None:
    keys, classic = Departures(50_000, 10_000, 0, 0, 0).take(50_000), classic_buffer(50_000, 10_000)
    assert classes_per_batch(keys) >= 0.95 * classes_per_batch(classic)
