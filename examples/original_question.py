"""The question that shardmix answers, and both answers that it once got.

"Every batch of my DataLoader comes from one worker. I had expected one queue that all workers fill and batches are drawn from,
because mixing the source files in a batch is what matters." The expected first batch was items 0, 5, 1, 6, 2 from workers
0, 1, 0, 1, 0.

Answer 1 was to pool: small batches, one of each worker, put together. Answer 2 was a queue of single samples, from which a batch
takes what it wants.

Prints

    the question: first batch of the plain loader
        items [0, 1, 2, 3, 4] of workers [0, 0, 0, 0, 0]
    the question: first batch of MixLoader
        items [0, 5, 1, 6, 2] of workers [0, 1, 0, 1, 0]
        every item once: True
    answer 1: four workers that yield their own number 32 times, batches of 32
        plain loader: [32, 0, 0, 0] [0, 32, 0, 0] [0, 0, 32, 0] [0, 0, 0, 32]
        MixLoader:    [8, 8, 8, 8] [8, 8, 8, 8] [8, 8, 8, 8] [8, 8, 8, 8]
        pool_batches: [8, 8, 8, 8] [8, 8, 8, 8] [8, 8, 8, 8] [8, 8, 8, 8]
    answer 2: two samples of worker 0 for each one of worker 1
        [0, 0, 1, 0, 0, 1]
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info

import shardmix


def worker_number() -> int:
    info = get_worker_info()
    if info is None:
        raise RuntimeError("these datasets show workers: num_workers must be 1 or more")
    return info.id


class Items(Dataset[tuple[int, int]]):
    """Fifty items; item i is (i, the worker that made it)."""

    def __len__(self) -> int:
        return 50

    def __getitem__(self, i: int) -> tuple[int, int]:
        return i, worker_number()


class OwnNumber(IterableDataset[int]):
    """Each worker yields its own number, 32 times."""

    def __iter__(self) -> Iterator[int]:
        yield from [worker_number()] * 32


def two_for_one(step: int, remaining: Sequence[int | None]) -> list[int]:
    """Which worker each row of a batch comes from: a pure function of the step and of what is left."""
    return [0, 0, 1, 0, 0, 1]


def counts(batch: torch.Tensor) -> list[int]:
    return torch.bincount(batch, minlength=4).tolist()


def show(name: str, batches: Any) -> None:
    print(f"    {name:13}", *(counts(batch) for batch in batches))


def main() -> None:
    items, workers = next(iter(DataLoader(Items(), batch_size=5, num_workers=2)))
    print("the question: first batch of the plain loader")
    print(f"    items {items.tolist()} of workers {workers.tolist()}")

    batches = list(shardmix.MixLoader(Items(), batch_size=5, num_workers=2))
    items, workers = batches[0]
    print("the question: first batch of MixLoader")
    print(f"    items {items.tolist()} of workers {workers.tolist()}")
    print(f"    every item once: {sorted(i for items, _ in batches for i in items.tolist()) == list(range(50))}")

    print("answer 1: four workers that yield their own number 32 times, batches of 32")
    show("plain loader:", DataLoader(OwnNumber(), batch_size=32, num_workers=4))
    show("MixLoader:", shardmix.MixLoader(OwnNumber(), batch_size=32, num_workers=4))
    show("pool_batches:", shardmix.pool_batches(DataLoader(OwnNumber(), batch_size=8, num_workers=4)))

    print("answer 2: two samples of worker 0 for each one of worker 1")
    chosen = next(iter(shardmix.MixLoader(OwnNumber(), batch_size=6, num_workers=2, schedule=two_for_one)))
    print(f"    {chosen.tolist()}")


if __name__ == "__main__":
    main()
