"""Accelerate: prepare, accumulate, gather_for_metrics, save_state and load_state.

    python examples/accelerate_training.py
    torchrun --standalone --nproc-per-node=2 examples/accelerate_training.py      # or accelerate launch

Needs the package `accelerate`. `prepare` leaves the loader as it is: it finds its ranks by itself, and tells Accelerate which
batch is the last. `save_state` and `load_state` include it. With more than one rank the last batch may repeat a row, so that all
have equally many; `source.is_pad` marks it, and is gathered with the metrics.

Prints

    prepare gives the same loader: True
    epoch 0: 13 batches, 4 optimizer steps, the last with the one batch that was left
    gathered 201 predictions, each record once: True
    epoch 1, after load_state: the same records as without a break: True
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import ProjectConfiguration, broadcast_object_list
from torch import nn

import shardmix

GLOBAL_BATCH = 16
NUM_RECORDS = 201


def write_corpus(folder: Path) -> None:
    with shardmix.ShardWriter(folder / "train-{:05d}.tfrecord", num_shards=7) as writer:
        for i in range(NUM_RECORDS):
            writer.write({"x": [i / NUM_RECORDS, 1.0], "id": i})


def make_loader(folder: Path, num_ranks: int) -> shardmix.MixLoader:
    features = {"x": shardmix.FixedLenFeature((2,), "float32"), "id": shardmix.FixedLenFeature((), "int64")}
    dataset = shardmix.ShardDataset(folder / "train-*.tfrecord", features=features, lanes=16, with_source=True)
    return shardmix.MixLoader(dataset, batch_size=GLOBAL_BATCH // num_ranks, num_workers=1)


def gather_ids(accelerator: Accelerator, batch: Any) -> list[int]:
    """The ids of a batch over all ranks, without rows that fill up the last one."""
    ids, is_pad = accelerator.gather_for_metrics((batch["id"], batch["source"].is_pad))
    return sorted(ids[~is_pad].tolist())


def run(accelerator: Accelerator, folder: Path) -> None:
    if accelerator.is_main_process:
        write_corpus(folder)
    accelerator.wait_for_everyone()
    model = nn.Linear(2, 1)
    made = make_loader(folder, accelerator.num_processes)
    model, optimizer, loader = accelerator.prepare(model, torch.optim.SGD(model.parameters(), lr=0.1), made)
    accelerator.print(f"prepare gives the same loader: {loader is made}")

    ids: list[int] = []
    num_steps = 0
    for batch in loader:
        with accelerator.accumulate(model):
            loss = (model(batch["x"]).squeeze(1) - batch["id"] / NUM_RECORDS).square().mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        num_steps += accelerator.sync_gradients
        ids += gather_ids(accelerator, batch)
    accelerator.print(
        f"epoch 0: {len(loader)} batches, {num_steps} optimizer steps, the last with the one batch that was left"
    )
    accelerator.print(f"gathered {len(ids)} predictions, each record once: {sorted(ids) == list(range(NUM_RECORDS))}")

    steps = []
    for step, batch in enumerate(loader):
        steps.append(gather_ids(accelerator, batch))
        if step == 4:
            accelerator.save_state(str(folder / "state"))
    accelerator.load_state(str(folder / "state"))
    again = [gather_ids(accelerator, batch) for batch in loader]
    accelerator.print(f"epoch 1, after load_state: the same records as without a break: {again == steps[5:]}")


if __name__ == "__main__":
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=4, project_config=ProjectConfiguration())
    shared = broadcast_object_list([tempfile.mkdtemp() if accelerator.is_main_process else None])
    try:
        run(accelerator, Path(str(shared[0])))
        accelerator.wait_for_everyone()
    finally:
        if accelerator.is_main_process:
            shutil.rmtree(str(shared[0]))
        accelerator.end_training()
