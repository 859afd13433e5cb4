"""Which rows of the epoch make up which batch of which rank.

Rule 1: row p is at position p div lanes of a lane, and that is lane p mod lanes; but where the global batch B is smaller than the
    lanes, the lanes of one residue class mod gcd(lanes, B) are permuted in every full round of `lanes` rows (seed, epoch, round,
    class). Otherwise lanes 0-7 and 8-15 would never meet at B = 8.
Rule 2: global step t is rows [tB, (t+1)B), B = batch_size · world_size; rank r takes the rows p with p mod world_size == r, which
    are those of the lanes l with l mod world_size == r.
Rule 3: every rank has the same number of batches, unless uneven="allow". A pad repeats a row that is delivered elsewhere.

Knows nothing of shards, records or the shuffle buffer.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .hashing import SMALL_BATCH, IntArray, absorb, hash64

__all__ = ["BatchRows", "IntArray", "Schedule"]

UNEVEN = ("pad", "drop", "allow")


class BatchRows(NamedTuple):
    """The rows of some consecutive batches of one rank, in batch order."""

    row: IntArray  # (rows,) number of the row in the epoch
    lane: IntArray  # (rows,)
    position: IntArray  # (rows,) place in the lane's order
    is_pad: NDArray[np.bool_]  # (rows,) repeats a row that is delivered elsewhere
    bounds: IntArray  # (batches + 1,) batch j is bounds[j] … bounds[j+1]-1


@dataclass(frozen=True)
class Schedule:
    """The batches of an epoch of `num_rows` rows; the same on every rank.

    >>> Schedule(num_records=5, lanes=2, batch_size=2, world_size=2).batch_rows(rank=1, epoch=0, first_step=0, num_steps=2).row
    array([1, 3, 3])

    Raises ValueError where a number is out of its range, `uneven` is none of its three words, or `world_size` does not
    divide `lanes`.
    """

    num_records: int  # n, the records of the whole epoch: what the lanes are cut from
    lanes: int
    batch_size: int
    world_size: int = 1
    drop_last: bool = False  # drop the last global batch, on every rank, unless it has all its rows
    uneven: str = "pad"  # "pad" | "drop" | "allow": what ranks do whose share of the last global batch is smaller
    seed: int = 0  # seed and epoch only move rows where the global batch is smaller than lanes
    num_rows: int | None = None  # rows delivered: the first num_rows of the epoch (`take`); None is all
    first_row: int = 0  # global step 0 begins at this row (a pass resumed with another batch_size)

    def __post_init__(self) -> None:
        for name, least in (("num_records", 1), ("lanes", 1), ("batch_size", 1), ("world_size", 1), ("first_row", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"Schedule: {name} is {getattr(self, name)!r}, expected at least {least}")
        if self.num_rows is not None and self.num_rows < 0:
            raise ValueError(f"Schedule: num_rows is {self.num_rows!r}, expected at least 0, or None for all")
        if self.uneven not in UNEVEN:
            raise ValueError(f"Schedule: uneven is {self.uneven!r}, expected one of {', '.join(map(repr, UNEVEN))}")
        check_world_size(self.lanes, self.world_size)

    @property
    def global_batch(self) -> int:
        """B, the rows of a global step."""
        return self.batch_size * self.world_size

    @property
    def stop_row(self) -> int:
        """The rows delivered are those below."""
        return self.num_records if self.num_rows is None else min(self.num_rows, self.num_records)

    def num_batches(self, rank: int) -> int:
        """Batches of one rank; the same for every rank unless uneven="allow"."""
        full, rest = divmod(max(self.stop_row - self.first_row, 0), self.global_batch)
        if rest == 0 or self.drop_last:
            return full
        if self.uneven == "allow":
            return full + (self._first_own_row(rank, self.stop_row - rest) < self.stop_row)
        return full + (self.uneven == "pad" or rest >= self.world_size)

    def lane_of_rows(self, rows: IntArray, epoch: int) -> IntArray:
        """The lane of each row, int64 (rows,)."""
        classes = gcd(self.lanes, self.global_batch)
        lane = rows % self.lanes
        if self.global_batch >= self.lanes or classes == self.lanes:
            return lane
        moved = rows < self.num_records // self.lanes * self.lanes
        if moved.any():
            lane[moved] = self._permuted_lanes(rows[moved] // self.lanes, lane[moved], classes, epoch)
        return lane

    def batch_rows(self, rank: int, epoch: int, first_step: int, num_steps: int) -> BatchRows:
        """The rows of the rank's batches first_step … first_step + num_steps - 1, in one pass over arrays.

        Raises ValueError where the rank has no such batches.
        """
        if not 0 <= rank < self.world_size:
            raise ValueError(f"batch_rows: rank is {rank}, expected 0 to {self.world_size - 1}")
        last_step, num_batches = first_step + num_steps, self.num_batches(rank)
        if not 0 <= first_step <= last_step <= num_batches:
            raise ValueError(
                f"batch_rows: {num_steps} batches from step {first_step} on asked for, rank {rank} has {num_batches} batches"
            )
        start = self._first_own_row(rank, self.first_row + first_step * self.global_batch)
        stop = min(self.first_row + last_step * self.global_batch, self.stop_row)
        row = np.arange(start, stop, self.world_size, dtype=np.int64)
        is_pad = np.zeros(len(row), dtype=np.bool_)
        pad = self._find_pad(rank, stop) if num_steps and self.uneven == "pad" else None
        if pad is not None:
            row, is_pad = np.append(row, pad), np.append(is_pad, True)
        bounds = np.minimum(np.arange(num_steps + 1) * self.batch_size, len(row))
        return BatchRows(row, self.lane_of_rows(row, epoch), row // self.lanes, is_pad, bounds)

    def _first_own_row(self, rank: int, row: int) -> int:
        """The first row of the rank that is not before `row`."""
        return row + (rank - row) % self.world_size

    def _find_pad(self, rank: int, stop: int) -> int | None:
        """The row that fills the rank's share of the global batch that ends at `stop`; None if it has its full share."""
        size = (stop - self.first_row) % self.global_batch
        missing = self._first_own_row(rank, stop)
        if size == 0 or missing >= stop + -size % self.world_size:
            return None
        return missing - self.world_size if missing >= self.world_size else missing % self.stop_row

    def _permuted_lanes(self, rounds: IntArray, lane: IntArray, classes: int, epoch: int) -> IntArray:
        """The lanes that stand in full rounds at the places `lane`, each of a class permuted among themselves."""
        which, residue = np.divmod(lane, classes)
        groups, member = np.unique(rounds * classes + residue, return_inverse=True)
        state = absorb(absorb(hash64(SMALL_BATCH, self.seed, epoch), groups // classes), groups % classes)
        orders = np.argsort(absorb(state[:, None], np.arange(self.lanes // classes)[None, :]), axis=1)
        return residue + classes * orders[member, which]


def check_world_size(lanes: int, world_size: int) -> None:
    """Raise ValueError unless `world_size` divides `lanes`, naming the nearest numbers of lanes that it divides."""
    if lanes % world_size:
        below, above = lanes // world_size * world_size, -(-lanes // world_size) * world_size
        nearest = f"{below} or {above}" if below else f"{above}"
        raise ValueError(f"lanes={lanes} cannot be dealt evenly to world_size={world_size} ranks: use lanes={nearest}")
