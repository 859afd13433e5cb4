"""The laws of the order in integers, for whatever hypothesis thinks of: partition, one order, seek, equal ranks, small state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shardmix.order.plan import Plan
from shardmix.order.schedule import Schedule

pytestmark = pytest.mark.once

Address = tuple[int, int]


class Case(NamedTuple):
    """An order, and how its epoch is cut."""

    plan: Plan
    schedule: Schedule
    epoch: int


@st.composite
def cases(draw: st.DrawFn) -> Case:
    counts = [*draw(st.lists(st.integers(0, 60), max_size=6)), draw(st.integers(1, 60))]
    world_size = draw(st.sampled_from((1, 2, 3, 4)))
    lanes = world_size * draw(st.integers(1, 6))
    plan = Plan(
        counts=np.array(counts),
        lanes=lanes,
        cycle_length=draw(st.integers(1, 5)),
        block_length=draw(st.integers(1, 4)),
        shuffle_buffer_size=draw(st.sampled_from((0, lanes, 7 * lanes, 50 * lanes))),
        seed=draw(st.integers(0, 2**63 - 1)),
        shuffle=draw(st.booleans()),
        whole=np.array([draw(st.booleans()) for _ in counts]),
    )
    schedule = Schedule(
        num_records=plan.num_records,
        lanes=lanes,
        batch_size=draw(st.integers(1, 12)),
        world_size=world_size,
        drop_last=draw(st.booleans()),
        uneven=draw(st.sampled_from(("pad", "drop", "allow"))),
        seed=plan.seed,
        num_rows=draw(st.none() | st.integers(1, 200)),
    )
    return Case(plan, schedule, draw(st.integers(0, 9)))


def batches(case: Case, rank: int, first_step: int = 0) -> Iterator[tuple[list[Address], list[bool]]]:
    """The records of a rank's batches, and which of them are pads, as a worker that begins at a step finds them."""
    schedule = case.schedule
    rows = schedule.batch_rows(rank, case.epoch, first_step, schedule.num_batches(rank) - first_step)
    shard, record = case.plan.epoch(case.epoch).locate(rows.lane, rows.position)
    addresses = list(zip(shard.tolist(), record.tolist(), strict=True))
    for start, stop in pairwise(rows.bounds.tolist()):
        yield addresses[start:stop], rows.is_pad[start:stop].tolist()


def ranks(case: Case) -> list[list[tuple[list[Address], list[bool]]]]:
    return [list(batches(case, rank)) for rank in range(case.schedule.world_size)]


def delivered(case: Case) -> Counter[Address]:
    """How often each record is delivered over all ranks, pads left out."""
    return Counter(
        address
        for of_rank in ranks(case)
        for addresses, pads in of_rank
        for address, is_pad in zip(addresses, pads, strict=True)
        if not is_pad
    )


@settings(max_examples=80)
@given(cases())
def test_a_record_is_delivered_once_at_most_and_every_one_where_nothing_is_cut_off(case: Case) -> None:
    found = delivered(case)
    assert set(found.values()) <= {1}
    everything = {(shard, record) for shard, count in enumerate(case.plan.counts.tolist()) for record in range(count)}
    assert found.keys() <= everything
    lost = case.schedule.stop_row - len(found)
    rest = case.schedule.stop_row % case.schedule.global_batch
    dropped = case.schedule.drop_last or (case.schedule.uneven == "drop" and rest < case.schedule.world_size)
    assert lost == (rest if dropped else 0)
    if case.schedule.num_rows is None and not lost:
        assert found.keys() == everything


@settings(max_examples=80)
@given(cases())
def test_ranks_have_equally_many_batches(case: Case) -> None:
    of_ranks = ranks(case)
    sizes = [[len(addresses) for addresses, _ in of_rank] for of_rank in of_ranks]
    if case.schedule.uneven == "pad":
        assert all(each == sizes[0] for each in sizes)
    elif case.schedule.uneven == "drop":
        assert len({len(each) for each in sizes}) == 1
    assert max(map(len, sizes)) - min(map(len, sizes)) <= 1
    assert sum(sum(pads) for of_rank in of_ranks for _, pads in of_rank) < case.schedule.world_size
    assert all(size == case.schedule.batch_size for each in sizes for size in each[:-1])


@settings(max_examples=80)
@given(cases(), st.data())
def test_from_any_step_the_rest_is_the_same(case: Case, data: st.DataObject) -> None:
    rank = data.draw(st.integers(0, case.schedule.world_size - 1))
    whole = list(batches(case, rank))
    step = data.draw(st.integers(0, len(whole)))
    assert list(batches(case, rank, step)) == whole[step:]
    moved = replace(case.schedule, first_row=min(step * case.schedule.global_batch, case.schedule.stop_row))
    assert list(batches(case._replace(schedule=moved), rank)) == whole[step:]


@settings(max_examples=80)
@given(cases())
def test_the_rows_of_a_global_step_do_not_depend_on_the_number_of_ranks(case: Case) -> None:
    schedule = replace(case.schedule, uneven="pad")
    alone = replace(schedule, batch_size=schedule.global_batch, world_size=1)
    steps = zip(*ranks(case._replace(schedule=schedule)), strict=True)
    rows = [
        sorted(address for addresses, pads in step for address, is_pad in zip(addresses, pads, strict=True) if not is_pad)
        for step in steps
    ]
    assert rows == [sorted(addresses) for addresses, _ in batches(case._replace(schedule=alone), 0)]


@settings(max_examples=40)
@given(cases())
def test_without_shuffle_every_epoch_is_the_same(case: Case) -> None:
    plan = replace(case.plan, shuffle=False)
    whole = np.arange(case.schedule.stop_row)
    lanes, positions = whole % plan.lanes, whole // plan.lanes
    first, second = (plan.epoch(epoch).locate(lanes, positions) for epoch in (case.epoch, case.epoch + 1))
    assert all((one == other).all() for one, other in zip(first, second, strict=True))
