"""Sets of records by arithmetic: the rule, disjoint, together everything, exact."""

from __future__ import annotations

from fractions import Fraction
from math import floor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.order.hashing import SPLIT, hash64
from shardmix.order.split import Split

pytestmark = pytest.mark.once


def records_of(split: Split, name: str, counts: list[int]) -> list[tuple[int, int]]:
    """(shard, record) of all records of a set, shard by shard."""
    taken = split.counts(np.array(counts, dtype=np.int64))[name]
    shards = np.repeat(np.arange(len(counts)), taken)
    numbers = np.concatenate([np.arange(count) for count in taken.tolist()])
    return list(zip(shards.tolist(), split.records(name, shards, numbers).tolist(), strict=True))


def test_the_first_set_follows_the_rule() -> None:
    fraction, counts = Fraction(round(Fraction(0.3) * 2**32), 2**32), [0, 1, 50, 7]
    expected = []
    for shard, count in enumerate(counts):
        offset = Fraction(hash64(SPLIT, 5, 0, shard) >> 32, 2**32)
        expected += [(shard, r) for r in range(count) if floor((r + 1) * fraction + offset) > floor(r * fraction + offset)]
    assert records_of(Split({"a": 0.3, "b": 0.7}, seed=5), "a", counts) == expected


@settings(deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 1000), min_size=1, max_size=5),
    st.lists(st.integers(0, 70), min_size=1, max_size=5),
    st.integers(0, 2**64),
)
def test_sets_are_disjoint_and_together_everything(weights: list[int], counts: list[int], seed: int) -> None:
    split = Split({f"set {i}": Fraction(weight, sum(weights)) for i, weight in enumerate(weights)}, seed)
    dealt = [address for name in split.names for address in records_of(split, name, counts)]
    assert sorted(dealt) == [(shard, record) for shard, count in enumerate(counts) for record in range(count)]


@settings(deadline=None, derandomize=True)
@given(st.floats(0.001, 0.999), st.integers(0, 2**31 - 1))
def test_a_set_has_its_fraction_of_a_shard_to_one_record(fraction: float, count: int) -> None:
    taken = Split({"a": fraction, "b": 1 - fraction}).counts(np.array([count]))
    assert abs(int(taken["a"][0]) - Fraction(fraction) * count) <= 1 + Fraction(count, 2**32)
    assert int(taken["a"][0] + taken["b"][0]) == count


def test_records_of_a_set_ascend_with_their_number() -> None:
    split = Split({"a": 0.2, "b": 0.5, "c": 0.3})
    for name in split.names:
        records = records_of(split, name, [40])
        assert records == sorted(set(records))


def test_the_largest_shard_is_divided_exactly() -> None:
    count = 2**31 - 1
    split = Split({"a": 0.9, "b": 0.07, "c": 0.03})
    ends = {}
    for name, taken in split.counts(np.array([count])).items():
        numbers = np.arange(int(taken[0]) - 2, int(taken[0]))
        ends[name] = split.records(name, np.zeros(2, dtype=np.int64), numbers).tolist()
    assert all(second < count for _, second in ends.values())
    assert {count - 1, count - 2} <= {record for pair in ends.values() for record in pair}


@pytest.mark.parametrize("numerator", [3, 5, 2**32 - 3, 2**32 - 5])
def test_records_on_the_very_edge_are_in_one_set(numerator: int) -> None:
    """Fractions of a few 2**-32, or all but these: where (j - u) / f is often a whole number."""
    fraction, largest, shards = Fraction(numerator, 2**32), 2**31 - 1, np.arange(40)
    split = Split({"a": fraction, "b": 1 - fraction})
    taken = split.counts(np.full(40, largest))
    for name in split.names:
        records = split.records(name, shards, taken[name] - 1).tolist()
        for shard, number, record in zip(shards.tolist(), taken[name].tolist(), records, strict=True):
            offset = Fraction(hash64(SPLIT, 0, 0, shard) >> 32, 2**32)
            before, after = floor(record * fraction + offset), floor((record + 1) * fraction + offset)
            assert (after > before) == (name == "a")
            assert (after if name == "a" else record + 1 - after) == number


def test_fractions_without_names_are_refused_with_an_example() -> None:
    with pytest.raises(TypeError, match=r"names and fractions, as in \{'train': 0.9, 'valid': 0.1\}, got \[0.9, 0.1\]"):
        Split([0.9, 0.1])  # type: ignore[arg-type]


def test_small_shards_are_represented_together() -> None:
    taken = Split({"train": 0.9, "valid": 0.1}).counts(np.full(1000, 3))
    assert abs(int(taken["valid"].sum()) - 300) < 60


def test_the_order_in_which_sets_are_named_does_not_matter() -> None:
    one, other = Split({"train": 0.9, "valid": 0.1}), Split({"valid": 0.1, "train": 0.9})
    assert records_of(one, "valid", [50, 3]) == records_of(other, "valid", [50, 3])


def test_seeds_give_other_sets() -> None:
    one, other = (Split({"train": 0.5, "valid": 0.5}, seed) for seed in (0, 1))
    assert records_of(one, "valid", [5] * 20) != records_of(other, "valid", [5] * 20)


def test_one_set_is_everything() -> None:
    assert records_of(Split({"all": 1.0}), "all", [2, 0, 1]) == [(0, 0), (0, 1), (2, 0)]


def test_a_split_is_pinned() -> None:
    counts = Split({"train": 0.8, "valid": 0.1, "test": 0.1}).counts(np.array([100, 7, 0, 1]))
    expected = {"test": [10, 0, 0, 0], "train": [80, 6, 0, 1], "valid": [10, 1, 0, 0]}
    assert {name: each.tolist() for name, each in counts.items()} == expected


@pytest.mark.parametrize(
    ("fractions", "text"),
    [
        ({}, "no sets given"),
        ({"a": 0.0, "b": 1.0}, "the fraction of 'a' is 0.0, expected more than 0"),
        ({"a": 1.2, "b": -0.2}, "the fraction of 'a' is 1.2"),
        ({"a": float("nan")}, "the fraction of 'a' is nan"),
        ({"a": 0.5, "b": 0.4}, "the fractions of 'a', 'b' add up to 0.9, expected 1"),
    ],
)
def test_fractions_that_are_no_partition_are_refused(fractions: dict[str, float], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        Split(fractions)


def test_three_thirds_are_meant_to_be_everything() -> None:
    assert len(records_of(Split(dict.fromkeys("abc", 0.3333333333)), "c", [30])) in (9, 10, 11)


def test_an_unknown_set_is_refused_with_the_known_ones() -> None:
    with pytest.raises(KeyError, match=r"no set 'test', expected one of 'train', 'valid'"):
        Split({"train": 0.9, "valid": 0.1}).records("test", np.array([0]), np.array([0]))


def test_a_shard_of_too_many_records_is_refused() -> None:
    with pytest.raises(ValueError, match="shard 1 has 2147483648 records"):
        Split({"a": 1.0}).counts(np.array([5, 2**31]))
