"""Planned feeds: what to ask of which worker, and how batches are put together, both known before the first answer comes.

A feed has two sides that one thread drives. `requests()` is what torch's sampler draws from, ahead of the answers; `batches()`
reads the answers and yields the batches in order. Between them stands a queue of what was asked for.

    ShardFeed   rows of a ShardDataset: each worker's part of k consecutive batches
    MapFeed     items of a map-style dataset: rounds of as many batches as there are workers, dealt out and mixed

Rule: how many batches a chunk spans decides nothing about their rows.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from ..format.columns import IntArray
from ..order.schedule import BatchRows, Schedule
from .assemble import Assembler, Dense, Group, Part, batches_of_group
from .gather import Cut, Cutter
from .limits import Counts
from .link import Link
from .requests import ChunkSize, MapWork, Request, ShardWork
from .shared_rows import BatchSlots, Slot
from .source import workers_of_lanes


class Delivery(NamedTuple):
    """One batch, and where the run stands once the user has it."""

    batch: Any  # or a Cut: take() gives the batch
    epoch: int
    step: int  # of this batch in its epoch
    has_more: bool = False  # the next batch is made already, but for its tensors

    def take(self) -> Any:
        """The batch, for the user."""
        batch = self.batch
        return batch.make() if type(batch) is Cut else batch


class Steps(Protocol):
    """The steps of one epoch of one rank: the schedule of the order, or a user's own."""

    def rows(self, first_step: int, num_steps: int) -> BatchRows:
        """Rows of some steps; fewer batches than asked for mean that the epoch ends with them."""
        ...

    def work(self, worker: int, first_step: int, num_steps: int) -> ShardWork:
        """What to ask of a worker for these steps."""
        ...


class PlannedSteps:
    """Steps that follow from arithmetic: a worker finds its rows by itself."""

    def __init__(self, schedule: Schedule, epoch: int, rank: int) -> None:
        self.schedule, self.epoch, self.rank = schedule, epoch, rank
        self._num_batches = schedule.num_batches(rank)

    def rows(self, first_step: int, num_steps: int) -> BatchRows:
        num_steps = max(0, min(num_steps, self._num_batches - first_step))
        return self.schedule.batch_rows(self.rank, self.epoch, first_step, num_steps)

    def work(self, worker: int, first_step: int, num_steps: int) -> ShardWork:
        return ShardWork(self.epoch, self.rank, self.schedule, first_step, num_steps)


class _Asked(NamedTuple):
    epoch: int
    first_step: int
    rows: BatchRows
    lead: int  # batches at the beginning that were delivered before the run was resumed
    slots: Sequence[Slot]


class ShardFeed:
    """Batches of a ShardDataset. num_lanes: of each worker.

    epochs: for each epoch of the pass its number, its steps, and how many of these (0 or 1) were delivered before: they are only
    remembered, for a batch of holes that repeats the batch before.
    """

    def __init__(
        self,
        link: Link,
        assembler: Assembler,
        counts: Counts,
        epochs: Iterator[tuple[int, Steps, int]],
        num_workers: int,
        world_size: int,
        num_lanes: int,
        slots: BatchSlots | None = None,
    ) -> None:
        self._link, self._assembler, self._counts, self._epochs, self._slots = link, assembler, counts, epochs, slots
        self._num_workers, self._world_size = num_workers, world_size
        self._size = ChunkSize(num_lanes)
        self._asked: deque[_Asked] = deque()

    def requests(self) -> Iterator[Request]:
        """Every worker is asked for its part of the next batches, in turn."""
        for epoch, steps, lead in self._epochs:
            step = 0
            while True:
                rows = steps.rows(step, self._size.num_batches)
                num_steps = len(rows.bounds) - 1
                if num_steps == 0:
                    break
                slots = [] if self._slots is None else self._slots.lease(num_steps)
                self._asked.append(_Asked(epoch, step - lead, rows, 0 if step else lead, slots))
                shared = None if self._slots is None else self._slots.describe(slots)
                for worker in range(self._num_workers):
                    work = steps.work(worker, step, num_steps)
                    yield self._link.request(worker, work if shared is None else work._replace(shared=shared))
                step += num_steps

    def outstanding(self) -> list[Any]:
        """What the workers may still write to, where the pass ends now."""
        return [asked.slots for asked in self._asked]

    def batches(self) -> Iterator[Delivery]:
        """The batches, in order."""
        while (received := self._link.receive()) is not None:
            chunks = [received.chunk]
            asked = self._asked[0]
            num_steps = len(asked.rows.bounds) - 1
            self._size.learn(received.reply, num_steps)
            for _ in range(1, self._num_workers):
                received = self._link.receive()
                if received is None:
                    raise RuntimeError("the workers ended in the middle of a batch")
                self._size.learn(received.reply, num_steps)
                chunks.append(received.chunk)
            self._asked.popleft()
            if self._slots is not None and self._are_in_place(asked, chunks):
                yield from self._take_as_they_are(self._slots, asked)
            else:
                yield from self._put_together(asked, chunks)

    def _are_in_place(self, asked: _Asked, chunks: Sequence[Any]) -> bool:
        """Whether all that the batches are lies in their slots: no row is missing, no column in a slab, nothing to add."""
        num_rows = sum(chunk.num_rows for chunk in chunks)
        return (
            num_rows == len(asked.rows.row)
            and self._assembler.adds_nothing
            and not any(chunk.columns for chunk in chunks)
        )

    def _take_as_they_are(self, slots: BatchSlots, asked: _Asked) -> Iterator[Delivery]:
        """Batches that the workers wrote in their places: handed over together, for nothing is left to do."""
        bounds = asked.rows.bounds.tolist()
        pads = np.add.reduceat(asked.rows.is_pad, bounds[:-1], dtype=np.int64).tolist()
        num_steps = len(pads)
        for number, slot in enumerate(asked.slots):
            first, end = number * slots.num_batches, min((number + 1) * slots.num_batches, num_steps)
            base = bounds[first]
            dense = slots.show(slot, 0, bounds[end] - base)
            cutter = Cutter(dense.structure, dense.join(()))
            for step in range(first, end):
                self._counts.rows += bounds[step + 1] - bounds[step]
                self._counts.pads += pads[step]
                batch = Cut(cutter, bounds[step] - base, bounds[step + 1] - base)
                yield Delivery(batch, asked.epoch, asked.first_step + step, step + 1 < num_steps)

    def _put_together(self, asked: _Asked, chunks: Sequence[Any]) -> Iterator[Delivery]:
        rows = asked.rows
        worker_of_row = workers_of_lanes(rows.lane, self._world_size, self._num_workers)
        delivered: list[IntArray] = []
        is_there = np.zeros(len(rows.row), np.bool_)
        for worker, chunk in enumerate(chunks):
            delivered.append(np.flatnonzero(worker_of_row == worker)[chunk.kept])
            is_there[delivered[worker]] = True
        before = np.concatenate(([0], np.cumsum(is_there)))  # rows that are there before each row
        cuts = [np.searchsorted(numbers, rows.bounds).tolist() for numbers in delivered]
        places = [before[numbers] for numbers in delivered]
        due, bounds = np.diff(rows.bounds).tolist(), before[rows.bounds].tolist()
        pads = np.diff(np.concatenate(([0], np.cumsum(rows.is_pad)))[rows.bounds]).tolist()
        size = batches_of_group(chunks, len(due))

        def cut(j: int, end: int) -> list[Part]:
            parts = []
            for worker, chunk in enumerate(chunks):
                first, stop = cuts[worker][j], cuts[worker][end]
                parts.append(Part(chunk, worker, first, stop, places[worker][first:stop] - bounds[j]))
            return parts

        if asked.lead:
            self._assembler.remember(cut(0, asked.lead))
        j = asked.lead
        while j < len(due):
            end = min(j + size, len(due))
            dense = None
            if self._slots is not None and not self._slots.are_unused(chunks):
                end = min(end, (j // self._slots.num_batches + 1) * self._slots.num_batches)
                dense = self._show(self._slots, asked, j, end, is_there)
            step = asked.first_step + j
            relative = [bound - bounds[j] for bound in bounds[j : end + 1]]
            group = Group(cut(j, end), relative, due[j:end], asked.epoch, step, dense)
            for batch, has_more in self._assembler.assemble(group):
                num_rows = bounds[j + 1] - bounds[j]
                self._counts.rows += num_rows
                self._counts.holes += due[j] - num_rows
                self._counts.pads += pads[j]
                yield Delivery(batch, asked.epoch, step, has_more)
                j, step = j + 1, step + 1

    @staticmethod
    def _show(slots: BatchSlots, asked: _Asked, first: int, end: int, is_there: NDArray[np.bool_]) -> Dense:
        """The dense columns of some batches of one slot."""
        number, bounds = first // slots.num_batches, asked.rows.bounds
        base, start, stop = (int(bounds[step]) for step in (number * slots.num_batches, first, end))
        return slots.show(asked.slots[number], start - base, stop - base, is_there[start:stop])


class Round(NamedTuple):
    """Batches that are loaded together: one list of indices a worker, mixed and cut into batches of `sizes` rows."""

    lists: list[list[Any]]
    sizes: list[int]
    epoch: int
    first_step: int
    skip: int  # batches at its beginning that were delivered before the run was resumed


class MapFeed:
    """Batches of a map-style dataset. `rounds` gives the rounds of all epochs of the pass."""

    def __init__(
        self, link: Link, assembler: Assembler, counts: Counts, rounds: Iterator[Round], num_workers: int
    ) -> None:
        self._link, self._assembler, self._counts, self._rounds = link, assembler, counts, rounds
        self._num_workers = num_workers
        self._asked: deque[Round] = deque()

    def requests(self) -> Iterator[Request]:
        """Each worker is asked for its list of the round, in turn; one that has none for nothing."""
        for batch_round in self._rounds:
            self._asked.append(batch_round)
            for worker in range(self._num_workers):
                indices = batch_round.lists[worker] if worker < len(batch_round.lists) else []
                yield self._link.request(worker, MapWork(indices))

    def batches(self) -> Iterator[Delivery]:
        """The batches, in order."""
        while (received := self._link.receive()) is not None:
            chunks = [received.chunk]
            for _ in range(1, self._num_workers):
                received = self._link.receive()
                if received is None:
                    raise RuntimeError("the workers ended in the middle of a round")
                chunks.append(received.chunk)
            yield from self._mix(self._asked.popleft(), chunks)

    def _mix(self, batch_round: Round, chunks: Sequence[Any]) -> Iterator[Delivery]:
        """The round's items, taken in turn from each worker, cut into batches."""
        counts = [len(indices) for indices in batch_round.lists]
        worker_of_item = np.repeat(np.arange(len(counts)), counts)
        item = np.concatenate([np.arange(count) for count in counts])
        in_turn = np.lexsort((worker_of_item, item))
        place = np.empty(len(in_turn), np.int64)
        place[in_turn] = np.arange(len(in_turn))
        starts = np.concatenate(([0], np.cumsum(counts)))
        bounds = np.concatenate(([0], np.cumsum(batch_round.sizes))).tolist()[batch_round.skip :]
        parts = []
        for worker in range(len(counts)):
            places = place[starts[worker] : starts[worker + 1]]
            first = int(np.searchsorted(places, bounds[0]))
            parts.append(Part(chunks[worker], worker, first, len(places), places[first:] - bounds[0]))
        sizes, step = batch_round.sizes[batch_round.skip :], batch_round.first_step + batch_round.skip
        group = Group(parts, [bound - bounds[0] for bound in bounds], sizes, batch_round.epoch, step)
        for size, (batch, has_more) in zip(sizes, self._assembler.assemble(group), strict=True):
            self._counts.rows += size
            yield Delivery(batch, batch_round.epoch, step, has_more)
            step += 1
