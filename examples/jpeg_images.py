"""JPEG images with a random transform: decode in the worker, flip by a seed that belongs to the record.

`sample_seed()` is a number of (seed, epoch, shard, record): the same record is transformed alike for any number of workers and
after a resume, and differently in the next epoch.

Prints

    epoch 0: image (12, 3, 24, 32) torch.uint8, label (12,)
    the same pixels with 0 and with 2 workers: True
    the same pixels in the next epoch: False
"""

from __future__ import annotations

import io
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image

import shardmix

FEATURES = {"jpeg": shardmix.FixedLenFeature((), "bytes"), "label": shardmix.FixedLenFeature((), "int64")}


def write_corpus(folder: Path) -> None:
    """Twelve images of a colour gradient each, 32 wide and 24 high."""
    gradient = np.linspace(0, 200, 32, dtype=np.uint8)
    with shardmix.ShardWriter(folder / "photos-{:05d}.tfrecord", num_shards=3) as writer:
        for label in range(12):
            pixels = np.empty((24, 32, 3), np.uint8)
            pixels[:] = gradient[None, :, None]
            pixels[..., 0] += label
            stream = io.BytesIO()
            Image.fromarray(pixels).save(stream, "JPEG")
            writer.write({"jpeg": stream.getvalue(), "label": label})


def decode_and_flip(example: dict[str, Any]) -> dict[str, Any]:
    """An example is a dict of numpy values and bytes; what is returned is collated as by torch."""
    pixels = np.array(Image.open(io.BytesIO(example["jpeg"])))  # (height, width, 3) uint8
    if np.random.default_rng(shardmix.sample_seed()).random() < 0.5:
        pixels = pixels[:, ::-1]
    return {"image": torch.from_numpy(np.ascontiguousarray(pixels.transpose(2, 0, 1))), "label": int(example["label"])}


def one_epoch(folder: Path, epoch: int, num_workers: int) -> dict[str, torch.Tensor]:
    dataset = shardmix.ShardDataset(folder / "photos-*.tfrecord", features=FEATURES, transform=decode_and_flip)
    dataset.set_epoch(epoch)
    (batch,) = shardmix.MixLoader(dataset, batch_size=12, num_workers=num_workers)
    return batch


def in_label_order(batch: dict[str, torch.Tensor]) -> torch.Tensor:
    return batch["image"][batch["label"].argsort()]


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_corpus(folder)
        first = one_epoch(folder, epoch=0, num_workers=0)
        print(f"epoch 0: image {tuple(first['image'].shape)} {first['image'].dtype}, label {tuple(first['label'].shape)}")
        again = one_epoch(folder, epoch=0, num_workers=2)
        print(f"the same pixels with 0 and with 2 workers: {torch.equal(first['image'], again['image'])}")
        later = one_epoch(folder, epoch=1, num_workers=2)
        print(f"the same pixels in the next epoch: {torch.equal(in_label_order(first), in_label_order(later))}")
