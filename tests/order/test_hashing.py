"""The hash: equal to the model, scalar and vectorised, and pinned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.order import hashing
from shardmix.order.hashing import absorb, hash64, permutation

pytestmark = pytest.mark.once
words = st.integers(min_value=-(2**63), max_value=2**63 - 1)


def test_hash_of_known_words_is_pinned() -> None:
    assert hash64() == 0
    assert hash64(0) == 0xE220A8397B1DCDAF  # splitmix64's first output from the state 0
    assert hash64(1, 2, 3) == 0x6AE515C1C0AC7E37
    assert hash64(hashing.KEYS, -1, 0) == hash64(hashing.KEYS, 2**64 - 1, 0)


@settings(deadline=None, derandomize=True)
@given(st.lists(words, max_size=6))
def test_hash_equals_the_model(order_model: Any, some_words: list[int]) -> None:
    assert hash64(*some_words) == order_model.hash64(*some_words)


@settings(deadline=None, derandomize=True)
@given(st.lists(words, max_size=4), st.lists(words, min_size=1, max_size=5))
def test_absorbing_an_array_equals_the_hash_of_each_word(prefix: list[int], last: list[int]) -> None:
    hashes = absorb(hash64(*prefix), np.array(last, dtype=np.int64))
    assert hashes.tolist() == [hash64(*prefix, word) for word in last]


def test_states_and_words_broadcast() -> None:
    hashes = absorb(absorb(hash64(7), np.arange(3))[:, None], np.arange(4)[None, :])
    assert hashes.tolist() == [[hash64(7, row, column) for column in range(4)] for row in range(3)]


def test_absorb_leaves_its_arguments_alone() -> None:
    state, last = np.arange(3, dtype=np.uint64), np.arange(3, dtype=np.uint64)
    absorb(state, last)
    absorb(0, last)
    assert state.tolist() == last.tolist() == [0, 1, 2]


def test_numpy_integers_hash_as_python_integers() -> None:
    assert hash64(np.int64(-3), np.uint64(5)) == hash64(-3, 5)  # type: ignore[arg-type]


def test_a_float_is_no_word() -> None:
    with pytest.raises(TypeError):
        hash64(1.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("size", [0, 1, 2, 5, 100])
def test_permutation_equals_the_model(order_model: Any, size: int) -> None:
    assert permutation(size, hashing.PARTS, 3, 4).tolist() == order_model.permutation(size, hashing.PARTS, 3, 4)


def test_uses_are_distinct_numbers_and_those_of_the_model(order_model: Any) -> None:
    uses = [hashing.PARTS, hashing.KEYS, hashing.SMALL_BATCH, hashing.SPLIT, hashing.SAMPLE]
    assert len(set(uses)) == len(uses)
    assert uses[:3] == [order_model.PARTS, order_model.KEYS, order_model.SMALL_BATCH]
