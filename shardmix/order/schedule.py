"""Which rows of the epoch make up which batch of which rank.

Row p of the epoch is in lane `lane_of_rows(p)` at position p div lanes. Global step t is rows [tB, (t+1)B), B = batch_size · world_size;
rank r takes the rows p with p mod world_size == r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]


class BatchRows(NamedTuple):
    """The rows of some consecutive batches of one rank, in batch order."""

    row: IntArray  # (rows,) number of the row in the epoch
    lane: IntArray  # (rows,)
    position: IntArray  # (rows,) place in the lane's order
    is_pad: NDArray[np.bool_]  # (rows,) repeats a row that is delivered elsewhere
    bounds: IntArray  # (batches + 1,) batch j is bounds[j] … bounds[j+1]-1


@dataclass(frozen=True)
class Schedule:
    """The batches of an epoch of `num_rows` rows; the same on every rank."""

    num_records: int  # n, the records of the whole epoch: what the lanes are cut from
    lanes: int
    batch_size: int
    world_size: int = 1
    drop_last: bool = False
    uneven: str = "pad"  # "pad" | "drop" | "allow"
    seed: int = 0  # seed and epoch only move rows where the global batch is smaller than lanes
    num_rows: int | None = None  # rows delivered: the first num_rows of the epoch (`take`); None is all
    first_row: int = 0  # global step 0 begins at this row (a pass resumed with another batch_size)

    def num_batches(self, rank: int) -> int:
        """Batches of one rank; the same for every rank unless uneven="allow"."""
        raise NotImplementedError

    def lane_of_rows(self, rows: IntArray, epoch: int) -> IntArray:
        """The lane of each row."""
        raise NotImplementedError

    def batch_rows(self, rank: int, epoch: int, first_step: int, num_steps: int) -> BatchRows:
        """The rows of the rank's batches first_step … first_step + num_steps - 1."""
        raise NotImplementedError
