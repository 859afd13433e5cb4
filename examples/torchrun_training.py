"""Training under torchrun, and a restart in mid-epoch on another number of ranks.

    python examples/torchrun_training.py
    torchrun --standalone --nproc-per-node=2 examples/torchrun_training.py

Nothing is said about ranks: they are found. The batch over all ranks has 16 rows; which records they are does not depend on the
number of ranks, so the lines are the same for 1, 2, 4 or 8 of them.

Prints

    epoch 0: 13 steps, 201 records, each once: True
    saved after step 5 of epoch 1
    resumed: epoch 1 goes on at row 80
    epoch 1: 8 steps, together with those before 201 records, each once: True
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

import shardmix

GLOBAL_BATCH = 16
NUM_RECORDS = 201


def write_corpus(folder: Path) -> None:
    with shardmix.ShardWriter(folder / "train-{:05d}.tfrecord", num_shards=7) as writer:
        for i in range(NUM_RECORDS):
            writer.write({"x": [i / NUM_RECORDS, 1.0], "id": i})


def make_loader(folder: Path, world_size: int) -> shardmix.MixLoader:
    features = {"x": shardmix.FixedLenFeature((2,), "float32"), "id": shardmix.FixedLenFeature((), "int64")}
    dataset = shardmix.ShardDataset(folder / "train-*.tfrecord", features=features, lanes=16, with_source=True)
    return shardmix.MixLoader(dataset, batch_size=GLOBAL_BATCH // world_size, num_workers=1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer, loader: shardmix.MixLoader) -> Iterator[list[int]]:
    """One step for each batch; yields the ids of the batch over all ranks."""
    for batch in loader:
        loss = (model(batch["x"]).squeeze(1) - batch["id"] / NUM_RECORDS).square().mean()
        optimizer.zero_grad()
        loss.backward()  # ranks wait for each other here: they have equally many batches
        optimizer.step()
        yield gather(batch["id"][~batch["source"].is_pad].tolist())


def gather(ids: list[int]) -> list[int]:
    if not dist.is_initialized():
        return ids
    of_ranks: list[list[int]] = [[] for _ in range(dist.get_world_size())]
    dist.all_gather_object(of_ranks, ids)
    return [number for of_rank in of_ranks for number in of_rank]


def is_whole(steps: list[list[int]]) -> bool:
    return sorted(number for ids in steps for number in ids) == list(range(NUM_RECORDS))


def run(folder: Path, rank: int, world_size: int) -> None:
    def say(line: str) -> None:
        if rank == 0:
            print(line)

    if rank == 0:
        write_corpus(folder)
    if world_size > 1:
        dist.barrier()
    layer = nn.Linear(2, 1)
    model = nn.parallel.DistributedDataParallel(layer) if world_size > 1 else layer
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    loader = make_loader(folder, world_size)
    steps = list(train(model, optimizer, loader))
    say(f"epoch 0: {len(steps)} steps, {sum(map(len, steps))} records, each once: {is_whole(steps)}")

    steps = []
    for step, ids in enumerate(train(model, optimizer, loader), 1):
        steps.append(ids)
        if step == 5:
            break
    if rank == 0:  # the state is the same on every rank
        (folder / "checkpoint.json").write_text(json.dumps(loader.state_dict()))
    say("saved after step 5 of epoch 1")
    if world_size > 1:
        dist.barrier()

    state = json.loads((folder / "checkpoint.json").read_text())
    loader = make_loader(folder, world_size)
    loader.load_state_dict(state)
    say(f"resumed: epoch {state['epoch']} goes on at row {state['rows']}")
    rest = list(train(model, optimizer, loader))
    steps += rest
    together = f"{sum(map(len, steps))} records, each once: {is_whole(steps)}"
    say(f"epoch {state['epoch']}: {len(rest)} steps, together with those before {together}")


def main() -> None:
    if "RANK" not in os.environ:
        with tempfile.TemporaryDirectory() as alone:
            run(Path(alone), 0, 1)
        return
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    shared = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(shared)
    folder = Path(str(shared[0]))
    run(folder, rank, world_size)
    dist.barrier()
    if rank == 0:
        shutil.rmtree(folder)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
