"""The time to the first batch: python benchmarks/first_batch.py

Fresh and resumed from the middle of an epoch, without workers and with two under each start method, by the default shuffle buffer
(16,384 records) and by a small one. From iter() to the batch: starting the workers and filling their buffers included, the import
of torch in this process not. Medians of some runs, on the corpus "small" in the page cache.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.workload import Workload, prepare
from shardmix import MixLoader, ShardDataset

BUFFERS = (1024, 16384)
WAYS: tuple[tuple[int, str | None], ...] = ((0, None), (2, "fork"), (2, "forkserver"), (2, "spawn"))


def make_loader(workload: Workload, buffer: int, num_workers: int, method: str | None) -> MixLoader:
    dataset = ShardDataset(workload.paths, features=workload.features, shuffle_buffer_size=buffer)
    return MixLoader(dataset, 256, num_workers=num_workers, multiprocessing_context=method)


def seconds_to_first(loader: MixLoader) -> float:
    began = time.perf_counter()
    batches = iter(loader)
    next(batches)
    took = time.perf_counter() - began
    batches.close()
    return took


def middle_of(loader: MixLoader) -> dict[str, Any]:
    """The state of a run half way through its epoch."""
    state = loader.state_dict()
    return state | {"rows": len(loader.dataset) // 2 // 256 * 256}


def measure(workload: Workload, buffer: int, num_workers: int, method: str | None, runs: int) -> tuple[float, float]:
    """Median seconds: (fresh, resumed)."""
    fresh, resumed = [], []
    for _ in range(runs):
        fresh.append(seconds_to_first(make_loader(workload, buffer, num_workers, method)))
        loader = make_loader(workload, buffer, num_workers, method)
        loader.load_state_dict(middle_of(loader))
        resumed.append(seconds_to_first(loader))
    return median(fresh), median(resumed)


def main() -> None:
    parser = argparse.ArgumentParser(description="The time to the first batch.")
    parser.add_argument("--size", type=float, default=1.0)
    parser.add_argument("--folder", type=Path, default=Path(__file__).parents[1] / "corpus" / "bench")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    workload = prepare("small", options.folder, options.size)
    print(f"{'first batch, ms':22}{'buffer':>10}{'fresh':>10}{'resumed':>10}")
    for num_workers, method in WAYS:
        for buffer in BUFFERS:
            fresh, resumed = measure(workload, buffer, num_workers, method, options.runs)
            title = f"{num_workers} workers{f', {method}' if method else ''}"
            print(f"{title:22}{buffer:>10,}{1e3 * fresh:>10.0f}{1e3 * resumed:>10.0f}")


if __name__ == "__main__":
    main()
