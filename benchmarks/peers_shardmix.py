"""shardmix: MixLoader over a ShardDataset, every CRC checked, workers kept over the epochs as a training run would."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import shardmix
from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, Batch, Workload
from shardmix import MixLoader, RawFeature, ShardDataset

CHECKS = "every byte"
DECODES = True
OWN_REPEATS = 20_000


class RawRecords(ShardDataset):
    """Records as they are: the cheapest `parse` there is."""

    def parse(self, record: memoryview) -> bytes:
        return bytes(record)


def normalise(sample: dict[str, Any]) -> dict[str, Any]:
    """A usual transform of an image: to floats, and to zero mean."""
    sample["image"] = (sample["image"].astype(np.float32) - 127.5) / 127.5
    return sample


class Peer:
    """`work`: "decode"; "parse": each record's bytes, by Python; "transform": 28 x 28 images one by one; "plain": as they are."""

    def __init__(self, workload: Workload, *, num_workers: int, batch_size: int = BATCH_SIZE, work: str = "decode") -> None:
        kind = RawRecords if work == "parse" else ShardDataset
        features = None if work == "parse" else workload.features
        if features is not None and work != "decode":
            features["image"] = RawFeature((28, 28), "uint8")
        dataset = kind(
            workload.paths,
            features=features,
            transform=normalise if work == "transform" else None,
            shuffle_buffer_size=BUFFER_SIZE,
        )
        self.work = work
        self.loader = MixLoader(dataset, batch_size, num_workers=num_workers, persistent_workers=num_workers > 0)

    def epoch(self) -> Iterator[Batch]:
        batches = iter(self.loader)
        return ({"record": batch} for batch in batches) if self.work == "parse" else batches

    def stats(self) -> dict[str, Any]:
        stats = dict(self.loader.stats())
        if self.work == "transform":
            stats["own_seconds_per_sample"] = seconds_of_transform()
        return stats


def seconds_of_transform() -> float:
    """CPU time of the user's own work on one sample, in memory that is used again."""
    image = np.zeros((28, 28), np.uint8)
    began = time.process_time()
    for _ in range(OWN_REPEATS):
        normalise({"image": image})
    return (time.process_time() - began) / OWN_REPEATS


def describe() -> str:
    return f"shardmix {shardmix.__version__}, backend {shardmix.backend}"
