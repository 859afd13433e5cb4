"""The whole order in one place: a description that never changes, and the epoch that it yields.

Rule 1: a pure function of (counts, lanes, cycle_length, block_length, shuffle_buffer_size, seed, shuffle, whole, epoch).
Rule 2: equal row for row to the slow model of the design; the order is API, a change of it is a changelog entry.

The flow: counts → tracks (tracks.py) → arrivals of a lane (interleave.py) → its order (shuffle.py). Which lane a row of the
epoch is in is said by schedule.py. Knows nothing of files, torch or processes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .hashing import IntArray
from .interleave import Interleave
from .shuffle import Departures
from .tracks import cut_tracks

__all__ = ["Departures", "EpochPlan", "IntArray", "Plan", "Reads"]


@dataclass(frozen=True, eq=False)
class Plan:
    """What decides the order of every epoch.

    >>> plan = Plan(np.array([3, 0, 4]), lanes=2, cycle_length=1, shuffle=False)
    >>> epoch = plan.epoch(0)
    >>> epoch.addresses(1, epoch.departures(1).take(3))
    (array([2, 2, 2]), array([1, 2, 3]))

    Raises ValueError where a number is out of its range, there is no record at all, or the buffer has less than one record
    a lane.
    """

    counts: IntArray  # (shards,) records of each shard
    lanes: int
    cycle_length: int = 4
    block_length: int = 1
    shuffle_buffer_size: int = 16384  # the job's total; a lane has shuffle_buffer_size // lanes
    seed: int = 0
    shuffle: bool = True
    whole: NDArray[np.bool_] | None = None  # (shards,) True: never divided into parts (compressed)

    def __post_init__(self) -> None:
        for name, least in (("lanes", 1), ("cycle_length", 1), ("block_length", 1), ("shuffle_buffer_size", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"{name} is {getattr(self, name)!r}, expected at least {least}")
        object.__setattr__(self, "counts", _checked_counts(self.counts))
        if self.whole is not None:
            object.__setattr__(self, "whole", _checked_whole(self.whole, len(self.counts)))
        if self.shuffle and 0 < self.shuffle_buffer_size < self.lanes:
            raise ValueError(
                f"shuffle_buffer_size is {self.shuffle_buffer_size}, less than one record for each of the {self.lanes} lanes: "
                f"use at least {self.lanes}, or 0 for no buffer"
            )

    @property
    def num_records(self) -> int:
        """n, the records of an epoch, over all ranks."""
        return int(self.counts.sum())

    @property
    def lane_buffer_size(self) -> int:
        """N, the records of a lane's shuffle buffer; 0 without shuffle."""
        return self.shuffle_buffer_size // self.lanes if self.shuffle else 0

    @property
    def effective_cycle_length(self) -> int:
        """cycle_length, or less where all non-empty shards are compressed and fewer than tracks."""
        filled = self.counts > 0
        num_shards = int(filled.sum())
        if self.whole is None or num_shards >= self.lanes * self.cycle_length or not self.whole[filled].all():
            return self.cycle_length
        return max(1, num_shards // self.lanes)

    def inflation(self) -> float:
        """How often a record of the compressed shards is inflated in epoch 0: 1.0 where no track begins inside such a shard.

        A track that begins inside a whole shard inflates it from its start. Counted in records.
        """
        if self.whole is None or not self.counts[self.whole].any():
            return 1.0
        tracks = self.epoch(0).tracks
        starts = tracks.starts(np.arange(1, tracks.num_tracks))
        shard, record = tracks.addresses(starts[starts < self.num_records])
        return 1.0 + int(record[self.whole[shard]].sum()) / int(self.counts[self.whole].sum())

    def epoch(self, epoch: int) -> EpochPlan:
        """The order of one epoch. Raises ValueError for a negative one."""
        if epoch < 0:
            raise ValueError(f"epoch is {epoch!r}, expected at least 0")
        return EpochPlan(self, epoch)


class Reads(NamedTuple):
    """Records to be read, as runs; those of one track in sequence. All int64."""

    owner: IntArray  # (runs,) which of the lanes that were asked about
    slot: IntArray  # (runs,) of its track in that lane
    shard: IntArray  # (runs,)
    first: IntArray  # (runs,) the records first … stop-1 of the shard
    stop: IntArray  # (runs,)
    owner_of_record: IntArray  # (records,) in the order of the runs
    arrival: IntArray  # (records,) in the order of the runs


class EpochPlan:
    """One epoch: tracks, arrivals, lanes. Made in time linear in the shards; nothing grows with the records."""

    def __init__(self, plan: Plan, epoch: int) -> None:
        self.epoch = epoch
        self.lanes = plan.lanes
        self.cycle_length = plan.effective_cycle_length
        self.num_records = plan.num_records
        self.tracks = cut_tracks(plan.counts, plan.lanes * self.cycle_length, plan.seed, epoch, plan.shuffle, plan.whole)
        num_tracks = self.tracks.num_tracks
        starts = self.tracks.starts(np.arange(num_tracks))
        self._starts = starts.reshape(self.cycle_length, self.lanes)  # track slot · lanes + lane is a slot of that lane
        length, num_long = divmod(self.num_records, num_tracks)
        self._long_slots, self._longer_lanes = divmod(num_long, self.lanes)
        self._turns = [Interleave(self.cycle_length, plan.block_length, length, self._long_slots + longer) for longer in (0, 1)]
        self._buffer = plan.lane_buffer_size
        self._seed = plan.seed

    def lane_size(self, lane: int) -> int:
        """Records of a lane: num_records // lanes, one more for the first num_records % lanes."""
        self._check_lane(lane)
        return self.num_records // self.lanes + (lane < self.num_records % self.lanes)

    def addresses(self, lane: int, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """(shard, record) of some arrivals of a lane, int64 (arrivals,) each."""
        slot, position = self.slot_of(lane, arrivals)
        position += self._starts[slot, lane]
        return self.tracks.addresses(position)

    def addresses_of(self, lanes: IntArray, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """`addresses` of arrivals of many lanes: (shard, record) of arrival arrivals[i] of lane lanes[i]."""
        is_longer = lanes < self._longer_lanes
        slot, position = self._turns[0].slot_of(arrivals)
        if is_longer.any():
            slot[is_longer], position[is_longer] = self._turns[1].slot_of(arrivals[is_longer])
        return self.tracks.addresses(position + self._starts[slot, lanes])

    def slot_counts(self, lane: int, arrival: int) -> IntArray:
        """(cycle_length,) how many records of each slot's track are among the first `arrival` arrivals of the lane."""
        return self._interleave(lane).slot_counts(arrival)

    def reads(self, lanes: IntArray, first: IntArray, stop: IntArray) -> Reads:
        """What is to be read for the arrivals first[i] … stop[i]-1 of lane lanes[i], of all i at once."""
        before, after = self._slot_counts_of(lanes, first), self._slot_counts_of(lanes, stop)
        counts = after - before
        owner, slot = np.nonzero(counts)
        counts, before = counts[owner, slot], before[owner, slot]
        start = self._starts[slot, lanes[owner]] + before
        stretch, shard, begin, end = self.tracks.pieces(start, start + counts)
        each = np.repeat(np.arange(len(counts)), counts)
        position = np.arange(len(each)) + (before - np.cumsum(counts) + counts)[each]
        arrival = self._arrival_of(lanes[owner][each], slot[each], position)
        return Reads(owner[stretch], slot[stretch], shard, begin, end, owner[each], arrival)

    def reads_of(self, lane: int, arrivals: IntArray) -> Reads:
        """What is to be read for some arrivals of one lane, and none between them."""
        slot, position = self.slot_of(lane, arrivals)
        shard, record = self.addresses(lane, arrivals)
        by_track = np.lexsort((position, slot))
        key = np.stack([slot, shard, record])[:, by_track]
        step = np.diff(key)
        cuts = np.flatnonzero((step[0] != 0) | (step[1] != 0) | (step[2] != 1)) + 1
        slot, shard, first = key[:, [0, *cuts]]
        stop = key[2, [*(cuts - 1), -1]] + 1
        return Reads(np.zeros_like(slot), slot, shard, first, stop, np.zeros_like(by_track), arrivals[by_track])

    def slot_of(self, lane: int, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """(slot, position in the slot's track) of some arrivals."""
        return self._interleave(lane).slot_of(arrivals)

    def departures(self, lane: int, position: int = 0) -> Departures:
        """The lane's order from a position on. Raises ValueError where the lane has no such position."""
        return Departures(self.lane_size(lane), self._buffer, self._seed, self.epoch, lane, position)

    def locate(self, lanes: IntArray, positions: IntArray) -> tuple[IntArray, IntArray]:
        """(shard, record) of any rows, given by lane and position in it: for rows that no cursor stands at, such as pads.

        Costs a seek for each lane named, and the rows between the first and the last of each.
        """
        shard, record = np.empty(len(lanes), dtype=np.int64), np.empty(len(lanes), dtype=np.int64)
        for lane in np.unique(lanes).tolist():
            asked = np.flatnonzero(lanes == lane)
            first, last = int(positions[asked].min()), int(positions[asked].max())
            arrivals = self.departures(lane, first).take(last + 1 - first)
            shard[asked], record[asked] = self.addresses(lane, arrivals[positions[asked] - first])
        return shard, record

    def _slot_counts_of(self, lanes: IntArray, arrivals: IntArray) -> IntArray:
        """`slot_counts` of many lanes, int64 (lanes, cycle_length)."""
        is_longer = lanes < self._longer_lanes
        counts = self._turns[0].slot_counts(arrivals)
        if is_longer.any():
            counts[is_longer] = self._turns[1].slot_counts(arrivals[is_longer])
        return counts

    def _arrival_of(self, lanes: IntArray, slots: IntArray, positions: IntArray) -> IntArray:
        """The arrivals of some (lane, slot, position)."""
        is_longer = lanes < self._longer_lanes
        arrival = self._turns[0].arrival_of(slots, positions)
        if is_longer.any():
            arrival[is_longer] = self._turns[1].arrival_of(slots[is_longer], positions[is_longer])
        return arrival

    def _interleave(self, lane: int) -> Interleave:
        self._check_lane(lane)
        return self._turns[lane < self._longer_lanes]

    def _check_lane(self, lane: int) -> None:
        if not 0 <= lane < self.lanes:
            raise ValueError(f"lane {lane} asked for, expected 0 to {self.lanes - 1}")


def _checked_counts(counts: IntArray) -> IntArray:
    checked = np.array(counts, dtype=np.int64)
    if checked.ndim != 1:
        raise ValueError(f"counts have shape {checked.shape}, expected one number for each shard")
    if (checked < 0).any():
        shard = int(np.argmax(checked < 0))
        raise ValueError(f"shard {shard} has a count of {checked[shard]}, expected at least 0")
    if not checked.any():
        raise ValueError(f"no records: all of the {len(checked)} shards are empty, expected at least one record")
    checked.flags.writeable = False
    return checked


def _checked_whole(whole: NDArray[np.bool_], num_shards: int) -> NDArray[np.bool_]:
    checked = np.array(whole, dtype=np.bool_)
    if checked.shape != (num_shards,):
        raise ValueError(f"whole has shape {checked.shape}, expected ({num_shards},): one for each shard")
    checked.flags.writeable = False
    return checked
