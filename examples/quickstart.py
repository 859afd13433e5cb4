"""From nothing to batches: write a small corpus, declare what its records hold, load it with two workers.

Prints

    batch 0: images (100, 28, 28) torch.uint8, labels (100,) torch.int64, files 8, workers 2
    batch 1: images (100, 28, 28) torch.uint8, labels (100,) torch.int64, files 8, workers 2
    batch 2: images (50, 28, 28) torch.uint8, labels (50,) torch.int64, files 8, workers 2
    3 batches as promised, 250 records, each once: True
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import shardmix

NUM_RECORDS = 250


def write_corpus(folder: Path) -> None:
    """Eight shards. `write` takes an Example as a dict, or the payload of a record format of your own as bytes."""
    with shardmix.ShardWriter(folder / "train-{:05d}.tfrecord", num_shards=8) as writer:
        for i in range(NUM_RECORDS):
            image = np.full((28, 28), i % 256, np.uint8)
            writer.write({"image": image.tobytes(), "label": i})


def load(folder: Path) -> None:
    dataset = shardmix.ShardDataset(
        folder / "train-*.tfrecord",
        features={
            "image": shardmix.RawFeature((28, 28), "uint8"),
            "label": shardmix.FixedLenFeature((), "int64"),
        },
        with_source=True,
    )
    loader = shardmix.MixLoader(dataset, batch_size=100, num_workers=2)
    seen: list[int] = []
    for step, batch in enumerate(loader):
        image, label, source = batch["image"], batch["label"], batch["source"]
        files, workers = len(source.shard.unique()), len(source.worker.unique())
        print(
            f"batch {step}: images {tuple(image.shape)} {image.dtype}, labels {tuple(label.shape)} {label.dtype},"
            f" files {files}, workers {workers}"
        )
        seen += label.tolist()
    print(f"{len(loader)} batches as promised, {len(seen)} records, each once: {sorted(seen) == list(range(NUM_RECORDS))}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder))
        load(Path(folder))
