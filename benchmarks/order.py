"""What the order costs: python benchmarks/order.py

Nanoseconds a row of the shuffle buffer, of addresses and of schedules, for lanes and takes as a worker has them; and the plan of
a corpus of a million shards and a billion records, with the memory that it takes.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from time import process_time

import numpy as np

from shardmix.order.plan import Plan
from shardmix.order.schedule import Schedule
from shardmix.order.shuffle import Departures

SIZE = 262_144  # records of a lane


def seconds(work: Callable[[], object], repeats: int = 5) -> float:
    """CPU time of the shortest of some runs: other processes of the machine count less than on the clock."""
    times = []
    for _ in range(repeats):
        began = process_time()
        work()
        times.append(process_time() - began)
    return min(times)


def stream(buffer: int, num_rows: int) -> None:
    cursor = Departures(SIZE, buffer, 0, 0, 0)
    for _ in range(SIZE // num_rows):
        cursor.take(num_rows)


def measure_buffer() -> None:
    print("shuffle buffer, ns a row for takes of 16, 128, 1024 rows; a seek to the middle in ms")
    for buffer in (0, 128, 512, 1024, 16_384):
        figures = [seconds(lambda b=buffer, n=num_rows: stream(b, n)) / SIZE * 1e9 for num_rows in (16, 128, 1024)]
        seek = seconds(lambda b=buffer: Departures(SIZE, b, 0, 0, 0, SIZE // 2)) * 1e3
        print(f"  N = {buffer:6}  " + "  ".join(f"{figure:5.1f}" for figure in figures) + f"   {seek:.2f} ms")


def measure_schedule() -> None:
    print("batch_rows of 8 batches, ns a row")
    for lanes, batch_size, world_size in ((16, 256, 1), (32, 64, 4), (16, 8, 1)):
        schedule = Schedule(10**7, lanes, batch_size, world_size)
        figure = seconds(lambda s=schedule: s.batch_rows(0, 0, 100, 8), 20) / (8 * batch_size) * 1e9
        print(f"  lanes {lanes}, batch_size {batch_size}, world_size {world_size}: {figure:.1f}")


def measure_plan() -> None:
    counts = np.random.default_rng(0).multinomial(10**9, np.full(10**6, 1e-6))
    print("1,000,000 shards, 1,000,000,000 records")
    print(f"  an epoch: {seconds(lambda: Plan(counts, lanes=16).epoch(3), 3):.3f} s")
    tracemalloc.start()
    epoch = Plan(counts, lanes=16).epoch(3)
    kept, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"  kept {kept / 1e6:.0f} MB, peak {peak / 1e6:.0f} MB")
    arrivals = epoch.departures(3, epoch.lane_size(3) // 2).take(1024)
    print(f"  addresses: {seconds(lambda: epoch.addresses(3, arrivals), 20) / 1024 * 1e9:.1f} ns a row")


if __name__ == "__main__":
    measure_buffer()
    measure_schedule()
    measure_plan()
