"""Steps that a user's `schedule` chooses: chosen rows from chosen lanes of a ShardDataset.

Rule 1: `schedule(step, remaining)` is called once a step, in the main process, from step 0 on; `remaining` counts down what it
named. So it needs no copy in the workers: each request carries the lanes of its rows.
Rule 2: a lane that has ended and is named shortens the batch; when all have ended the epoch ends.
"""

from __future__ import annotations

import numpy as np

from ..format.columns import IntArray
from ..order.schedule import BatchRows, Schedule
from .pulled import UserSchedule, check_named
from .requests import ShardWork
from .source import workers_of_lanes


class ScheduledSteps:
    """The steps of one epoch of one rank. Lanes are numbered on their rank: number i is lane i · world_size + rank."""

    def __init__(self, user_schedule: UserSchedule, schedule: Schedule, epoch: int, rank: int, num_workers: int) -> None:
        self._user_schedule, self._schedule = user_schedule, schedule
        self._epoch, self._rank, self._num_workers = epoch, rank, num_workers
        lanes = np.arange(rank, schedule.lanes, schedule.world_size)
        self._left: IntArray = (schedule.stop_row - lanes + schedule.lanes - 1) // schedule.lanes
        self._taken: IntArray = np.zeros(len(lanes), np.int64)
        self._made = self._batch_rows([], [])

    def rows(self, first_step: int, num_steps: int) -> BatchRows:
        """The next steps; the caller goes through them once, in order."""
        lanes: list[IntArray] = []
        positions: list[IntArray] = []
        for step in range(first_step, first_step + num_steps):
            named = self._name(step)
            if not len(named):
                break
            lanes.append(named * self._schedule.world_size + self._rank)
            positions.append(self._take(named))
        self._made = self._batch_rows(lanes, positions)
        return self._made

    @staticmethod
    def _batch_rows(lanes: list[IntArray], positions: list[IntArray]) -> BatchRows:
        nothing = np.empty(0, np.int64)
        lane, position = np.concatenate([nothing, *lanes]), np.concatenate([nothing, *positions])
        bounds = np.cumsum([0, *map(len, lanes)])
        return BatchRows(np.arange(len(lane)), lane, position, np.zeros(len(lane), np.bool_), bounds)

    def work(self, worker: int, first_step: int, num_steps: int) -> ShardWork:
        """The worker's rows of the steps that `rows` gave last."""
        rows = self._made
        mine = workers_of_lanes(rows.lane, self._schedule.world_size, self._num_workers) == worker
        return ShardWork(
            self._epoch, self._rank, self._schedule, first_step, num_steps, rows.lane[mine], rows.position[mine]
        )

    def _name(self, step: int) -> IntArray:
        """The lanes that a step names and that have a row for it; none at the end of the epoch."""
        if not self._left.any() or (self._schedule.drop_last and self._left.sum() < self._schedule.batch_size):
            return np.empty(0, np.int64)
        wished = self._user_schedule(step, self._left.tolist())
        named = np.asarray(check_named(wished, len(self._left), self._schedule.batch_size, step), np.int64)
        named = named[_occurrence(named) < self._left[named]]
        if not len(named):
            raise ValueError(f"schedule: step {step} names only lanes that have ended; name one that has rows left")
        return named

    def _take(self, named: IntArray) -> IntArray:
        """Places in their lanes of the named rows; counts them off."""
        positions = self._taken[named] + _occurrence(named)
        counts = np.bincount(named, minlength=len(self._left))
        self._taken += counts
        self._left -= counts
        return positions


def _occurrence(numbers: IntArray) -> IntArray:
    """How often each number stood before it in the array."""
    order = np.argsort(numbers, kind="stable")
    runs = numbers[order]
    is_first = np.r_[True, runs[1:] != runs[:-1]][: len(runs)]
    starts = np.maximum.accumulate(np.where(is_first, np.arange(len(runs)), 0))
    occurrence = np.empty(len(numbers), np.int64)
    occurrence[order] = np.arange(len(runs)) - starts
    return occurrence
