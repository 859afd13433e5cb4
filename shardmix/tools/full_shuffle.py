"""Where each record of a corpus goes in a full shuffle: a permutation that is never written out.

Rule: a pure function of (number of records, seed), by arithmetic on any of the numbers: no table, so no memory.

A Feistel network over the even number of bits that holds them, with the hash of order/hashing.py as its round function; a number
that falls outside goes round again (cycle walking), fewer than four times on average. Luby and Rackoff: How to Construct
Pseudorandom Permutations from Pseudorandom Functions, 1988; Black and Rogaway: Ciphers with Arbitrary Finite Domains, 2002.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..format.records import IntArray
from ..order.hashing import RESHARD, absorb, hash64

ROUNDS = 6


@dataclass(frozen=True)
class FullShuffle:
    """The places of `num_records` records after a full shuffle.

    >>> shuffle = FullShuffle(5, seed=0)
    >>> sorted(shuffle.places(np.arange(5)).tolist())
    [0, 1, 2, 3, 4]
    """

    num_records: int
    seed: int

    def places(self, numbers: IntArray) -> IntArray:
        """(numbers,) → (numbers,): where the records of these numbers go."""
        found = self._turn(numbers)
        outside = np.flatnonzero(found >= self.num_records)
        while len(outside):
            found[outside] = self._turn(found[outside])
            outside = outside[found[outside] >= self.num_records]
        return found

    def _turn(self, numbers: IntArray) -> IntArray:
        half_bits = max(1, -(-(self.num_records - 1).bit_length() // 2))
        shift, mask = np.uint64(half_bits), np.uint64((1 << half_bits) - 1)
        left, right = numbers.astype(np.uint64) >> shift, numbers.astype(np.uint64) & mask
        for turn in range(ROUNDS):
            left, right = right, left ^ (absorb(hash64(RESHARD, self.seed, turn), right) & mask)
        return ((left << shift) | right).astype(np.int64)
