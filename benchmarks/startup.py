"""What it costs to begin, and to begin in the middle: python benchmarks/startup.py

1. A corpus of 1,000,000 shards and 1,000,000,000 records, with no data behind it: opened, planned, and sought into the middle of
   an epoch, all lanes in one process. Seconds on the clock, and the most memory above `import torch`.
2. The time to the first batch after a resume at half an epoch against that of a fresh start, and the records that were read.
3. What `state_dict()` costs, in microseconds.
"""

from __future__ import annotations

import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import shardmix
from shardmix.format.index import make_index
from shardmix.runtime import dataset as dataset_module

NUM_SHARDS, NUM_RECORDS = 1_000_000, 1_000_000_000
NUM_SMALL = 200_000


class Sizes(shardmix.ShardDataset):
    """A sample is the size of its record."""

    def parse_batch(self, records: list[memoryview]) -> dict[str, Any]:
        return {"size": np.array([len(record) for record in records])}


def peak_bytes() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measure_large() -> None:
    counts = np.random.default_rng(0).multinomial(NUM_RECORDS, np.full(NUM_SHARDS, 1 / NUM_SHARDS))
    before, began = peak_bytes(), time.perf_counter()
    index = make_index(counts, 1000)
    open_index, dataset_module.open_index = dataset_module.open_index, lambda *arguments, **settings: index
    try:
        loader = shardmix.MixLoader(Sizes("nothing", shuffle_buffer_size=16384), batch_size=256)
    finally:
        dataset_module.open_index = open_index
    marks = [("opened", time.perf_counter())]
    state = loader.state_dict()
    marks.append(("digest of the corpus", time.perf_counter()))
    loader.load_state_dict({**state, "rows": NUM_RECORDS // 2})
    plan = loader.dataset._open(1).plan
    epoch = plan.epoch(0)
    marks.append(("planned", time.perf_counter()))
    for lane in range(plan.lanes):
        cursor = epoch.departures(lane, NUM_RECORDS // 2 // plan.lanes)
        epoch.addresses(lane, cursor.held())
        epoch.addresses(lane, cursor.take(16))
    marks.append(("sought", time.perf_counter()))
    print(f"{NUM_SHARDS:,} shards, {NUM_RECORDS:,} records")
    for name, at in marks:
        print(f"  {name:24}{at - began:6.2f} s")
    print(f"  {'memory':24}{(peak_bytes() - before) / 1e6:6.0f} MB")


def write_corpus(folder: Path) -> str:
    payload = bytes(200)
    with shardmix.ShardWriter(folder / "{:05d}.tfrecord", num_shards=16) as writer:
        for _ in range(NUM_SMALL):
            writer.write(payload)
    return str(folder / "*.tfrecord")


def first_batch(pattern: str, state: dict[str, Any] | None, num_workers: int) -> Iterator[float]:
    """Seconds from the beginning of a pass to its first batch."""
    for _ in range(5):
        loader = shardmix.MixLoader(Sizes(pattern), batch_size=256, num_workers=num_workers)
        if state is not None:
            loader.load_state_dict(state)
        began = time.perf_counter()
        iterator = iter(loader)
        next(iterator)
        yield time.perf_counter() - began
        iterator.close()


def measure_resume(pattern: str) -> None:
    state = shardmix.MixLoader(Sizes(pattern), batch_size=256).state_dict()
    half = {**state, "rows": NUM_SMALL // 2}
    print(f"time to the first batch of {NUM_SMALL:,} records, buffer 16,384; the fastest of five")
    for num_workers in (0, 2):
        fresh, resumed = (min(first_batch(pattern, at, num_workers)) * 1e3 for at in (None, half))
        print(f"  {num_workers} workers: fresh {fresh:.0f} ms, resumed at half the epoch {resumed:.0f} ms")


def measure_state(pattern: str) -> None:
    loader = shardmix.MixLoader(Sizes(pattern), batch_size=256)
    print("state_dict(), the fastest of 1000")
    iterator = iter(loader)
    for name in ("before the first batch", "in a pass"):
        times = []
        for _ in range(1000):
            began = time.perf_counter()
            loader.state_dict()
            times.append(time.perf_counter() - began)
        print(f"  {name}: {min(times) * 1e6:.1f} us")
        next(iterator)


if __name__ == "__main__":
    torch.set_num_threads(1)
    measure_large()
    with tempfile.TemporaryDirectory() as folder:
        pattern = write_corpus(Path(folder))
        measure_resume(pattern)
        measure_state(pattern)
