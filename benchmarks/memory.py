"""Peak memory over ten epochs, beside the formula of the README: python benchmarks/memory.py [--megabytes 1000]

Two corpora of one size, of records of 1 kB and of 110 kB, without workers and with two, forked. Measured is the peak of the
summed PSS of all processes in each epoch (what they share counts once), less that of the same program with a corpus of a few
records: Python, torch, and what a worker is by itself. The formula should hold within a third, and no epoch should take more than
those before it.
"""

from __future__ import annotations

import argparse
import multiprocessing
import shutil
import sys
import tempfile
import threading
import time
from multiprocessing.connection import Connection
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.bench import look_at
from shardmix import MixLoader, RawFeature, ShardDataset, ShardWriter
from shardmix.runtime.needs import RunSettings, estimate_needs

LOOK_SECONDS = 0.03
EPOCHS = 10
SHUFFLE_BUFFERS = {1_000: 16384, 110_000: 1024}  # records, by their bytes
BATCH_SIZES = {1_000: 256, 110_000: 64}


def write_corpus(folder: Path, record_bytes: int, num_records: int) -> str:
    """Records of one length in 16 shards; returns their pattern."""
    folder.mkdir()
    rng = np.random.default_rng(0)
    with ShardWriter(folder / "{:05d}.tfrecord", num_shards=16) as writer:
        for _ in range(num_records):
            writer.write({"data": rng.bytes(record_bytes)})
    return str(folder / "*.tfrecord")


def open_dataset(pattern: str, record_bytes: int) -> ShardDataset:
    features = {"data": RawFeature((record_bytes,), "uint8")}
    return ShardDataset(pattern, features=features, shuffle_buffer_size=SHUFFLE_BUFFERS[record_bytes])


def iterate(pattern: str, record_bytes: int, num_workers: int, epochs: int, link: Connection) -> None:
    """The program that is measured: some epochs, with a word at the end of each, until it is answered."""
    dataset, method = open_dataset(pattern, record_bytes), "fork" if num_workers else None
    loader = MixLoader(dataset, BATCH_SIZES[record_bytes], num_workers=num_workers, multiprocessing_context=method)
    for _ in range(epochs):
        for batch in loader:
            batch["data"][:, :1].sum()
        link.send("epoch")
        link.recv()


def peaks(pattern: str, record_bytes: int, num_workers: int, epochs: int) -> list[int]:
    """The peak of each epoch, in bytes, of a process of its own and its workers."""
    context = multiprocessing.get_context("spawn")
    link, other = context.Pipe()
    process = context.Process(target=iterate, args=(pattern, record_bytes, num_workers, epochs, other))
    process.start()
    other.close()
    found, highest, ended = [], [0], threading.Event()

    def look() -> None:
        while not ended.is_set():
            highest[0] = max(highest[0], look_at(process.pid or 0)[0])
            time.sleep(LOOK_SECONDS)

    looking = threading.Thread(target=look)
    looking.start()
    try:
        for _ in range(epochs):
            link.recv()
            found.append(highest[0])
            highest[0] = 0
            link.send("go on")
    finally:
        ended.set()
        looking.join()
    process.join()
    return found


def report(folder: Path, record_bytes: int, num_bytes: int) -> None:
    """Measure one corpus, and print a line for each number of workers."""
    few = write_corpus(folder / f"few-{record_bytes}", record_bytes, 16)
    pattern = write_corpus(folder / f"all-{record_bytes}", record_bytes, num_bytes // record_bytes)
    index = open_dataset(pattern, record_bytes)._index
    for num_workers in (0, 2):
        base = max(peaks(few, record_bytes, num_workers, 2))
        found = [peak - base for peak in peaks(pattern, record_bytes, num_workers, EPOCHS)]
        settings = RunSettings(BATCH_SIZES[record_bytes], num_workers, SHUFFLE_BUFFERS[record_bytes])
        needs = estimate_needs(index, settings)
        assert needs is not None
        print(
            f"{record_bytes:8,} B  {num_workers} workers  base {base / 1e6:5.0f} MB  measured {max(found) / 1e6:5.0f} MB  "
            f"formula {needs.bytes / 1e6:5.0f} MB  ratio {max(found) / needs.bytes:4.2f}  "
            f"epochs 2, {EPOCHS}: {found[1] / 1e6:.0f}, {found[-1] / 1e6:.0f} MB",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=200, help="of each corpus (default 200)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="shardmix-memory-"))
    try:
        for record_bytes in SHUFFLE_BUFFERS:
            report(folder, record_bytes, options.megabytes * 1_000_000)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
