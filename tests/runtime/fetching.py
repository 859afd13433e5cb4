"""Shards of small payloads that say where they are, readers over them, and a count of what reading took."""

from __future__ import annotations

import gzip
import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix.format import backend
from shardmix.format.framing import FRAME_BYTES, frame_record
from shardmix.format.index import Index, open_index
from shardmix.format.runs import Runs
from shardmix.order.plan import Plan
from shardmix.order.schedule import BatchRows
from shardmix.runtime import files, reads
from shardmix.runtime.buffers import BufferPool
from shardmix.runtime.fetch import Fetched, RowReader
from shardmix.runtime.reads import RecordReader, Share

Address = tuple[int, int]


class Corpus:
    """Shards of payloads `shard:record` and some padding, and what reading them took."""

    def __init__(self, folder: Path, counts: list[int], *, padding: int = 0, compressed: tuple[int, ...] = ()) -> None:
        self.folder, self.counts, self.padding = folder, counts, padding
        for shard, count in enumerate(counts):
            data = b"".join(frame_record(self.payload(shard, record)) for record in range(count))
            self.path(shard).write_bytes(gzip.compress(data) if shard in compressed else data)
        self.index: Index = open_index(str(folder / "*.tfrecord"), index="cache", cache_dir=str(folder / "index"))

    def path(self, shard: int) -> Path:
        return self.folder / f"{shard:03d}.tfrecord"

    def payload(self, shard: int, record: int) -> bytes:
        return f"{shard}:{record}".encode() + bytes(self.padding)

    def plan(self, **settings: Any) -> Plan:
        return Plan(np.array(self.counts), **{"lanes": 4, "shuffle_buffer_size": 32, **settings}, whole=self.index.compressed)

    def reader(self, plan: Plan, *, shares: tuple[Share, ...] = (), verify: str = "full") -> RowReader:
        return RowReader(RecordReader(self.index, shares, verify, BufferPool(1 << 20)), plan)

    def damage(self, shard: int, record: int) -> None:
        """Flip a bit of the payload, leaving size and time as they were."""
        path = self.path(shard)
        place = self.index.offset(shard, record) + FRAME_BYTES - 4
        data = bytearray(path.read_bytes())
        data[place] ^= 1
        self.overwrite(path, bytes(data))

    @staticmethod
    def overwrite(path: Path, data: bytes) -> None:
        status = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def batch(plan: Plan, first: int, stop: int) -> BatchRows:
    """Rows first … stop-1 of the epoch."""
    row = np.arange(first, stop)
    return BatchRows(row, row % plan.lanes, row // plan.lanes, np.zeros(len(row), np.bool_), np.array([0, len(row)]))


def read_always(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """Read records as they arrive, or as they leave, whatever their size."""
    monkeypatch.setattr(reads, "LATE_BYTES", {"early": 1 << 40, "late": 0}[how])


def addresses(fetched: Fetched) -> list[Address]:
    return list(zip(fetched.block.shard.tolist(), fetched.block.record.tolist(), strict=True))


def payloads(fetched: Fetched) -> list[bytes]:
    return [bytes(fetched.block.payload(row)) for row in range(len(fetched.block))]


def read_epoch(corpus: Corpus, plan: Plan, *, epoch: int = 0, step: int = 7) -> list[Address]:
    """The whole epoch, some rows at a time; every payload is that of its address."""
    reader = corpus.reader(plan)
    found: list[Address] = []
    for first in range(0, plan.num_records, step):
        fetched = reader.fetch(epoch, batch(plan, first, min(first + step, plan.num_records)))
        assert payloads(fetched) == [corpus.payload(*address) for address in addresses(fetched)]
        found += addresses(fetched)
    assert reader.num_open == 0
    return found


class Reads:
    """Counts what is asked of shard files."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.num_reads = self.num_bytes = 0
        self.opened: Counter[str] = Counter()
        self.num_open = self.most_open = 0
        plain = files.open_shard
        read_runs = backend.read_runs

        def count_runs(asked: Runs, *arguments: Any, **settings: Any) -> Any:
            self.num_reads += len(asked.offset)
            self.num_bytes += int(asked.bounds[-1] - asked.bounds[0])
            return read_runs(asked, *arguments, **settings)

        def open_shard(path: str, *arguments: Any, **settings: Any) -> Any:
            file = plain(path, *arguments, **settings)
            self.opened[path] += 1
            self.num_open += 1
            self.most_open = max(self.most_open, self.num_open)
            return Watched(file, self)

        monkeypatch.setattr(files, "open_shard", open_shard)
        monkeypatch.setattr(backend, "read_runs", count_runs)


class Watched:
    def __init__(self, file: Any, log: Reads) -> None:
        self._file, self._log = file, log
        self.descriptor = file.descriptor

    def close(self) -> None:
        self._log.num_open -= 1
        self._file.close()
