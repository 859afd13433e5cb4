"""One pass's talk with its workers: requests go out, chunks come in.

Rule 1: chunk c of a worker uses its slab c mod num_slabs. torch never has more than prefetch_factor requests of a worker
outstanding, and sends the next when it returns a chunk; with prefetch_factor + 1 slabs the chunk before must then have been
copied out, and was.
Rule 2: a problem is raised here, in the main process, where the row that caused it was due.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from .damages import SkipBudget
from .handoff import Bytes, Chunk, StructureReader, read_chunk
from .limits import Counts, WorkerTimes
from .problem import Problem
from .requests import MapWork, Reply, Request, ShardWork, Work


class PassGivenUp(Exception):
    """The pass was closed while its answers were on their way."""


class Received(NamedTuple):
    """One answer: the reply, and the chunk over the slab's memory where it has one."""

    reply: Reply
    chunk: Chunk | None


class Link:
    """Makes the requests of one pass and reads their answers. `views`: the slabs known so far, kept while the workers live."""

    def __init__(
        self,
        generation: int,
        num_slabs: int,
        views: dict[tuple[int, int], Bytes],
        counts: Counts,
        *,
        workers_choose: bool,
        skips: SkipBudget,
    ) -> None:
        self._generation, self._num_slabs, self._views = generation, num_slabs, views
        self._counts, self._workers_choose, self._skips = counts, workers_choose, skips
        self._structures: dict[int, StructureReader] = {}
        self._num_asked: dict[int, int] = {}
        self._outstanding: dict[int, deque[Work | None]] = {}
        self.replies: Iterator[Reply] = iter(())

    def request(self, worker: int, work: Work | None) -> Request:
        """The next request to a worker."""
        if self._workers_choose:
            return Request(self._generation, -1, 0, work)
        self._outstanding.setdefault(worker, deque()).append(work)
        chunk = self._num_asked.get(worker, 0)
        self._num_asked[worker] = chunk + 1
        slab = chunk % self._num_slabs
        known = self._views.get((worker, slab))
        return Request(self._generation, slab, 0 if known is None else known.size, work)

    def receive(self) -> Received | None:
        """The next answer in torch's order; None at the end. Raises what the worker met."""
        started = time.perf_counter()
        reply = next(self.replies, None)
        self._counts.seconds_mixer_waiting += time.perf_counter() - started
        if reply is None:
            return None
        if reply.generation != self._generation:
            raise RuntimeError(f"an answer of pass {reply.generation} came in pass {self._generation}")
        if not self._workers_choose:
            self._outstanding[reply.worker].popleft()
        if reply.is_stale:
            raise PassGivenUp
        self._count(reply)
        if isinstance(reply.problem, Problem):
            raise reply.problem.exception()
        if reply.problem is not None:
            raise reply.problem
        return Received(reply, self._read(reply))

    def describe_outstanding(self, worker: int) -> str:
        """What a worker is at: the oldest request that it has not answered."""
        outstanding = self._outstanding.get(worker)
        if not outstanding:
            return "with nothing asked of it"
        work = outstanding[0]
        if isinstance(work, ShardWork):
            return f"reading its rows of epoch {work.epoch}, steps {work.first_step} to {work.first_step + work.num_steps - 1}"
        if isinstance(work, MapWork):
            return f"loading {len(work.indices)} items, {list(work.indices[:3])} …"
        return "reading the next rows of its stream" if work is not None else "idle"

    def _read(self, reply: Reply) -> Chunk | None:
        packed = reply.packed
        if packed is None:
            return None
        self._counts.slabs_attached += packed.address is not None
        memory = self._views[reply.worker, reply.slab]
        structure = self._structures.setdefault(reply.worker, StructureReader()).read(memory, packed)
        return read_chunk(memory, packed, structure)

    def _count(self, reply: Reply) -> None:
        counts = self._counts
        counts.messages += 1
        counts.bytes += reply.num_bytes
        counts.workers.setdefault(reply.worker, WorkerTimes()).add(reply.spent, reply.seconds)
        for damage in reply.damages:
            counts.damages += 1
            self._skips.skip(damage)
