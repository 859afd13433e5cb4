"""The turns of a lane: equal to the model, and the same both ways."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from shardmix.order.interleave import Interleave

pytestmark = pytest.mark.once
CASES = [
    Interleave(cycle_length, block_length, short_length, num_long)
    for cycle_length, block_length, short_length in product((1, 2, 3, 4), (1, 2, 3, 7), (0, 1, 2, 5, 6, 9))
    for num_long in range(cycle_length)
]


def slots_of_all(turns: Interleave) -> list[tuple[int, int]]:
    slot, position = turns.slot_of(np.arange(turns.size))
    return list(zip(slot.tolist(), position.tolist(), strict=True))


def test_blocks_are_taken_in_turn_and_the_rest_in_slot_order() -> None:
    turns = Interleave(cycle_length=2, block_length=2, short_length=3, num_long=1)
    assert slots_of_all(turns) == [(0, 0), (0, 1), (1, 0), (1, 1), (0, 2), (0, 3), (1, 2)]


def test_turns_equal_the_model(order_model: Any) -> None:
    for turns in CASES:
        lengths = [turns.short_length + (slot < turns.num_long) for slot in range(turns.cycle_length)]
        tracks = [[(slot, 0, length)] for slot, length in enumerate(lengths)]
        assert slots_of_all(turns) == order_model.interleave(tracks, turns.block_length), turns


def test_arrival_of_is_the_inverse_of_slot_of() -> None:
    for turns in CASES:
        arrivals = np.arange(turns.size)
        assert turns.arrival_of(*turns.slot_of(arrivals)).tolist() == arrivals.tolist(), turns


def test_slot_counts_count_the_arrivals_of_each_slot() -> None:
    for turns in CASES:
        slots, _ = turns.slot_of(np.arange(turns.size))
        for arrival in range(turns.size + 1):
            expected = np.bincount(slots[:arrival], minlength=turns.cycle_length)
            assert turns.slot_counts(arrival).tolist() == expected.tolist(), (turns, arrival)


def test_arrivals_may_be_asked_for_in_any_order() -> None:
    turns = Interleave(cycle_length=2, block_length=2, short_length=3, num_long=1)
    slot, position = turns.slot_of(np.array([6, 0, 4, 3]))
    assert (slot.tolist(), position.tolist()) == ([1, 0, 0, 1], [2, 0, 2, 1])
