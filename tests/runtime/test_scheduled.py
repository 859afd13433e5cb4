"""Steps that a user's schedule chooses over the lanes of a ShardDataset."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from shardmix.order.schedule import Schedule
from shardmix.runtime.requests import ShardWork
from shardmix.runtime.scheduled import ScheduledSteps

# 11 records in 4 lanes: 3, 3, 3, 2


def steps(schedule: Any, *, batch_size: int = 3, rank: int = 0, world_size: int = 1, num_workers: int = 2, **more: Any) -> Any:
    plan = Schedule(num_records=11, lanes=4, batch_size=batch_size, world_size=world_size, **more)
    return ScheduledSteps(schedule, plan, 5, rank, num_workers)


def rows_of(made: Any) -> list[tuple[int, int]]:
    return list(zip(made.lane.tolist(), made.position.tolist(), strict=True))


def test_a_row_is_the_next_of_the_lane_that_is_named() -> None:
    made = steps(lambda step, remaining: [[0, 0, 2], [3, 0, 2]][step]).rows(0, 2)
    assert rows_of(made) == [(0, 0), (0, 1), (2, 0), (3, 0), (0, 2), (2, 1)]
    assert made.bounds.tolist() == [0, 3, 6]


def test_remaining_counts_down_what_was_named() -> None:
    seen: list[Sequence[int]] = []

    def look(step: int, remaining: Sequence[int]) -> list[int]:
        seen.append(list(remaining))
        return [step, step, step]

    made = steps(look).rows(0, 9)
    assert seen == [[3, 3, 3, 2], [0, 3, 3, 2], [0, 0, 3, 2], [0, 0, 0, 2]]
    assert made.bounds.tolist() == [0, 3, 6, 9, 11]  # lane 3 has two rows: its batch is shorter, and the last


def test_rows_that_an_ended_lane_has_no_more_shorten_the_batch_at_their_places() -> None:
    made = steps(lambda step, remaining: [[3, 3, 0], [3, 0, 3]][step]).rows(0, 2)
    assert rows_of(made) == [(3, 0), (3, 1), (0, 0), (0, 1)]


def test_naming_only_lanes_that_have_ended_is_an_error() -> None:
    given = steps(lambda step, remaining: [3, 3, 3])
    with pytest.raises(ValueError, match="step 1 names only lanes that have ended"):
        given.rows(0, 2)


@pytest.mark.parametrize(
    ("named", "text"), [([0, 1], "names 2 rows, expected batch_size, 3"), ([0, 1, 4], "names 4, expected 0 … 3")]
)
def test_a_wrong_schedule_is_told_with_its_step(named: list[int], text: str) -> None:
    with pytest.raises(ValueError, match=f"schedule: step 0 {text}"):
        steps(lambda step, remaining: named).rows(0, 1)


def test_with_drop_last_the_epoch_ends_where_no_full_batch_is_left() -> None:
    made = steps(lambda step, remaining: [int(np.argmax(remaining))] * 3, drop_last=True).rows(0, 99)
    assert made.bounds.tolist() == [0, 3, 6, 9]


def test_lanes_are_numbered_on_their_rank() -> None:
    made = steps(lambda step, remaining: [0, 1, 1], rank=1, world_size=2).rows(0, 1)
    assert rows_of(made) == [(1, 0), (3, 0), (3, 1)]


@pytest.mark.parametrize("num_workers", [1, 2, 3])
def test_workers_are_asked_for_the_rows_of_the_lanes_that_they_host(num_workers: int) -> None:
    given = steps(lambda step, remaining: [3, 0, 1], num_workers=num_workers)
    given.rows(0, 1)
    found = []
    for worker in range(num_workers):
        work = given.work(worker, 0, 1)
        assert isinstance(work, ShardWork)
        assert work.lanes is not None
        assert all(lane % num_workers == worker for lane in work.lanes.tolist())
        found += work.lanes.tolist()
    assert sorted(found) == [0, 1, 3]
