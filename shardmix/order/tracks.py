"""Cut the epoch's line of records into tracks.

Rule 1: a plain shard counts as ceil(count / cap) equal parts, cap = max(1, ceil(n / 8T)); a whole (compressed) shard is one part.
Rule 2: the parts are laid end to end in the order of their hashes (seed, epoch); without shuffle, whole shards in listing order.
Rule 3: T tracks cut that line; their lengths differ by at most one, the longer first.

The tracks are never written out: a track is an interval of the line, and a place on the line is found in the table of parts. A
million shards cost 20 bytes each. Knows nothing of lanes, slots or the shuffle buffer.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from .hashing import PARTS, IntArray, permutation

PARTS_PER_TRACK = 8


@dataclass(frozen=True, eq=False)
class Tracks:
    """The line of an epoch: part j holds the places bounds[j] … bounds[j+1]-1; place i is record i + shift[j] of `shard[j]`."""

    num_tracks: int
    shard: NDArray[np.int32]  # (parts,)
    shift: IntArray  # (parts,)
    bounds: IntArray  # (parts + 1,)

    @property
    def num_records(self) -> int:
        """n, the length of the line."""
        return int(self.bounds[-1])

    def starts(self, tracks: IntArray) -> IntArray:
        """The places where some tracks begin; track T begins at n."""
        length, num_long = divmod(self.num_records, self.num_tracks)
        return tracks * length + np.minimum(tracks, num_long)

    def addresses(self, places: IntArray) -> tuple[IntArray, IntArray]:
        """(shard, record) at some places of the line, int64 (places,) each."""
        part = np.searchsorted(self.bounds, places, side="right") - 1
        return self.shard[part].astype(np.int64), self.shift[part] + places

    def pieces(self, starts: IntArray, stops: IntArray) -> tuple[IntArray, IntArray, IntArray, IntArray]:
        """Stretches of the line, none of them empty, as runs: (stretch, shard, first record, stop record) of each.

        The runs of a stretch are in the order of the line, and those of the first stretch come first.
        """
        low = np.searchsorted(self.bounds, starts, side="right") - 1
        num_parts = np.searchsorted(self.bounds, stops, side="left") - low
        stretch = np.repeat(np.arange(len(starts)), num_parts)
        part = np.arange(len(stretch)) + (low - np.cumsum(num_parts) + num_parts)[stretch]
        shift = self.shift[part]
        first = np.maximum(self.bounds[part], starts[stretch]) + shift
        stop = np.minimum(self.bounds[part + 1], stops[stretch]) + shift
        not_empty = first < stop
        if not not_empty.all():
            stretch, part, first, stop = stretch[not_empty], part[not_empty], first[not_empty], stop[not_empty]
        return stretch, self.shard[part].astype(np.int64), first, stop


def cut_tracks(
    counts: IntArray, num_tracks: int, seed: int, epoch: int, shuffle: bool = True, whole: NDArray[np.bool_] | None = None
) -> Tracks:
    """Lay the parts of the shards end to end and cut them into tracks.

    `counts` (shards,) are the records of each shard; `whole` (shards,) says which are not divided.

    >>> tracks = cut_tracks(np.array([3, 0, 4]), num_tracks=2, seed=0, epoch=0, shuffle=False)
    >>> stretch, shard, first, stop = tracks.pieces(np.array([0, 4]), np.array([4, 7]))
    >>> list(zip(stretch.tolist(), shard.tolist(), first.tolist(), stop.tolist()))
    [(0, 0, 0, 3), (0, 2, 0, 1), (1, 2, 1, 4)]
    """
    num_parts = _parts_of_shards(counts, num_tracks, shuffle, whole)
    shard = np.repeat(np.arange(len(counts), dtype=np.int32), num_parts)
    part = np.arange(len(shard))
    if shuffle:
        part = permutation(len(shard), PARTS, seed, epoch)
        shard = shard[part]
    part -= (np.cumsum(num_parts) - num_parts)[shard]  # numbered anew in each shard
    first = _bounds_of_parts(counts, num_parts, shard, part)
    part += 1
    sizes = _bounds_of_parts(counts, num_parts, shard, part)
    sizes -= first
    bounds = np.zeros(len(shard) + 1, dtype=np.int64)
    np.cumsum(sizes, out=bounds[1:])
    first -= bounds[:-1]
    return Tracks(num_tracks, shard, first, bounds)


def _parts_of_shards(counts: IntArray, num_tracks: int, shuffle: bool, whole: NDArray[np.bool_] | None) -> IntArray:
    """How many parts each shard counts as; an empty one none."""
    undivided = np.minimum(counts, 1)
    if not shuffle:
        return undivided
    cap = max(1, -(-int(counts.sum()) // (PARTS_PER_TRACK * num_tracks)))
    divided = -(-counts // cap)
    return divided if whole is None else np.where(whole, undivided, divided)


def _bounds_of_parts(counts: IntArray, num_parts: IntArray, shard: NDArray[np.int32], part: IntArray) -> IntArray:
    """count * part // num_parts of each shard named, without the large product."""
    divisor = np.maximum(num_parts, 1)
    rest = (counts % divisor)[shard]
    rest *= part
    rest //= divisor[shard]
    bounds = (counts // divisor)[shard]
    bounds *= part
    bounds += rest
    return bounds
