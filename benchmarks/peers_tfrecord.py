"""The tfrecord package under torch's DataLoader: its own way to read many files, each cut by its index between two workers."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tfrecord.torch.dataset import MultiTFRecordDataset
from torch.utils.data import DataLoader

from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, Batch, Workload

CHECKS = "none"
DECODES = True
NUM_WORKERS = 2
KINDS = {"int64": "int", "float32": "float", "bytes": "byte", "uint8": "byte"}


def collate(shapes: dict[str, tuple[int, ...] | None], samples: list[dict[str, Any]]) -> dict[str, Any]:
    """Columns of the samples, as cheaply as they can be had; shape None: bytes objects."""
    batch: dict[str, Any] = {}
    for name, shape in shapes.items():
        values = [sample[name] for sample in samples]
        if shape is None:
            batch[name] = values
        elif isinstance(values[0], bytes):
            array = np.frombuffer(bytearray().join(values), np.uint8)
            batch[name] = torch.from_numpy(array.reshape(len(values), *shape))
        else:
            batch[name] = torch.from_numpy(np.concatenate(values).reshape(len(values), *shape))
    return batch


class Peer:
    def __init__(self, workload: Workload) -> None:
        names = [Path(path).stem for path in workload.paths]
        features = workload.features
        dataset = MultiTFRecordDataset(
            f"{workload.folder}/{{}}.tfrecord",
            f"{workload.folder}/idx/{{}}.idx",
            dict.fromkeys(names, 1 / len(names)),
            {name: KINDS[feature.dtype] for name, feature in features.items()},
            shuffle_queue_size=BUFFER_SIZE // NUM_WORKERS,
            infinite=False,
        )
        shapes = {name: None if feature.dtype == "bytes" else feature.shape for name, feature in features.items()}
        self.loader: DataLoader[Any] = DataLoader(
            dataset, BATCH_SIZE, num_workers=NUM_WORKERS, collate_fn=partial(collate, shapes), persistent_workers=True
        )

    def epoch(self) -> Iterator[Batch]:
        return iter(self.loader)

    def stats(self) -> dict[str, Any]:
        return {}


def describe() -> str:
    return f"tfrecord {version('tfrecord')}, torch {torch.__version__}"
