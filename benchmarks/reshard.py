"""A full shuffle of a corpus in bounded memory: time, and the most memory that it took above the interpreter's own.

    python benchmarks/reshard.py                # 1 GB in 16 shards, to 16 others, within 200 MB
    python benchmarks/reshard.py --gigabytes 4 --memory 400 --workers 2

Prints one line a step. The records are 100 to 4000 random bytes, so that nothing compresses and no two are alike; that the result
holds the same ones is checked by the sum of the hashes of all payloads, before and after.
"""

from __future__ import annotations

import argparse
import hashlib
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from shardmix import ShardWriter, read_records
from shardmix.tools.reshard import reshard
from shardmix.tools.tasks import open_processes


def write_corpus(folder: Path, num_bytes: int) -> int:
    """16 shards of records of 100 to 4000 random bytes; returns their number."""
    rng = np.random.default_rng(0)
    written = count = 0
    with ShardWriter(folder / "in-{:02d}.tfrecord", max_shard_bytes=num_bytes // 16) as writer:
        while written < num_bytes:
            payload = rng.bytes(int(rng.integers(100, 4000)))
            writer.write(payload)
            written, count = written + len(payload), count + 1
    return count


def digest(folder: Path, stem: str) -> tuple[int, int]:
    """(records, the sum of their hashes): the same for the same records in any order."""
    count = total = 0
    for path in sorted(folder.glob(f"{stem}-*.tfrecord")):
        for payload in read_records(path):
            total += int.from_bytes(hashlib.blake2b(payload, digest_size=8).digest(), "little")
            count += 1
    return count, total % 2**64


def shuffle(folder: Path, memory_bytes: int, workers: int) -> int:
    """Reshard; returns the most memory of this process, in bytes."""
    with open_processes(workers, workers) as executor:
        reshard(
            str(folder / "in-*.tfrecord"),
            folder / "out-{:02d}.tfrecord",
            num_shards=16,
            shuffle=True,
            memory_bytes=memory_bytes // workers,
            executor=executor,
            num_workers=workers,
        )
    own, children = (resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return 1024 * max(own, children if workers > 1 else 0)


def nothing() -> int:
    """The most memory of a process that has only imported what the shuffle imports."""
    return 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def in_a_new_process(function: Callable[..., int], *arguments: Any) -> int:
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        return pool.submit(function, *arguments).result()


def main() -> None:
    parser = argparse.ArgumentParser(description="A full shuffle in bounded memory.")
    parser.add_argument("--gigabytes", type=float, default=1.0)
    parser.add_argument("--memory", type=int, default=200, help="MB, over all workers")
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        count = write_corpus(folder, int(options.gigabytes * 1e9))
        print(f"corpus: {options.gigabytes:.1f} GB, {count:,} records")
        before = digest(folder, "in")
        base = in_a_new_process(nothing)
        begin = time.perf_counter()
        peak = in_a_new_process(shuffle, folder, options.memory * 1_000_000, options.workers)
        seconds = time.perf_counter() - begin
        rate = options.gigabytes * 1000 / seconds
        print(f"shuffled in {seconds:.1f} s ({rate:.0f} MB/s) with --memory {options.memory} MB, {options.workers} workers")
        print(f"most memory of a process: {(peak - base) / 1e6:.0f} MB above the {base / 1e6:.0f} MB of the interpreter")
        print("the same records" if digest(folder, "out") == before else "NOT THE SAME RECORDS")


if __name__ == "__main__":
    main()
