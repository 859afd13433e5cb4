"""Rows, batches, ranks: equal to the model; takes, resumes and errors."""

from __future__ import annotations

from itertools import pairwise, product
from random import Random
from typing import Any

import numpy as np
import pytest

from shardmix.order.schedule import BatchRows, Schedule

pytestmark = pytest.mark.once


def batches_of(schedule: Schedule, rank: int, epoch: int = 0) -> list[list[int]]:
    """The rows of each batch; a padded row q stands as -1 - q, as in the model."""
    return batches_in(schedule.batch_rows(rank, epoch, 0, schedule.num_batches(rank)))


def batches_in(rows: BatchRows) -> list[list[int]]:
    marked = np.where(rows.is_pad, -1 - rows.row, rows.row).tolist()
    bounds = rows.bounds.tolist()
    return [marked[start:stop] for start, stop in pairwise(bounds)]


@pytest.mark.parametrize("uneven", ["pad", "drop", "allow"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_batches_of_every_rank_equal_the_model(order_model: Any, uneven: str, drop_last: bool) -> None:
    for n, world_size, batch_size in product(range(1, 26), (1, 2, 3, 4, 7), (1, 2, 3, 5, 8)):
        schedule = Schedule(n, 2 * world_size, batch_size, world_size, drop_last, uneven)
        expected = order_model.rank_batches(n, world_size, batch_size, uneven, drop_last)
        for rank in range(world_size):
            assert schedule.num_batches(rank) == len(expected[rank]), schedule
            assert batches_of(schedule, rank) == expected[rank], (schedule, rank)


def test_lanes_of_rows_equal_the_model(order_model: Any) -> None:
    random = Random(0)
    for _ in range(300):
        world_size = random.choice([1, 1, 2, 3])
        lanes, batch_size = world_size * random.randrange(1, 9), random.randrange(1, 12)
        n, seed, epoch = random.randrange(1, 80), random.randrange(-3, 1000), random.randrange(3)
        schedule = Schedule(n, lanes, batch_size, world_size, seed=seed)
        expected = [order_model.lane_of_row(p, n, lanes, batch_size * world_size, seed, epoch) for p in range(n)]
        assert schedule.lane_of_rows(np.arange(n), epoch).tolist() == expected, (schedule, epoch)
        backwards = schedule.lane_of_rows(np.arange(n)[::-1], epoch)
        assert backwards.tolist() == expected[::-1], (schedule, epoch)


@pytest.mark.parametrize("batch_size", [1, 3, 4, 8, 40])
def test_steps_asked_for_in_any_pieces_are_the_same(batch_size: int) -> None:
    schedule = Schedule(num_records=203, lanes=16, batch_size=batch_size, world_size=2)
    whole = batches_of(schedule, rank=1, epoch=3)
    lanes = schedule.batch_rows(1, 3, 0, len(whole)).lane.tolist()
    for size in (1, 2, 7):
        pieces = [schedule.batch_rows(1, 3, first, min(size, len(whole) - first)) for first in range(0, len(whole), size)]
        assert [batch for piece in pieces for batch in batches_in(piece)] == whole
        assert [lane for piece in pieces for lane in piece.lane.tolist()] == lanes


def test_no_steps_are_no_rows() -> None:
    schedule = Schedule(num_records=5, lanes=2, batch_size=3, world_size=2)
    for first_step in (0, 1):
        rows = schedule.batch_rows(1, 0, first_step, 0)
        assert (len(rows.row), rows.bounds.tolist()) == (0, [0])


def test_rows_lie_in_the_lanes_of_their_rank_at_row_div_lanes() -> None:
    schedule = Schedule(num_records=100, lanes=12, batch_size=2, world_size=3)
    for rank in range(3):
        rows = schedule.batch_rows(rank, 0, 0, schedule.num_batches(rank))
        assert set(rows.lane.tolist()) == {rank, rank + 3, rank + 6, rank + 9}
        assert rows.position.tolist() == (rows.row // 12).tolist()


def test_a_pad_repeats_the_row_before_of_its_rank() -> None:
    schedule = Schedule(num_records=5, lanes=2, batch_size=2, world_size=2)
    assert [batches_of(schedule, rank) for rank in (0, 1)] == [[[0, 2], [4]], [[1, 3], [-1 - 3]]]


def test_more_ranks_than_records_pad_with_rows_of_others() -> None:
    schedule = Schedule(num_records=2, lanes=4, batch_size=3, world_size=4)
    assert [batches_of(schedule, rank) for rank in range(4)] == [[[0]], [[1]], [[-1]], [[-2]]]


def test_the_last_global_batch_is_dropped_on_every_rank_alike() -> None:
    schedule = Schedule(num_records=5, lanes=2, batch_size=3, world_size=2, drop_last=True)
    assert [schedule.num_batches(rank) for rank in (0, 1)] == [0, 0]


def brute_batches(schedule: Schedule, rank: int) -> list[list[int]]:
    """The model of a pass that begins at first_row and ends before stop_row."""
    result = []
    for start in range(schedule.first_row, schedule.stop_row, schedule.global_batch):
        rows = range(start, min(start + schedule.global_batch, schedule.stop_row))
        short = len(rows) < schedule.global_batch
        if short and (schedule.drop_last or (schedule.uneven == "drop" and len(rows) < schedule.world_size)):
            break
        mine = [p for p in rows if p % schedule.world_size == rank]
        if schedule.uneven == "pad" and len(mine) < -(-len(rows) // schedule.world_size):
            missing = next(p for p in range(rows.stop, rows.stop + schedule.world_size) if p % schedule.world_size == rank)
            row = missing - schedule.world_size
            mine.append(-1 - (row if row >= 0 else missing % schedule.stop_row))
        if mine:
            result.append(mine)
    return result


@pytest.mark.parametrize("uneven", ["pad", "drop", "allow"])
@pytest.mark.parametrize("drop_last", [False, True])
def test_a_pass_from_any_row_to_any_row_equals_the_brute_force(uneven: str, drop_last: bool) -> None:
    for first_row, num_rows, world_size, batch_size in product(range(9), (0, 1, 5, 12, 17, None), (1, 2, 3), (1, 2, 4)):
        schedule = Schedule(17, 6, batch_size, world_size, drop_last, uneven, num_rows=num_rows, first_row=first_row)
        for rank in range(world_size):
            assert batches_of(schedule, rank) == brute_batches(schedule, rank), (schedule, rank)


def test_a_pass_resumed_with_another_batch_size_goes_on_at_the_same_row() -> None:
    first = Schedule(num_records=40, lanes=4, batch_size=6, world_size=2).batch_rows(1, 0, 0, 2)
    rest = Schedule(num_records=40, lanes=4, batch_size=5, world_size=2, first_row=24)
    rows = rest.batch_rows(1, 0, 0, rest.num_batches(1))
    assert first.row.tolist() + rows.row[~rows.is_pad].tolist() == list(range(1, 40, 2))


@pytest.mark.parametrize("num_rows", [41, None])
def test_all_rows_are_delivered_where_no_fewer_are_asked_for(num_rows: int | None) -> None:
    assert batches_of(Schedule(40, 4, 16, num_rows=num_rows), 0) == batches_of(Schedule(40, 4, 16, num_rows=40), 0)


@pytest.mark.parametrize(
    ("changed", "text"),
    [
        ({"num_records": 0}, "num_records is 0, expected at least 1"),
        ({"lanes": 0}, "lanes is 0"),
        ({"batch_size": 0}, "batch_size is 0"),
        ({"world_size": 0}, "world_size is 0"),
        ({"first_row": -1}, "first_row is -1"),
        ({"num_rows": -1}, "num_rows is -1"),
        ({"uneven": "repeat"}, "uneven is 'repeat', expected one of 'pad', 'drop', 'allow'"),
        ({"world_size": 3}, "lanes=16 cannot be dealt evenly to world_size=3 ranks: use lanes=15 or 18"),
        ({"world_size": 32}, "use lanes=32$"),
    ],
)
def test_a_number_out_of_range_is_refused_with_the_numbers(changed: dict[str, Any], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Schedule(**{"num_records": 10, "lanes": 16, "batch_size": 4, **changed})


@pytest.mark.parametrize(("first_step", "num_steps"), [(-1, 1), (0, 4), (3, 1), (0, -1)])
def test_steps_beyond_the_epoch_are_refused(first_step: int, num_steps: int) -> None:
    with pytest.raises(ValueError, match="rank 0 has 3 batches"):
        Schedule(num_records=10, lanes=2, batch_size=4).batch_rows(0, 0, first_step, num_steps)


@pytest.mark.parametrize("rank", [-1, 2])
def test_a_rank_outside_the_world_is_refused(rank: int) -> None:
    with pytest.raises(ValueError, match=f"rank is {rank}, expected 0 to 1"):
        Schedule(num_records=10, lanes=2, batch_size=4, world_size=2).batch_rows(rank, 0, 0, 1)
