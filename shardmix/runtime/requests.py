"""What the main process asks of its workers, and what comes back.

Rule 1: requests are the only control channel. Epoch, seek, resume and flow control travel with the work: no shared
epoch, no queue of ours, no lock.
Rule 2: every worker is asked in turn, so torch's round robin is the order in which the main process needs the answers.
Rule 3: how many batches a chunk spans changes when bytes cross, never what is in a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from torch.utils.data import Sampler

from ..errors import CorruptShardError
from ..format.columns import IntArray
from ..order.schedule import Schedule
from .handoff import Address, Bytes, Packed
from .limits import NOTHING_SPENT, Spent
from .needs import chunk_bytes
from .problem import Problem

CHUNK_BYTES = 2 << 20  # where there are no lanes
CHUNK_SECONDS = 0.05  # slow user code: no chunk keeps the main process waiting much longer than this
MAX_BATCHES = 1024


class SharedSlots(NamedTuple):
    """Slots of batch memory (shared_rows.py) that the dense rows of some work go to."""

    segments: tuple[tuple[int, Address | Bytes], ...]  # all that the main process has: number, and where it is
    slots: tuple[tuple[int, int], ...]  # of each group of batches: segment, and byte at which it begins
    num_rows: int  # of each group but the last


class ShardWork(NamedTuple):
    """Rows of a ShardDataset: the worker's part of some consecutive batches."""

    epoch: int
    rank: int
    schedule: Schedule
    first_step: int
    num_steps: int
    # under a user's `schedule`: of the worker's rows, lane and place in it; else None, they follow from the steps
    lanes: IntArray | None = None
    positions: IntArray | None = None
    shared: SharedSlots | None = None  # where dense rows go, if not into the slab


class MapWork(NamedTuple):
    """Items of a map-style dataset."""

    indices: Sequence[Any]


class StreamWork(NamedTuple):
    """The next rows of whatever the worker streams: an iterable dataset, or the lanes of a ShardDataset in no fixed order."""

    num_rows: int
    epoch: int = 0
    rank: int = 0
    schedule: Schedule | None = None  # of a ShardDataset


Work = ShardWork | MapWork | StreamWork


class Request(NamedTuple):
    """One request to one worker."""

    generation: int  # number of the pass; a worker answers requests of an earlier one without work
    slab: int  # -1: torch has not chosen the worker yet (in_order=False), so the worker counts its own
    known_bytes: int  # of that slab, as the main process knows it; 0: not at all
    work: Work | None  # None: it is not this worker's turn to give rows


class Reply(NamedTuple):
    """The answer to one request."""

    generation: int
    worker: int
    slab: int
    packed: Packed | None  # None: nothing to hand over
    num_rows: int
    num_bytes: int
    seconds: float  # that the worker spent on it
    ended: bool  # a stream has no more rows
    is_stale: bool  # the pass had been given up
    problem: Problem | BaseException | None
    damages: tuple[CorruptShardError, ...]
    spent: Spent = NOTHING_SPENT


class RequestSampler(Sampler[Request]):
    """The sampler of the private DataLoader: hands out the requests of the pass at hand."""

    def __init__(self) -> None:
        self.requests: Iterator[Request] = iter(())

    def __len__(self) -> int:
        return 1 << 60

    def __iter__(self) -> Iterator[Request]:
        # torch calls iter() more than once before a pass; nothing is taken from the requests by that
        return self

    def __next__(self) -> Request:
        return next(self.requests)


class ChunkSize:
    """How many batches a chunk spans: one at first, then what fits in its bytes and CHUNK_SECONDS, by the answers so far."""

    def __init__(self, num_lanes: int, limit: int = MAX_BATCHES) -> None:
        self._num_lanes, self._limit = num_lanes, limit
        self.num_batches = 1

    def learn(self, reply: Reply, num_batches: int) -> None:
        """Take in how large, and how slow, a chunk of `num_batches` batches was."""
        batch_bytes = max(1, reply.num_bytes // num_batches)
        batch_seconds = max(1e-9, reply.seconds / num_batches)
        most_bytes = chunk_bytes(self._num_lanes, reply.num_bytes / max(1, reply.num_rows))
        wanted = min(most_bytes // batch_bytes, int(CHUNK_SECONDS / batch_seconds), self._limit)
        self.num_batches = max(1, min(wanted, 4 * self.num_batches))
