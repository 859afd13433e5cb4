"""Pulled feeds: workers stream rows, and each batch picks from what has come.

For iterable datasets, whose lengths nobody knows; for a user's `schedule` over workers; and for in_order=False, where torch hands
over answers as they come.

Rule 1: the rows of one worker keep their order. Which worker a row is taken from depends on the rows taken before, never on time,
unless in_order=False asks for that.
Rule 2: a worker that has enough rows waiting is asked for none, so that what waits is bounded, whatever is picked.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import numpy as np

from .assemble import Assembler, Group, Part
from .feeds import Delivery
from .handoff import Chunk
from .limits import Counts
from .link import Link
from .requests import CHUNK_BYTES, CHUNK_SECONDS, MAX_BATCHES, MapWork, Reply, Request, StreamWork, Work

UserSchedule = Callable[[int, Sequence[int | None]], Sequence[int]]


class Supply(Protocol):
    """Where the rows of a pass come from."""

    def work(self, worker: int, num_rows: int) -> tuple[Work, int] | None:
        """About `num_rows` more rows of a worker, and how many were asked for; None when nothing is left to ask for."""
        ...


class StreamSupply:
    """Workers that stream by themselves until they end."""

    def __init__(self, work: StreamWork) -> None:
        self._work = work

    def work(self, worker: int, num_rows: int) -> tuple[Work, int] | None:
        return self._work._replace(num_rows=num_rows), num_rows


class MapSupply:
    """Batches of a sampler, dealt to the workers in turn: batch i belongs to worker i mod num_workers."""

    def __init__(self, batches: Iterator[list[Any]], num_workers: int) -> None:
        self._batches = batches
        self._dealt: list[deque[list[Any]]] = [deque() for _ in range(num_workers)]
        self._next_worker = 0

    def work(self, worker: int, num_rows: int) -> tuple[Work, int] | None:
        indices: list[Any] = []
        while len(indices) < num_rows and self._deal(worker):
            indices += self._dealt[worker].popleft()
        return (MapWork(indices), len(indices)) if indices else None

    def _deal(self, worker: int) -> bool:
        """Deal until the worker has a batch; False when there is none for it."""
        while not self._dealt[worker]:
            batch = next(self._batches, None)
            if batch is None:
                return False
            self._dealt[self._next_worker].append(batch)
            self._next_worker = (self._next_worker + 1) % len(self._dealt)
        return True


class WorkerQueue:
    """The rows of one worker that have come and were not picked yet."""

    def __init__(self) -> None:
        self.num_rows = 0
        self.num_asked = 0  # rows that were asked for and have not come
        self.is_done = False  # it said that it ended, or nothing is left to ask it for
        self._chunks: deque[tuple[Chunk, int]] = deque()  # each with its first row that was not picked

    @property
    def is_ended(self) -> bool:
        """Whether no more rows will come."""
        return self.is_done and self.num_asked == 0

    def own(self) -> None:
        """Copy what waits out of its slabs: they may be used again as soon as the next answer of the worker is asked for."""
        self._chunks = deque((own_chunk(waiting), first) for waiting, first in self._chunks)

    def put(self, chunk: Chunk) -> None:
        """Take in a chunk."""
        if chunk.num_rows:
            self._chunks.append((chunk, 0))
            self.num_rows += chunk.num_rows

    def take(self, num_rows: int) -> Iterator[tuple[Chunk, int, int]]:
        """The next rows, as runs of chunks."""
        self.num_rows -= num_rows
        while num_rows:
            chunk, first = self._chunks[0]
            stop = min(chunk.num_rows, first + num_rows)
            if stop == chunk.num_rows:
                self._chunks.popleft()
            else:
                self._chunks[0] = chunk, stop
            num_rows -= stop - first
            yield chunk, first, stop


class _OwnedChunk(Chunk):
    """A chunk whose columns lie in memory of their own."""


def own_chunk(chunk: Chunk) -> Chunk:
    """The chunk, out of its slab."""
    if isinstance(chunk, _OwnedChunk):
        return chunk
    columns = [
        column._replace(values=column.values.copy(), lengths=tuple(lengths.copy() for lengths in column.lengths))
        for column in chunk.columns
    ]
    return _OwnedChunk(chunk.structure, columns, chunk.kept.copy(), chunk.source.copy())


class PulledFeed:
    """Batches picked from worker queues: in turn from every live worker, or as the user's `schedule` says."""

    def __init__(
        self,
        link: Link,
        assembler: Assembler,
        counts: Counts,
        supply: Supply,
        *,
        num_workers: int,
        batch_size: int,
        drop_last: bool,
        epoch: int,
        schedule: UserSchedule | None,
        in_order: bool,
    ) -> None:
        self._link, self._assembler, self._counts, self._supply = link, assembler, counts, supply
        self._batch_size, self._drop_last, self._epoch = batch_size, drop_last, epoch
        self._schedule, self._in_order = schedule, in_order
        self._queues = [WorkerQueue() for _ in range(num_workers)]
        self._asked: deque[tuple[int, int]] = deque()  # (worker, rows) of each request on its way
        self._num_rows = self._share = -(-batch_size // num_workers)  # of a chunk: a worker's share of a batch, or more
        self._turn = 0  # the worker whose turn it is

    def requests(self) -> Iterator[Request]:
        """Each worker in turn; one that has enough waiting is asked for nothing, until all have ended."""
        while not all(queue.is_done for queue in self._queues):
            for worker, queue in enumerate(self._queues):
                enough = queue.num_rows + queue.num_asked >= 2 * self._num_rows + self._batch_size
                given = None
                if not queue.is_done and not (enough and self._in_order):
                    given = self._supply.work(worker, self._num_rows)
                    queue.is_done = given is None
                work, num_rows = given or (None, 0)
                if self._in_order:
                    queue.num_asked += num_rows
                    self._asked.append((worker, num_rows))
                yield self._link.request(worker, work)

    def batches(self) -> Iterator[Delivery]:
        """Batches until every worker has ended."""
        step = 0
        while picks := self._picks(step):
            if self._drop_last and len(picks) < self._batch_size:
                if self._schedule is None:
                    return
            else:
                self._counts.rows += len(picks)
                group = Group(self._parts(picks), [0, len(picks)], [len(picks)], self._epoch, step)
                for batch, _ in self._assembler.assemble(group):
                    yield Delivery(batch, self._epoch, step)
            step += 1

    def _parts(self, picks: list[int]) -> list[Part]:
        """The picked rows, taken from their queues."""
        parts = []
        worker_of_row = np.asarray(picks)
        for worker, queue in enumerate(self._queues):
            positions = np.flatnonzero(worker_of_row == worker)
            used = 0
            for chunk, first, stop in queue.take(len(positions)):
                parts.append(Part(chunk, worker, first, stop, positions[used : used + stop - first]))
                used += stop - first
        return parts

    def _picks(self, step: int) -> list[int]:
        """The worker of each row of the next batch; empty at the end."""
        picked = [0] * len(self._queues)  # rows of each worker's queue that are spoken for
        if self._schedule is not None:
            return self._picks_by_schedule(self._schedule, step, picked)
        picks: list[int] = []
        while len(picks) < self._batch_size:
            worker = self._next_in_turn(picked)
            if worker is None:
                break
            picked[worker] += 1
            picks.append(worker)
        return picks

    def _next_in_turn(self, picked: list[int]) -> int | None:
        """The next worker in turn that has a row; without an order, the next that has one now."""
        while True:
            for _ in self._queues:
                worker = self._turn
                if self._wait_for_row(worker, picked[worker]) if self._in_order else self._has_row(worker, picked[worker]):
                    self._turn = (worker + 1) % len(self._queues)
                    return worker
                self._turn = (worker + 1) % len(self._queues)
            if self._in_order or not self._receive():
                return None

    def _picks_by_schedule(self, schedule: UserSchedule, step: int, picked: list[int]) -> list[int]:
        remaining = [self._remaining(worker) for worker in range(len(self._queues))]
        if all(rows == 0 for rows in remaining):
            return []
        named = check_named(schedule(step, remaining), len(self._queues), self._batch_size, step)
        picks = []
        for worker in named:
            if self._wait_for_row(worker, picked[worker]):
                picked[worker] += 1
                picks.append(worker)
        if not picks and not all(self._remaining(worker) == 0 for worker in range(len(self._queues))):
            raise ValueError(f"schedule: step {step} names only workers that have ended; name one that has rows left")
        return picks

    def _remaining(self, worker: int) -> int | None:
        """Rows left of a worker: 0 once it has ended, else unknown. How soon its end shows must not decide."""
        return None if self._wait_for_row(worker, 0) else 0

    def _has_row(self, worker: int, picked: int) -> bool:
        return self._queues[worker].num_rows > picked

    def _wait_for_row(self, worker: int, picked: int) -> bool:
        """Whether the worker has one more row than are spoken for; waits until that is known."""
        queue = self._queues[worker]
        while queue.num_rows <= picked:
            if queue.is_ended or not self._receive():
                return False
        return True

    def _receive(self) -> bool:
        """Take in the next answer; False when all have come."""
        for number, queue in enumerate(self._queues):
            if not (self._in_order and self._asked and self._asked[0][0] != number):
                queue.own()
        received = self._link.receive()
        if received is None:
            for queue in self._queues:
                queue.is_done, queue.num_asked = True, 0
            return False
        reply = received.reply
        queue = self._queues[reply.worker]
        if self._in_order:
            worker, num_rows = self._asked.popleft()
            if worker != reply.worker:
                raise RuntimeError(f"worker {reply.worker} answered in the turn of worker {worker}")
            queue.num_asked -= num_rows
        if received.chunk is not None:
            queue.put(received.chunk)
            self._learn(reply)
        queue.is_done = queue.is_done or reply.ended
        return True

    def _learn(self, reply: Reply) -> None:
        """Choose the rows of a chunk by how large and how slow this one was."""
        if reply.num_rows:
            by_bytes = CHUNK_BYTES * reply.num_rows // max(1, reply.num_bytes)
            by_time = int(CHUNK_SECONDS * reply.num_rows / max(1e-9, reply.seconds))
            self._num_rows = max(self._share, min(by_bytes, by_time, 4 * self._num_rows, MAX_BATCHES * self._share))


def check_named(named: Sequence[int], num_queues: int, batch_size: int, step: int) -> list[int]:
    """The rows that a user's `schedule` names, checked: as many as the batch has rows, each of a lane or worker that exists."""
    numbers = [int(number) for number in named]
    if len(numbers) != batch_size:
        raise ValueError(f"schedule: step {step} names {len(numbers)} rows, expected batch_size, {batch_size}")
    for number in numbers:
        if not 0 <= number < num_queues:
            raise ValueError(f"schedule: step {step} names {number}, expected 0 … {num_queues - 1}")
    return numbers
