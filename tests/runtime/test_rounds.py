"""Rounds: which batches of a sampler are loaded together, and what a resumed run leaves out."""

from __future__ import annotations

import pytest

from shardmix.runtime.feeds import Round
from shardmix.runtime.rounds import rounds_of_batch_sampler, rounds_of_sampler

BATCHES = [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


def test_as_many_batches_as_workers_form_a_round_and_the_last_round_is_short() -> None:
    assert list(rounds_of_sampler(BATCHES, 2, epoch=7)) == [
        Round([[0, 1], [2, 3]], [2, 2], 7, 0, 0),
        Round([[4, 5], [6, 7]], [2, 2], 7, 2, 0),
        Round([[8]], [1], 7, 4, 0),
    ]


def test_a_batch_of_a_batch_sampler_is_dealt_to_the_workers_and_stays_whole() -> None:
    assert list(rounds_of_batch_sampler([[5, 6, 7], [8]], 2, epoch=0)) == [
        Round([[5, 7], [6]], [3], 0, 0, 0),
        Round([[8], []], [1], 0, 1, 0),
    ]


@pytest.mark.parametrize("skip", range(6))
@pytest.mark.parametrize("num_workers", [1, 2, 3, 9])
def test_what_was_delivered_before_is_skipped_to_the_batch(skip: int, num_workers: int) -> None:
    """A round that was begun is loaded again, and only its later batches are delivered."""
    rounds = list(rounds_of_sampler(BATCHES, num_workers, 0, skip))
    delivered = [each.first_step + j for each in rounds for j in range(each.skip, len(each.sizes))]
    assert delivered == list(range(skip, 5))
    whole = {each.first_step: each.lists for each in rounds_of_sampler(BATCHES, num_workers, 0)}
    assert all(whole[each.first_step] == each.lists for each in rounds)
    single = list(rounds_of_batch_sampler(BATCHES, num_workers, 0, skip))
    assert [each.first_step for each in single] == list(range(skip, 5))


@pytest.mark.parametrize("cut", [rounds_of_sampler, rounds_of_batch_sampler])
def test_the_sampler_is_drawn_from_no_further_than_asked(cut: object) -> None:
    drawn: list[int] = []

    def draw() -> object:
        for number in range(100):
            drawn.append(number)
            yield [number]

    next(cut(draw(), 3, 0))  # type: ignore[operator]
    assert len(drawn) <= 3
