"""The unit that flows: a block of records, held as arrays over a few buffers.

Rule 1: a block owns nothing but references to its buffers; records are spans in them, never copied one by one.
Rule 2: a block knows where its records came from, so that any layer can name a place in an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

IntArray = NDArray[np.int64]
Bytes = NDArray[np.uint8]


class Places(Protocol):
    """Names the place of a record: a corpus with its index, or a single file."""

    def path(self, shard: int) -> str:
        """The path or URL of a shard."""
        ...

    def offset(self, shard: int, record: int) -> int | None:
        """The byte at which the record's frame begins (in the inflated bytes), or None where unknown."""
        ...


@dataclass(frozen=True, slots=True)
class RecordBlock:
    """Some records: for row i the payload is `buffers[buffer[i]][start[i] : start[i] + length[i]]`."""

    buffers: tuple[Bytes, ...]  # one-dimensional uint8 arrays
    buffer: IntArray  # (rows,) which of the buffers
    start: IntArray  # (rows,) where the payload begins in it
    length: IntArray  # (rows,) bytes of the payload
    shard: IntArray  # (rows,) number of the shard in the corpus
    record: IntArray  # (rows,) number of the record in its shard
    places: Places

    def __len__(self) -> int:
        return len(self.start)

    def payload(self, row: int) -> memoryview:
        """The payload of one row, a view of its buffer."""
        start = int(self.start[row])
        return memoryview(self.buffers[self.buffer[row]])[start : start + int(self.length[row])]

    def place(self, row: int) -> tuple[str, int, int | None]:
        """(path, record, byte offset) of one row, for an error."""
        shard, record = int(self.shard[row]), int(self.record[row])
        return self.places.path(shard), record, self.places.offset(shard, record)
