"""Lightning: fit, validate and predict on two gloo processes, and a restart from a checkpoint in mid-epoch.

Needs the package `lightning`. It starts the second process by itself, asks the loader for its state when it saves a checkpoint,
and gives it back with `ckpt_path`. Its samplers for ranks are not needed, and it leaves a ShardDataset's loader alone.

Prints

    fit: 2 epochs of 13 steps, each record once an epoch: True
    checkpoint after step 18: epoch 1, row 80
    resumed: the 8 steps that were left, the same records: True
    validate: 37 records, each once: True
    predict: 37 predictions
"""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import warnings
from pathlib import Path
from typing import Any

import lightning
import torch
import torch.distributed as dist
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import nn

import shardmix

NUM_RANKS = 2
NUM_TRAIN, NUM_VALID = 200, 37
FEATURES = {"x": shardmix.FixedLenFeature((2,), "float32"), "id": shardmix.FixedLenFeature((), "int64")}


class Corpus(lightning.LightningDataModule):
    """A corpus to train on, and one to validate and predict on."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def prepare_data(self) -> None:  # on one process only; the others wait
        for name, num_records in (("train", NUM_TRAIN), ("valid", NUM_VALID)):
            with shardmix.ShardWriter(self.folder / f"{name}-{{:05d}}.tfrecord", num_shards=5) as writer:
                for i in range(num_records):
                    writer.write({"x": [i / num_records, 1.0], "id": i})

    def open(self, name: str, **settings: Any) -> shardmix.ShardDataset:
        shards = self.folder / f"{name}-*.tfrecord"
        return shardmix.ShardDataset(shards, features=FEATURES, lanes=16, with_source=True, **settings)

    def train_dataloader(self) -> shardmix.MixLoader:
        return shardmix.MixLoader(self.open("train"), batch_size=8, num_workers=1)

    def val_dataloader(self) -> shardmix.MixLoader:
        return shardmix.MixLoader(self.open("valid", shuffle=False), batch_size=4)

    def predict_dataloader(self) -> shardmix.MixLoader:
        return self.val_dataloader()


class Model(lightning.LightningModule):
    """Notes which records each step had, over all ranks."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.train_steps: list[list[int]] = []
        self.valid_ids: list[int] = []

    def training_step(self, batch: Any) -> Any:
        self.train_steps.append(gather_ids(batch))
        return (self.layer(batch["x"]).squeeze(1) - batch["id"] / NUM_TRAIN).square().mean()

    def validation_step(self, batch: Any) -> None:
        self.valid_ids += gather_ids(batch)  # without the rows that fill up the last batch

    def predict_step(self, batch: Any) -> Any:
        return self.layer(batch["x"]).squeeze(1)[~batch["source"].is_pad]

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def gather_ids(batch: Any) -> list[int]:
    of_ranks: list[Any] = [None] * NUM_RANKS
    dist.all_gather_object(of_ranks, batch["id"][~batch["source"].is_pad].tolist())
    return sorted(number for ids in of_ranks for number in ids)


def make_trainer(**settings: Any) -> lightning.Trainer:
    ranks = {"accelerator": "cpu", "devices": NUM_RANKS, "strategy": "ddp"}
    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    return lightning.Trainer(**{**ranks, **quiet, **settings})


def run(folder: Path) -> None:
    corpus, model = Corpus(folder), Model()
    saving = ModelCheckpoint(dirpath=folder, filename="{step}", every_n_train_steps=9, save_top_k=-1)
    trainer = make_trainer(max_epochs=2, limit_val_batches=0, callbacks=[saving])
    trainer.fit(model, datamodule=corpus)
    whole = model.train_steps
    epochs = [sorted(number for ids in whole[first : first + 13] for number in ids) for first in (0, 13)]
    say(trainer, f"fit: 2 epochs of {len(whole) // 2} steps, each record once an epoch: {epochs == 2 * [list(range(NUM_TRAIN))]}")

    path = folder / "step=18.ckpt"  # five steps into the second epoch
    (state,) = torch.load(path, weights_only=True)["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    say(trainer, f"checkpoint after step 18: epoch {state['epoch']}, row {state['rows']}")
    model = Model()
    trainer = make_trainer(max_epochs=2, limit_val_batches=0, enable_checkpointing=False)
    trainer.fit(model, datamodule=corpus, ckpt_path=path)
    is_same = model.train_steps == whole[18:]
    say(trainer, f"resumed: the {len(model.train_steps)} steps that were left, the same records: {is_same}")

    trainer = make_trainer(enable_checkpointing=False)
    trainer.validate(model, datamodule=corpus, verbose=False)
    is_whole = sorted(model.valid_ids) == list(range(NUM_VALID))
    say(trainer, f"validate: {len(model.valid_ids)} records, each once: {is_whole}")
    predictions = trainer.predict(model, datamodule=corpus)
    num_predictions = torch.tensor(sum(map(len, predictions or [])))
    dist.all_reduce(num_predictions)
    say(trainer, f"predict: {num_predictions} predictions")
    dist.barrier()


def say(trainer: lightning.Trainer, line: str) -> None:
    if trainer.is_global_zero:
        print(line)


if __name__ == "__main__":
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", module="lightning")
    is_first = "EXAMPLE_FOLDER" not in os.environ  # the process that Lightning starts beside this one inherits the folder
    folder = os.environ.setdefault("EXAMPLE_FOLDER", tempfile.mkdtemp() if is_first else "")
    try:
        run(Path(folder))
    finally:
        if is_first:
            shutil.rmtree(folder)
