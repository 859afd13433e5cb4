"""The records from which a schema is inferred: the first ones of several shards.

Rule: 256 records, or all where there are no more, from at most 16 shards spread over the listing; the same whatever the set or
the rank.
"""

from __future__ import annotations

import numpy as np

from ..format.index import Index
from .buffers import BufferPool
from .reads import Piece, RecordReader, TrackFile

NUM_SAMPLES = 256
NUM_SHARDS = 16


def read_samples(index: Index, *, verify: str, on_corrupt: str) -> list[memoryview]:
    """The payloads. Raises CorruptShardError for a damaged one, unless on_corrupt="skip"."""
    shards = np.flatnonzero(index.counts)
    wanted = min(NUM_SAMPLES, int(index.counts.sum()))
    if wanted == NUM_SAMPLES and len(shards) > NUM_SHARDS:
        shards = shards[np.linspace(0, len(shards) - 1, NUM_SHARDS).astype(np.int64)]
        wanted = min(wanted, int(index.counts[shards].sum()))
    quota = -(-wanted // len(shards))
    while np.minimum(index.counts[shards], quota).sum() < wanted:
        quota *= 2
    reader = RecordReader(index, (), verify, BufferPool(0))
    track = TrackFile(index)
    samples = []
    try:
        for shard in shards.tolist():
            read = reader.read([track], [Piece(0, shard, 0, min(quota, int(index.counts[shard])))])
            if read.damages and on_corrupt == "raise":
                raise read.damages[min(read.damages)]
            view = read.buffer.data
            for row, (start, length) in enumerate(zip(read.start.tolist(), read.length.tolist(), strict=True)):
                if row not in read.damages:
                    samples.append(view[start : start + length])
    finally:
        track.close()
    return samples
