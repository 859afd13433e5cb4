"""Hash words to 64 bits: the only source of randomness of the order.

Rule 1: every random choice is hashed from what it depends on; the first word names the use. Nothing is added to a seed.
Rule 2: integers only, so the numbers are the same on every machine and in every process.

The hash absorbs its words one by one into the finaliser of splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number
Generators, 2014). For a given prefix it is a bijection of the last word: numbers that differ there never collide.
"""

from __future__ import annotations

from operator import index

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
WordArray = NDArray[np.uint64]

# The uses of the hash: the first word. A number is never given to another use.
PARTS = 1  # seed, epoch, part: the permutation of the parts
KEYS = 2  # seed, epoch, lane, arrival: the keys of the shuffle buffer
SMALL_BATCH = 3  # seed, epoch, round, residue, place: the lanes of a round, where a global batch is smaller than the lanes
SPLIT = 4  # seed, level, shard: the offset from which a set takes its share of a shard
SAMPLE = 5  # seed, epoch, shard, record: the seed of a random transform
WORKERS = 6  # seed, epoch: the seed of the generators of worker processes
SAMPLER = 7  # initial seed, loader, epoch: the seed of a shuffling sampler
RESHARD = 8  # seed, turn, half: the rounds of a full shuffle (tools/full_shuffle.py)

MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15
_FIRST_FACTOR = 0xBF58476D1CE4E5B9
_SECOND_FACTOR = 0x94D049BB133111EB


def hash64(*words: int) -> int:
    """The hash of some words; a negative or longer word counts modulo 2**64.

    >>> hex(hash64(PARTS, 0, 0))
    '0xb18a02f46d8d86c3'
    """
    state = 0
    for word in words:
        state = _mix((state + _GAMMA + (index(word) & MASK)) & MASK)
    return state


def absorb(state: int | WordArray, words: IntArray | WordArray) -> WordArray:
    """The hashes of one more word after each state: `absorb(hash64(a, b), c)[i] == hash64(a, b, c[i])`. Shapes broadcast.

    >>> absorb(hash64(1, 2), np.arange(3))[2] == hash64(1, 2, 2)
    np.True_
    """
    if isinstance(state, int):
        mixed = words.astype(np.uint64)
        mixed += np.uint64((state + _GAMMA) & MASK)
    else:
        mixed = state + np.uint64(_GAMMA) + words.astype(np.uint64)
    _mix_in_place(mixed)
    return mixed


def permutation(size: int, *words: int) -> IntArray:
    """The numbers 0 … size-1 in the order of their hashes.

    >>> permutation(5, PARTS, 0, 0).tolist()
    [2, 4, 1, 0, 3]
    """
    return np.argsort(absorb(hash64(*words), np.arange(size)))  # no two hashes are equal: any sort is stable


def _mix(z: int) -> int:
    z = ((z ^ (z >> 30)) * _FIRST_FACTOR) & MASK
    z = ((z ^ (z >> 27)) * _SECOND_FACTOR) & MASK
    return z ^ (z >> 31)


def _mix_in_place(z: WordArray) -> None:
    shifted = np.empty_like(z)
    np.right_shift(z, np.uint64(30), out=shifted)
    z ^= shifted
    z *= np.uint64(_FIRST_FACTOR)
    np.right_shift(z, np.uint64(27), out=shifted)
    z ^= shifted
    z *= np.uint64(_SECOND_FACTOR)
    np.right_shift(z, np.uint64(31), out=shifted)
    z ^= shifted
