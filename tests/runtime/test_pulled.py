"""Worker queues: what waits is bounded, keeps its order, and lies in memory of its own when its slab is used again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardmix import MixLoader
from shardmix.format.columns import Column, ColumnSpec
from shardmix.runtime.handoff import Chunk
from shardmix.runtime.pulled import MapSupply, StreamSupply, WorkerQueue, own_chunk
from shardmix.runtime.requests import MapWork, StreamWork
from shardmix.runtime.samples import Structure
from tests.runtime.loading import Counting

SPEC = ColumnSpec("x", "int64", (), 0, False)
STRUCTURE = Structure((SPEC,), ("int",), 0)


def chunk_of(*numbers: int) -> Chunk:
    values = np.array(numbers, np.int64)
    return Chunk(STRUCTURE, [Column(SPEC, values, ())], np.arange(len(numbers)), np.empty((0, 4), np.int64))


def taken(queue: WorkerQueue, num_rows: int) -> list[int]:
    return [int(number) for chunk, first, stop in queue.take(num_rows) for number in chunk.columns[0].values[first:stop]]


def test_rows_leave_in_order_across_chunks() -> None:
    queue = WorkerQueue()
    for numbers in ([1, 2, 3], [], [4], [5, 6]):
        queue.put(chunk_of(*numbers))
    assert queue.num_rows == 6
    assert [taken(queue, count) for count in (2, 0, 3, 1)] == [[1, 2], [], [3, 4, 5], [6]]
    assert queue.num_rows == 0


def test_what_waits_survives_its_slab() -> None:
    queue, chunk = WorkerQueue(), chunk_of(1, 2, 3)
    queue.put(chunk)
    assert taken(queue, 1) == [1]
    queue.own()
    chunk.columns[0].values[:] = 9
    assert taken(queue, 2) == [2, 3]


def test_what_is_owned_is_not_copied_again() -> None:
    owned = own_chunk(chunk_of(1))
    assert own_chunk(owned) is owned


def test_batches_of_a_sampler_are_dealt_in_turn() -> None:
    supply = MapSupply(iter([[0, 1], [2, 3], [4, 5], [6]]), 2)
    assert supply.work(1, 1) == (MapWork([2, 3]), 2)
    assert supply.work(0, 3) == (MapWork([0, 1, 4, 5]), 4)
    assert supply.work(0, 1) is None
    assert supply.work(1, 9) == (MapWork([6]), 1)
    assert supply.work(1, 1) is None


def test_a_stream_is_asked_for_rows_without_end() -> None:
    supply = StreamSupply(StreamWork(0, epoch=4))
    assert [supply.work(0, 7) for _ in range(2)] == [(StreamWork(7, epoch=4), 7)] * 2


class Unlike(Counting):
    """Chunks of many lengths: samples of growing size."""

    def __iter__(self) -> Any:
        for number in super().__iter__():
            yield np.full(1 + number % 7 * 1000, number)


def only(worker: int) -> Callable[..., list[int]]:
    def schedule(step: int, remaining: Any) -> list[int]:
        live = [number for number, rows in enumerate(remaining) if rows != 0]
        return [worker if worker in live else live[0]] * 5

    return schedule


@pytest.mark.parametrize("worker", [0, 1])
@pytest.mark.parametrize("prefetch_factor", [1, 3])
@pytest.mark.usefixtures("nothing_left")
def test_a_schedule_that_names_one_worker_for_long_leaves_the_rows_of_the_other_whole(worker: int, prefetch_factor: int) -> None:
    """The other's rows wait while the slabs of both are used again and again."""
    loader = MixLoader(
        Unlike(200), batch_size=5, num_workers=2, schedule=only(worker), prefetch_factor=prefetch_factor, collate_fn=list
    )
    samples = [sample for batch in loader for sample in batch]
    assert all((sample == sample[0]).all() and len(sample) == 1 + sample[0] % 7 * 1000 for sample in samples)
    numbers = [int(sample[0]) for sample in samples]
    assert numbers[:100] == list(range(worker, 200, 2))
    assert numbers[100:] == list(range(1 - worker, 200, 2))


@pytest.mark.usefixtures("nothing_left")
def test_without_a_schedule_each_batch_takes_alike_from_every_worker() -> None:
    batches = [batch.tolist() for batch in MixLoader(Counting(30), batch_size=4, num_workers=3)]
    assert batches[0] == [0, 1, 2, 3]
    assert sum(batches, []) == list(range(30))
