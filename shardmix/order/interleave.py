"""Interleave the tracks of a lane: which record of which slot is arrival i, by arithmetic.

Rule 1: a lane takes `block_length` records of each of its slots in turn.
Rule 2: in the last, short turn it takes the rest of each slot's track, in slot order; so every track ends together.

Both ways, (slot, position) from an arrival and back, cost the same wherever they begin: a seek replays nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from .hashing import IntArray


@dataclass(frozen=True)
class Interleave:
    """The turns of one lane. The first `num_long` of its tracks have `short_length` + 1 records, the others `short_length`.

    >>> turns = Interleave(cycle_length=2, block_length=2, short_length=3, num_long=1)
    >>> [array.tolist() for array in turns.slot_of(np.arange(7))]
    [[0, 0, 1, 1, 0, 0, 1], [0, 1, 0, 1, 2, 3, 2]]
    """

    cycle_length: int
    block_length: int
    short_length: int
    num_long: int

    @property
    def size(self) -> int:
        """Arrivals of the lane."""
        return self.cycle_length * self.short_length + self.num_long

    def slot_of(self, arrivals: IntArray) -> tuple[IntArray, IntArray]:
        """(slot, position in the slot's track) of some arrivals, int64 (arrivals,) each."""
        turn, rest = np.divmod(arrivals, self._per_turn)
        if self.block_length == 1:
            return rest, turn
        slot = rest // self.block_length
        position = turn * self.block_length + (rest - slot * self.block_length)
        late = arrivals >= self._whole
        if late.any():
            slot[late], position[late] = self._slot_of_last_turn(arrivals[late] - self._whole)
        return slot, position

    def arrival_of(self, slots: IntArray, positions: IntArray) -> IntArray:
        """The arrivals of some (slot, position): the inverse of `slot_of`."""
        turn = positions // self.block_length
        whole = turn * self._per_turn + slots * self.block_length + (positions - turn * self.block_length)
        before = slots * self._rest_length + np.minimum(slots, self.num_long)
        last = self._whole + before + (positions - self._whole_length)
        return np.where(positions < self._whole_length, whole, last)

    def slot_counts(self, arrivals: int | IntArray) -> IntArray:
        """How many records of each slot are among the first arrivals, as many as said: int64 (…, cycle_length)."""
        slots, upto = np.arange(self.cycle_length), np.asarray(arrivals, dtype=np.int64)[..., np.newaxis]
        turns, rest = np.divmod(np.minimum(upto, self._whole), self._per_turn)
        counts = turns * self.block_length + np.minimum(np.maximum(rest - slots * self.block_length, 0), self.block_length)
        if (upto > self._whole).any():
            late = upto - self._whole - slots * self._rest_length - np.minimum(slots, self.num_long)
            counts += np.minimum(np.maximum(late, 0), self._rest_length + (slots < self.num_long))
        return counts

    @cached_property
    def _per_turn(self) -> int:
        return self.cycle_length * self.block_length

    @cached_property
    def _whole_length(self) -> int:
        """Records of each track that leave in whole turns."""
        return self.short_length // self.block_length * self.block_length

    @cached_property
    def _whole(self) -> int:
        """Arrivals in whole turns."""
        return self._whole_length * self.cycle_length

    @cached_property
    def _rest_length(self) -> int:
        """Records that a short track has left for the last turn; a long one has one more."""
        return self.short_length - self._whole_length

    def _slot_of_last_turn(self, index: IntArray) -> tuple[IntArray, IntArray]:
        """(slot, position) of the index-th arrivals of the last turn."""
        rest = self._rest_length
        in_long = self.num_long * (rest + 1)
        is_long = index < in_long
        beyond = index - in_long
        slot = np.where(is_long, index // (rest + 1), self.num_long + beyond // max(rest, 1))
        position = np.where(is_long, index % (rest + 1), beyond % max(rest, 1))
        return slot, position + self._whole_length
