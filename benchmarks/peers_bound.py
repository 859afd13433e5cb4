"""The bound: the corpus's bytes read from the page cache, CRC'd once and copied twice, by two threads. Nothing is decoded.

What any loader must do that checks CRCs and hands batches over from another process: read, check, into shared memory, into the
batch.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from benchmarks.workload import Workload
from shardmix.format import backend

CHECKS = "every byte"
DECODES = False
NUM_THREADS = 2
BLOCK_BYTES = 1 << 20


class Peer:
    def __init__(self, workload: Workload) -> None:
        self.paths, self.num_records = workload.paths, workload.num_records

    def epoch(self) -> Iterator[int]:
        """One number: the records whose bytes went through."""
        left: SimpleQueue[str] = SimpleQueue()
        for path in self.paths:
            left.put(path)
        threads = [threading.Thread(target=run, args=(left,)) for _ in range(NUM_THREADS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        yield self.num_records

    def stats(self) -> dict[str, Any]:
        return {}


def run(left: SimpleQueue[str]) -> None:
    """Take files until none is left. Reading, CRC and copies all leave the GIL to the other thread."""
    block, shared, batch = (np.empty(BLOCK_BYTES, np.uint8) for _ in range(3))
    while True:
        try:
            file = os.open(left.get_nowait(), os.O_RDONLY)
        except Empty:
            return
        try:
            while count := os.readv(file, [block]):
                backend.crc32c(block[:count].data)
                np.copyto(shared[:count], block[:count])
                np.copyto(batch[:count], shared[:count])
        finally:
            os.close(file)


def describe() -> str:
    return f"blocks of {BLOCK_BYTES >> 10} KiB, numpy {np.__version__}"
