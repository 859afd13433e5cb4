"""Why shardmix exists, in numbers: one epoch over a corpus sorted by label, with a plain DataLoader and with MixLoader.

    make demo

Writes 50,000 small images of 100 labels to 24 uneven TFRecord shards, sorted by label as exports often are, and trains the same
small model on them twice. The plain loader is the usual one: every worker reads its files one after another through a shuffle
buffer of its own. Either loader may hold a tenth of the corpus in its shuffle buffers, over all workers.
"""

from __future__ import annotations

import argparse
import tempfile
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info
from tqdm import tqdm

import shardmix

FEATURES = {"image": shardmix.RawFeature((28, 28), "uint8"), "label": shardmix.FixedLenFeature((), "int64")}


@dataclass(frozen=True)
class Setup:
    """What the demo is run with."""

    records: int = 50_000
    labels: int = 100
    shards: int = 24
    shuffle_buffer_size: int = 5_000
    batch_size: int = 256
    workers: int = 4
    seed: int = 0


@dataclass(frozen=True)
class Result:
    """One epoch: what a batch held, on average over all full batches, and what the model had learned after it."""

    name: str
    files: float
    labels: float
    workers: float
    accuracy: float


# --- The data ----------------------------------------------------------------------------------------------------------------


def draw_images(labels: np.ndarray, num_labels: int, rng: np.random.Generator) -> np.ndarray:
    """A faint pattern per label under heavy noise: (records, 28, 28) uint8."""
    patterns = np.random.default_rng(12).normal(0, 18, (num_labels, 28, 28)).astype(np.float32)
    noise = 64 * rng.standard_normal((len(labels), 28, 28), dtype=np.float32)
    return np.clip(128 + patterns[labels] + noise, 0, 255).astype(np.uint8)


def write_corpus(folder: Path, setup: Setup) -> list[int]:
    """Write the shards, sorted by label and of uneven sizes (the largest about five times the smallest); returns the sizes."""
    rng = np.random.default_rng(setup.seed)
    labels = np.arange(setup.records) * setup.labels // setup.records
    weights = rng.uniform(1, 5, setup.shards)
    bounds = np.rint(np.cumsum([0, *weights]) / weights.sum() * setup.records).astype(int)
    with tqdm(total=setup.records, desc="writing the corpus", unit=" records") as bar:
        for shard, (first, stop) in enumerate(pairwise(bounds)):
            images = draw_images(labels[first:stop], setup.labels, rng)
            with shardmix.ShardWriter(folder / f"train-{shard:02d}-{{}}.tfrecord", num_shards=1) as writer:
                for image, label in zip(images, labels[first:stop], strict=True):
                    writer.write({"image": image.tobytes(), "label": int(label)})
            bar.update(int(stop - first))
    return [int(size) for size in np.diff(bounds)]


# --- The two loaders ---------------------------------------------------------------------------------------------------------


class FilesInTurn(IterableDataset[dict[str, Any]]):
    """The usual way: worker w of W reads files w, w + W, … one after another through a shuffle buffer of its own.

    A worker's buffer is its share of `shuffle_buffer_size`, so that all of them hold as many records as MixLoader's do.
    """

    def __init__(self, folder: Path, shuffle_buffer_size: int, seed: int) -> None:
        self.paths = sorted(folder.glob("*.tfrecord"))
        self.shuffle_buffer_size = shuffle_buffer_size
        self.seed = seed

    def __iter__(self) -> Iterator[dict[str, Any]]:
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info is not None else (0, 1)
        rng = np.random.default_rng([self.seed, worker])
        return shuffle(self._samples(worker, num_workers), self.shuffle_buffer_size // num_workers, rng)

    def _samples(self, worker: int, num_workers: int) -> Iterator[dict[str, Any]]:
        order = np.random.default_rng(self.seed).permutation(len(self.paths))  # the same for every worker
        for number in order[worker::num_workers]:
            for example in shardmix.read_examples(self.paths[number], FEATURES):
                yield {**example, "file": int(number), "worker": worker}


def shuffle(items: Iterable[Any], size: int, rng: np.random.Generator) -> Iterator[Any]:
    """The classic shuffle buffer: filled first, then each item that comes in replaces one at random."""
    buffer: list[Any] = []
    for item in items:
        if len(buffer) < size:
            buffer.append(item)
            continue
        place = int(rng.integers(size))
        leaving, buffer[place] = buffer[place], item
        yield leaving
    for place in rng.permutation(len(buffer)):
        yield buffer[place]


def plain_loader(folder: Path, setup: Setup) -> DataLoader[Any]:
    dataset = FilesInTurn(folder, setup.shuffle_buffer_size, setup.seed)
    return DataLoader(dataset, setup.batch_size, num_workers=setup.workers)


def mix_loader(folder: Path, setup: Setup, num_workers: int) -> shardmix.MixLoader:
    dataset = shardmix.ShardDataset(
        folder / "train-*.tfrecord",
        features=FEATURES,
        shuffle_buffer_size=setup.shuffle_buffer_size,
        seed=setup.seed,
        with_source=True,
    )
    return shardmix.MixLoader(dataset, setup.batch_size, num_workers=num_workers)


# --- One epoch ---------------------------------------------------------------------------------------------------------------


def train(name: str, loader: DataLoader[Any], setup: Setup) -> Result:
    """One epoch of a small model, counting what each batch holds."""
    torch.manual_seed(setup.seed)
    torch.set_num_threads(1)  # enough for so small a model; the other cores are the workers'
    model = torch.nn.Sequential(torch.nn.Linear(28 * 28, 128), torch.nn.ReLU(), torch.nn.Linear(128, setup.labels))
    optimizer = torch.optim.Adam(model.parameters(), lr=3e-3)
    held = []
    with tqdm(total=setup.records, desc=name, unit=" records") as bar:
        for batch in loader:
            loss = torch.nn.functional.cross_entropy(model(as_floats(batch["image"])), batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            bar.update(len(batch["label"]))
            if len(batch["label"]) == setup.batch_size:
                held.append([len(set(values.tolist())) for values in (file_of(batch), batch["label"], worker_of(batch))])
    files, labels, workers = np.mean(held, axis=0).tolist()
    return Result(name, files, labels, workers, measure_accuracy(model, setup))


def as_floats(images: torch.Tensor) -> torch.Tensor:
    return (images.reshape(len(images), -1).float() - 128) / 64


def file_of(batch: dict[str, Any]) -> torch.Tensor:
    return batch["source"].shard if "source" in batch else batch["file"]


def worker_of(batch: dict[str, Any]) -> torch.Tensor:
    return batch["source"].worker if "source" in batch else batch["worker"]


def measure_accuracy(model: torch.nn.Module, setup: Setup) -> float:
    """The share of right answers on images that were not in the corpus."""
    rng = np.random.default_rng([setup.seed, 1])
    labels = rng.integers(setup.labels, size=5_000)
    images = torch.from_numpy(draw_images(labels, setup.labels, rng))
    with torch.no_grad():
        return float((model(as_floats(images)).argmax(1).numpy() == labels).mean())


def classic_labels(sizes: list[int], setup: Setup) -> float:
    """Labels per batch of the classic buffer over all files read in turn, a record of each: one process, every file open."""
    labels = np.arange(setup.records) * setup.labels // setup.records
    turn = np.concatenate([np.arange(size) for size in sizes])
    interleaved = labels[np.argsort(turn, kind="stable")]
    order = np.fromiter(shuffle(interleaved, setup.shuffle_buffer_size, np.random.default_rng(setup.seed)), np.int64)
    full = len(order) // setup.batch_size
    return float(np.mean([len(set(batch)) for batch in order[: full * setup.batch_size].reshape(full, -1).tolist()]))


# --- The report --------------------------------------------------------------------------------------------------------------


def run(setup: Setup, folder: Path) -> tuple[list[Result], float]:
    """The results (plain, MixLoader, MixLoader with one worker) and the labels per batch of the classic buffer."""
    sizes = write_corpus(folder, setup)
    classic = classic_labels(sizes, setup)
    many = setup.workers
    results = [
        train(f"plain DataLoader, {many} workers", plain_loader(folder, setup), setup),
        train(f"MixLoader, {many} workers", mix_loader(folder, setup, many), setup),
        train("MixLoader, 1 worker", mix_loader(folder, setup, 1), setup),
    ]
    report(results, classic, sizes, setup)
    return results, classic


def report(results: list[Result], classic: float, sizes: list[int], setup: Setup) -> None:
    print(f"\n{setup.records:,} records, sorted by label, in {setup.shards} shards of {min(sizes):,} to {max(sizes):,}")
    print(f"{setup.labels} labels; shuffle buffers of {setup.shuffle_buffer_size:,} records, over all workers")
    print(f"\n{f'a batch of {setup.batch_size} holds, on average':34}   files   labels   workers    accuracy after one epoch")
    for r in results:
        print(f"{r.name:34}{r.files:8.1f}{r.labels:9.1f}{r.workers:10.1f}{r.accuracy:28.1%}")
    print(f"\nlabels per batch of one classic shuffle buffer of as many records, over all files in turn: {classic:.1f}")
    for r in results:
        print(f"{r.name:34}{r.labels:17.1f}, {r.labels / classic:.2f} of that")


def main(arguments: list[str] | None = None) -> tuple[list[Result], float]:
    parser = argparse.ArgumentParser(description="One epoch over a corpus sorted by label: a plain DataLoader, and MixLoader.")
    for name, default in vars(Setup()).items():
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, default=default, metavar="N")
    setup = Setup(**vars(parser.parse_args(arguments)))
    warnings.filterwarnings("ignore", "This DataLoader will create .* worker processes in total")  # the demo is about mixing
    with tempfile.TemporaryDirectory() as folder:
        return run(setup, Path(folder))


if __name__ == "__main__":
    main()
