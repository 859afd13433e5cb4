"""Batch memory: used again when a batch is gone, and never before."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import torch

from shardmix.runtime.memory import LATELY, MAX_IDLE, BatchMemory


def allocate(memory: BatchMemory, *sizes: int) -> list[Any]:
    return memory.allocate([((size,), "int64") for size in sizes])


def test_arrays_of_a_batch_do_not_overlap() -> None:
    arrays = allocate(BatchMemory(), 3, 0, 5)
    for j, array in enumerate(arrays):
        array[:] = j
    assert [array.tolist() for array in arrays] == [[0, 0, 0], [], [2, 2, 2, 2, 2]]


def test_memory_of_a_dropped_batch_is_used_again() -> None:
    memory = BatchMemory()
    for _ in range(10):
        allocate(memory, 100, 200)
    assert memory.num_allocated == 1


def test_the_smallest_view_keeps_the_memory_of_its_batch() -> None:
    memory = BatchMemory()
    first, second = allocate(memory, 100, 200)
    first[:], second[:] = 1, 2
    view = torch.from_numpy(second)[150:].view(5, 10)[1:, ::3]
    del first, second
    for _ in range(5):
        for array in allocate(memory, 100, 200):
            array[:] = 9
    assert (view == 2).all()
    num_allocated = memory.num_allocated
    del view, array
    for _ in range(5):
        allocate(memory, 100, 200)
    assert memory.num_allocated == num_allocated


def test_a_tensor_that_is_dropped_in_another_thread_gives_its_memory_back() -> None:
    memory = BatchMemory()
    held = [torch.from_numpy(array) for array in allocate(memory, 1000)]
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    allocate(memory, 1000)
    assert memory.num_allocated == 1


def test_batches_that_differ_a_little_share_memory() -> None:
    memory = BatchMemory()
    for size in (1000, 1050, 990, 1040):
        allocate(memory, size)
    assert memory.num_allocated == 1


def test_memory_that_is_far_too_large_is_let_go() -> None:
    memory = BatchMemory()
    allocate(memory, 10_000_000)
    for _ in range(LATELY + 1):
        allocate(memory, 10)
    assert memory.num_allocated == 2
    assert sum(buffer.size for buffer in memory._idle) < 1 << 20


def test_groups_of_several_sizes_share_memory() -> None:
    """As the first batches of a pass, one, then four together, and so on."""
    memory = BatchMemory()
    for size in (100_000, 400_000, 1_600_000, *[1_000, 100_000, 400_000, 1_600_000] * 10):
        allocate(memory, size)
    assert memory.num_allocated == 3


def test_few_idle_buffers_are_kept() -> None:
    memory = BatchMemory()
    batches = [allocate(memory, 100) for _ in range(3 * MAX_IDLE)]
    assert memory.num_allocated == 3 * MAX_IDLE
    batches.clear()
    assert len(memory._idle) == MAX_IDLE


def test_a_batch_outlives_the_pool() -> None:
    memory = BatchMemory()
    (array,) = allocate(memory, 100)
    array[:] = 7
    del memory
    other = np.empty(10_000)
    other[:] = 1
    assert array.tolist() == [7] * 100
