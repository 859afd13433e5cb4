"""The whole order in one place: a description that never changes, and the epoch that it yields.

Rule 1: a pure function of (counts, lanes, cycle_length, block_length, shuffle_buffer_size, seed, shuffle, whole, epoch).
Rule 2: equal row for row to the slow model of the design; the order is API, a change of it is a changelog entry.

Knows nothing of files, torch or processes.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


@dataclass(frozen=True)
class Plan:
    """What decides the order of every epoch."""

    counts: IntArray  # (shards,) records of each shard
    lanes: int
    cycle_length: int = 4
    block_length: int = 1
    shuffle_buffer_size: int = 16384  # the job's total; a lane has shuffle_buffer_size // lanes
    seed: int = 0
    shuffle: bool = True
    whole: NDArray[np.bool_] | None = None  # (shards,) True: never divided into parts (compressed)

    @property
    def num_records(self) -> int:
        """n, the records of an epoch, over all ranks."""
        raise NotImplementedError

    @property
    def effective_cycle_length(self) -> int:
        """cycle_length, or less where all non-empty shards are compressed and fewer than tracks."""
        raise NotImplementedError

    def inflation(self) -> float:
        """Bytes-inflated factor of an epoch because tracks begin inside whole shards (in records; 1.0 is none)."""
        raise NotImplementedError

    def epoch(self, epoch: int) -> EpochPlan:
        """The order of one epoch."""
        raise NotImplementedError


class EpochPlan:
    """One epoch: tracks, arrivals, lanes."""

    def lane_size(self, lane: int) -> int:
        """Records of a lane: num_records // lanes, one more for the first num_records % lanes."""
        raise NotImplementedError

    def addresses(self, lane: int, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """(shard, record) of some arrivals of a lane."""
        raise NotImplementedError

    def slot_counts(self, lane: int, arrival: int) -> IntArray:
        """(cycle_length,) how many records of each slot's track are among the first `arrival` arrivals of the lane."""
        raise NotImplementedError

    def slot_pieces(self, lane: int, slot: int, first: int, stop: int) -> list[tuple[int, int, int]]:
        """The records first … stop-1 of a slot's track as runs (shard, first record, stop record), to be read in sequence."""
        raise NotImplementedError

    def slot_of(self, lane: int, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """(slot, position in the slot's track) of some arrivals."""
        raise NotImplementedError

    def departures(self, lane: int, position: int = 0) -> Departures:
        """The lane's order from a position on."""
        raise NotImplementedError


class Departures:
    """A cursor over one lane's order: which arrivals leave the shuffle buffer next (order/shuffle.py).

    `taken_in`: arrivals 0 … taken_in-1 have been taken in so far; every one of them was returned, dropped by the seek, or is held.
    """

    position: int  # rows of the lane that have left
    taken_in: int

    def take(self, num_rows: int) -> IntArray:
        """The next arrivals to leave, in order; raises ValueError beyond the end of the lane."""
        raise NotImplementedError

    def held(self) -> IntArray:
        """Arrivals below `taken_in` that have not left, ascending: after a seek these must be read."""
        raise NotImplementedError
