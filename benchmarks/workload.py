"""What every contender of bench.py is asked for, and how it is told that all deliver the same.

    workload = prepare("small", Path("corpus/bench"), size=1.0)
    workload.paths, workload.features

Rule 1: each delivers an epoch as dicts of columns: arrays of int64, float32 or uint8 (rows, …), and for bytes of varying length a
sequence of bytes or of uint8 arrays.
Rule 2: the digest of an epoch is a sum over its rows, so it depends on the rows alone, not on their order or on their batches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from tqdm import tqdm

from benchmarks.corpora import FEATURES, make_payloads
from shardmix import RawFeature, ShardWriter, build_index
from shardmix.format.idx import write_idx

BATCH_SIZE = 256
BUFFER_SIZE = 2048  # records in the shuffle buffers, over all workers
NUM_SHARDS = 16
RECORDS = {"small": 400_000, "ctr": 200_000, "emb": 100_000, "tokens": 100_000, "image": 8_000}  # at size 1
IMAGE_BYTES = 784  # of "small"; delivered as an array, not as bytes objects

Batch = Mapping[str, Any]


@dataclass(frozen=True)
class Workload:
    """One corpus, as it lies in its folder."""

    name: str
    folder: Path
    num_records: int

    @property
    def paths(self) -> list[str]:
        """The shards."""
        return sorted(map(str, self.folder.glob(f"{self.name}-*.tfrecord")))

    @property
    def features(self) -> dict[str, Any]:
        """What is to be decoded."""
        features = dict(FEATURES[self.name])
        if self.name == "small":
            features["image"] = RawFeature((IMAGE_BYTES,), "uint8")
        return features

    @property
    def num_bytes(self) -> int:
        """Bytes of the shards."""
        return sum(Path(path).stat().st_size for path in self.paths)

    def idx_paths(self) -> list[str]:
        """The text index of each shard, for the tfrecord package and DALI; in a folder of its own."""
        return [str(self.folder / "idx" / f"{Path(path).stem}.idx") for path in self.paths]


def prepare(name: str, folder: Path, size: float) -> Workload:
    """The corpus of one name, written when it is not there yet. `size` scales the number of records."""
    num_records = max(NUM_SHARDS, round(RECORDS[name] * size))
    folder = folder / f"{name}-{num_records}"
    workload = Workload(name, folder, num_records)
    done = folder / "done.json"
    if done.exists() and json.loads(done.read_text()) == {"records": num_records, "shards": NUM_SHARDS}:
        return workload
    folder.mkdir(parents=True, exist_ok=True)
    with ShardWriter(folder / f"{name}-{{:05d}}.tfrecord", num_shards=NUM_SHARDS) as writer:
        for payload in tqdm(make_payloads(name, num_records), f"writing {name}", num_records, unit=" records"):
            writer.write(payload)
    index = build_index(workload.paths)
    (folder / "idx").mkdir(exist_ok=True)
    for shard, path in enumerate(workload.idx_paths()):
        write_idx(path, index.lengths(shard, 0, int(index.counts[shard])))
    done.write_text(json.dumps({"records": num_records, "shards": NUM_SHARDS}))
    return workload


def count_rows(batch: Batch) -> int:
    """The rows of a batch."""
    return len(next(iter(batch.values())))


def digest(batches: Iterable[Batch], stop: int | None = None) -> tuple[int, str]:
    """The number of rows, and the sum of their hashes: equal for equal rows in any order. `stop`: rows to look at, at most."""
    total = rows = 0
    for batch in batches:
        names = sorted(batch)
        dense = [_bytes_of_rows(batch[name]) for name in names if _is_dense(batch[name])]
        varying = [batch[name] for name in names if not _is_dense(batch[name])]
        table = np.concatenate(dense, axis=1) if dense else np.empty((count_rows(batch), 0), np.uint8)
        for i, row in enumerate(table):
            if rows == stop:
                break
            hashed = hashlib.blake2b(row.tobytes(), digest_size=8)
            for values in varying:
                hashed.update(memoryview(values[i]))
            total += int.from_bytes(hashed.digest(), "little")
            rows += 1
    return rows, f"{total % 2**64:016x}"


def _is_dense(values: Any) -> bool:
    return not isinstance(values, Sequence) and np.asarray(values).dtype != object


def _bytes_of_rows(values: Any) -> np.ndarray:
    """The rows of an array as bytes, (rows, bytes of a row)."""
    array = np.ascontiguousarray(values)
    if array.dtype not in (np.int64, np.float32, np.uint8):
        raise TypeError(f"a contender delivered {array.dtype}, expected int64, float32 or uint8")
    return array.reshape(len(array), -1).view(np.uint8)
