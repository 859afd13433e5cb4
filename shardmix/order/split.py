"""Split every shard's records into named sets, by arithmetic.

Rule 1: record r of a shard is in a set of fraction f from offset u iff floor((r+1)f + u) > floor(rf + u): evenly
    spread, to one record. u is hashed from (seed, level, shard).
Rule 2: the sets, sorted by name, are taken one after another: the first takes its share of the records, the next its share of
    those that remain, numbered anew, and the last takes the rest. So they are disjoint, together everything, and the order in
    which they are named does not matter. (Sets of three or more fractions, each by rule 1 from the shard's own numbers, cannot in
    general be disjoint, whatever the offsets.)
Rule 3: fractions and offsets are integers over 2**32, so nothing depends on how floats are rounded.
Rule 4: both ways are closed formulas: nothing is listed, whatever the number of records.

Knows nothing of epochs, lanes or rows: a set is planned as a corpus of its own counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction

import numpy as np

from .hashing import SPLIT, IntArray, absorb, hash64

UNIT_BITS = 32
UNIT = 1 << UNIT_BITS
MAX_SHARD_RECORDS = 1 << 31
_TOLERANCE = Fraction(1, 10**9)  # by which the fractions may miss 1: three times 0.333333333 is meant to be everything


class Split:
    """Named, disjoint sets of the records of every shard, together everything.

    >>> split = Split({"train": 0.75, "valid": 0.25})
    >>> {name: counts.tolist() for name, counts in split.counts(np.array([8, 3])).items()}
    {'train': [6, 2], 'valid': [2, 1]}
    >>> split.records("valid", np.array([0, 0, 1]), np.array([0, 1, 0])).tolist()
    [0, 4, 0]

    Raises TypeError for what is no mapping, ValueError where there are no sets, a fraction is not above 0 and at most 1, or their
    sum is not 1.
    """

    def __init__(self, fractions: Mapping[str, float | Fraction], seed: int = 0) -> None:
        if not isinstance(fractions, Mapping):
            raise TypeError(f"split: expected names and fractions, as in {{'train': 0.9, 'valid': 0.1}}, got {fractions!r:.60}")
        if not fractions:
            raise ValueError("split: no sets given, expected a name and a fraction of each")
        for name, fraction in fractions.items():
            if not 0 < fraction <= 1:
                raise ValueError(f"split: the fraction of {name!r} is {fraction!r}, expected more than 0 and at most 1")
        exact = {name: Fraction(fractions[name]) for name in sorted(fractions)}
        total = sum(exact.values(), Fraction(0))
        if abs(total - 1) > _TOLERANCE:
            raise ValueError(f"split: the fractions of {', '.join(map(repr, exact))} add up to {float(total)!r}, expected 1")
        self.names = tuple(exact)
        self.seed = seed
        self._shares = _shares_of_remainder(list(exact.values()))

    @property
    def numbers(self) -> list[int]:
        """All that the sets depend on besides their names: the seed, and the share of each set but the last, times 2**32."""
        return [self.seed, *self._shares]

    def counts(self, counts: IntArray) -> dict[str, IntArray]:
        """The records of each shard in each set, from those of the shards: int64 (shards,) each.

        Raises ValueError for a shard of 2**31 records or more.
        """
        if len(counts) and int(counts.max()) >= MAX_SHARD_RECORDS:
            shard = int(np.argmax(counts))
            raise ValueError(f"split: shard {shard} has {counts[shard]} records, expected less than {MAX_SHARD_RECORDS}")
        remaining = np.asarray(counts, dtype=np.int64)
        shards = np.arange(len(remaining))
        result = {}
        for level, name in enumerate(self.names[:-1]):
            taken = (remaining * self._shares[level] + self._offsets(level, shards)) >> UNIT_BITS
            result[name] = taken
            remaining = remaining - taken
        return {**result, self.names[-1]: remaining}

    def records(self, name: str, shards: IntArray, numbers: IntArray) -> IntArray:
        """The record numbers, in their shards, of the numbers-th records of the set `name`; int64, all of one shape.

        Raises KeyError for a name that is no set of this split.
        """
        if name not in self.names:
            raise KeyError(f"split: no set {name!r}, expected one of {', '.join(map(repr, self.names))}")
        level = self.names.index(name)
        record = numbers
        if level < len(self._shares):
            record = (((record + 1) << UNIT_BITS) - self._offsets(level, shards) - 1) // self._shares[level]
        for above in range(min(level, len(self._shares)) - 1, -1, -1):
            record = ((record << UNIT_BITS) + self._offsets(above, shards)) // (UNIT - self._shares[above])
        return record

    def _offsets(self, level: int, shards: IntArray) -> IntArray:
        """u of some shards, in units of 2**-32."""
        hashes = absorb(hash64(SPLIT, self.seed, level), shards)
        return (hashes >> np.uint64(64 - UNIT_BITS)).astype(np.int64)


def _shares_of_remainder(fractions: list[Fraction]) -> list[int]:
    """What each set but the last takes of the records that those before it left, in units of 2**-32."""
    shares = []
    for level in range(len(fractions) - 1):
        share = round(fractions[level] / sum(fractions[level:]) * UNIT)
        shares.append(min(max(share, 1), UNIT - 1))
    return shares
