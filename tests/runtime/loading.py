"""A small corpus with values of every kind, and data sets for the tests of MixLoader; at the top of a module, so that workers of
any start method can import them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset, get_worker_info

from shardmix import FixedLenFeature, ShardDataset, ShardWriter, SkipRecord, VarLenFeature, sample_seed
from shardmix.format.columns import Column, count_rows
from shardmix.runtime.gather import Cutter
from shardmix.runtime.ragged import Ragged
from shardmix.runtime.samples import PICKLED, Structure, collate, unpack_samples

COUNTS = [7, 0, 31, 20, 13]
IDS = [shard * 1000 + record for shard, count in enumerate(COUNTS) for record in range(count)]
FEATURES = {
    "id": FixedLenFeature((), "int64"),
    "point": FixedLenFeature((3,), "float32"),
    "name": FixedLenFeature((), "bytes"),
    "tags": VarLenFeature("int64"),
    "words": VarLenFeature("bytes"),
}


def example_of(number: int) -> dict[str, Any]:
    """All values follow from `id`."""
    return {
        "id": number,
        "point": [number + 0.25, number + 0.5, number + 0.75],
        "name": b"record %d" % number,
        "tags": list(range(number, number + number % 4)),
        "words": [b"x" * n for n in range(number % 3)],
    }


def write_corpus(folder: Path, counts: list[int] = COUNTS) -> str:
    """Shards of so many examples; `id` is shard · 1000 + record. Returns their pattern."""
    folder.mkdir()
    for shard, count in enumerate(counts):
        with ShardWriter(folder / f"{shard:05d}-{{}}.tfrecord", num_shards=1, features=FEATURES) as writer:
            for record in range(count):
                writer.write(example_of(shard * 1000 + record))
    return str(folder / "*.tfrecord")


def plain(value: Any) -> Any:
    """Any batch as plain lists and numbers, to be compared and kept; Source and containers keep their type's name."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, Ragged):
        return ("Ragged", value.to_list())
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, [plain(item) for item in value])
    return value


def unpack_batch(structure: Structure, columns: Sequence[Column]) -> Any:
    """All rows of some columns as the one batch that a loader cuts out of them."""
    if structure == PICKLED:
        return collate(unpack_samples(structure, columns))
    return Cutter(structure, columns).cut(0, count_rows(columns[0]) if columns else 0)


def ids_of(batches: Any) -> list[int]:
    """The ids of all rows of all batches."""
    return [number for batch in batches for number in batch["id"].tolist()]


class ParsedDataset(ShardDataset):
    """A parser of its own: samples of one structure."""

    def parse(self, record: memoryview) -> Any:
        return {"id": id_in(record), "size": len(record), "seed": sample_seed() % 1000}


class StackingDataset(ShardDataset):
    """A parser of many records, which cannot do with none."""

    def parse_batch(self, records: list[memoryview]) -> dict[str, Any]:
        return {"id": np.stack([np.int64(id_in(record)) for record in records])}


class UnlikeDataset(ShardDataset):
    """Samples that differ in structure from record to record, so they travel pickled."""

    def parse(self, record: memoryview) -> Any:
        number = id_in(record)
        return {"id": number} if number % 2 else {"id": number, "odd": None}


class FailingDataset(ShardDataset):
    """Refuses one record."""

    def parse(self, record: memoryview) -> Any:
        number = id_in(record)
        if number == 2005:
            raise OddError(number, "is odd")
        return {"id": number}


class SkippingDataset(ShardDataset):
    """Keeps the records whose id is a multiple of `step`, a class attribute: a fork away from nothing."""

    step = 2

    def parse(self, record: memoryview) -> Any:
        number = id_in(record)
        if number % self.step:
            raise SkipRecord
        return {"id": number}


class NothingDataset(SkippingDataset):
    """Skips what it sees."""

    def parse(self, record: memoryview) -> Any:
        raise SkipRecord


class OddError(ValueError):
    """An error whose constructor takes other arguments than its text."""

    def __init__(self, number: int, text: str) -> None:
        super().__init__(number, text)
        self.number = number


def id_in(record: memoryview) -> int:
    """The id that a record's name tells."""
    data = bytes(record)
    start = data.index(b"record ") + 7
    stop = start
    while data[stop : stop + 1].isdigit():
        stop += 1
    return int(data[start:stop])


class Forgetful(Dataset[int]):
    """Gives items together, and leaves some out."""

    def __len__(self) -> int:
        return 8

    def __getitems__(self, indices: list[int]) -> list[int]:
        return [index for index in indices if index != 6]


class Squares(Dataset[tuple[int, torch.Tensor]]):
    """Item i is (i, i² as a tensor)."""

    def __init__(self, num_items: int, fails_at: int | None = None) -> None:
        self.num_items, self.fails_at = num_items, fails_at

    def __len__(self) -> int:
        return self.num_items

    def __getitem__(self, i: int) -> tuple[int, torch.Tensor]:
        if i == self.fails_at:
            raise OddError(i, "has no square")
        return i, torch.tensor([i * i])


class WorkerInfos(Dataset[tuple[int, int, bool]]):
    """What get_worker_info() shows: (worker, number of workers, whether its dataset is this one)."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, i: int) -> tuple[int, int, bool]:
        info = get_worker_info()
        if info is None:
            return -1, 0, False
        return info.id, info.num_workers, info.dataset is self


class Counting(IterableDataset[int]):
    """Worker w of W streams w, w + W, … below `stop`; fails at one number."""

    def __init__(self, stop: int, fails_at: int | None = None) -> None:
        self.stop, self.fails_at = stop, fails_at

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, num_workers = (info.id, info.num_workers) if info else (0, 1)
        for number in range(worker, self.stop, num_workers):
            if number == self.fails_at:
                raise OddError(number, "is not counted")
            yield number


def double(sample: Any) -> Any:
    """A transform."""
    return {"id": sample["id"] * 2, "seed": sample_seed() % 1000}
