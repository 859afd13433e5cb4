"""Who answers: the map-style source that lives in the workers of the private DataLoader.

Rule 1: one request, one reply; an exception is a reply as well.
Rule 2: a worker holds its cursor (open files, held records, a user's iterator), never a decision: what to do comes with
the request.
Rule 3: a request of an earlier pass is answered at once, without work.
"""

from __future__ import annotations

import pickle
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch.utils.data._utils.worker as torch_worker
from torch.utils.data import Dataset, get_worker_info

from ..errors import CorruptShardError
from ..format.columns import Allocate, Column, IntArray
from ..format.targets import RowTargets
from ..order.schedule import BatchRows
from .dataset import Opened, RowSource, ShardDataset
from .handoff import Chunk, PrivateBytes, SharedBytes, SlabWriter
from .limits import NOTHING_SPENT, Spent
from .orphans import watch_parent
from .problem import describe_problem
from .requests import MapWork, Reply, Request, ShardWork, SharedSlots, StreamWork, Work
from .samples import Structure, pack_samples
from .shared_rows import SlotFinder

NO_SOURCE: IntArray = np.empty((0, 4), np.int64)


class Answer(NamedTuple):
    """What a source of one kind gives for one piece of work."""

    structure: Structure
    columns: Sequence[Column]
    kept: IntArray
    source: IntArray = NO_SOURCE
    ended: bool = False
    damages: tuple[CorruptShardError, ...] = ()
    spent: Spent = NOTHING_SPENT
    shared_bytes: int = 0  # of rows that were written to slots, beside the columns


class Answers(Protocol):
    """The rows of one kind of data set, in one worker."""

    def begin(self) -> None:
        """Another pass begins: cursors of the one before are void."""
        ...

    def answer(self, work: Work, worker: int, num_workers: int, allocate: Allocate) -> Answer:
        """The rows that the work names, packed into memory from `allocate`."""
        ...

    def close(self) -> None:
        """Give back files and iterators."""
        ...


def workers_of_lanes(lanes: IntArray, world_size: int, num_workers: int) -> IntArray:
    """The worker of its rank that hosts each lane: a rank's lanes, l div world_size, are dealt to its workers in turn."""
    workers: IntArray = lanes // world_size % num_workers
    return workers


class ShardAnswers:
    """Rows of a ShardDataset, from the lanes that the worker hosts."""

    def __init__(self, dataset: ShardDataset, opened: Opened) -> None:
        self._dataset, self._opened = dataset, opened
        self._rows: RowSource | None = None
        self._slots = SlotFinder(opened.schema) if opened.schema is not None else None
        self._next_step = 0

    def begin(self) -> None:
        self._next_step = 0

    def answer(self, work: Work, worker: int, num_workers: int, allocate: Allocate) -> Answer:
        ended = False
        if isinstance(work, StreamWork):
            work, ended = self._next_work(work, num_workers)
        if not isinstance(work, ShardWork):
            raise TypeError(f"a ShardDataset answers no {type(work).__name__}")
        if self._rows is None:
            self._rows = RowSource(self._dataset, self._opened)
        rows, mine = rows_of_worker(work, worker, num_workers)
        targets = self._find_targets(work.shared, mine)
        filled = self._rows.fill(work.epoch, rows, allocate, targets)
        source = NO_SOURCE
        if self._dataset.with_source:
            kept = filled.kept
            source = np.stack((filled.shard, filled.record, rows.lane[kept], rows.is_pad[kept]), axis=1, dtype=np.int64)
        shared_bytes = len(filled.kept) * targets.layout.row_bytes if targets is not None else 0
        return Answer(
            filled.structure, filled.columns, filled.kept, source, ended, filled.damages, filled.spent, shared_bytes
        )

    def close(self) -> None:
        if self._rows is not None:
            self._rows.close()
        if self._slots is not None:
            self._slots.close()

    def _find_targets(self, shared: SharedSlots | None, rows: IntArray) -> RowTargets | None:
        """Where dense rows go; None where that is the slab, as for a worker that has given up the rights of the main process."""
        if shared is None or self._slots is None:
            return None
        try:
            return self._slots.targets(shared, rows)
        except PermissionError:
            self._slots = None
            return None

    def _next_work(self, work: StreamWork, num_workers: int) -> tuple[ShardWork, bool]:
        """The steps after those that this worker gave last, about `num_rows` rows of them."""
        if work.schedule is None:
            raise TypeError("a stream of shards needs its schedule")
        schedule, first = work.schedule, self._next_step
        num_steps = max(1, work.num_rows * num_workers // schedule.batch_size)
        last = schedule.num_batches(work.rank)
        self._next_step = min(last, first + num_steps)
        return ShardWork(work.epoch, work.rank, schedule, first, self._next_step - first), self._next_step == last


def rows_of_worker(work: ShardWork, worker: int, num_workers: int) -> tuple[BatchRows, IntArray]:
    """The worker's part of the rows that the work names, and which of them they are."""
    if work.lanes is not None and work.positions is not None:
        count = len(work.lanes)
        every = np.arange(count)
        rows = BatchRows(every, work.lanes, work.positions, np.zeros(count, np.bool_), np.array([0, count], np.int64))
        return rows, every
    rows = work.schedule.batch_rows(work.rank, work.epoch, work.first_step, work.num_steps)
    mine = np.flatnonzero(workers_of_lanes(rows.lane, work.schedule.world_size, num_workers) == worker)
    own = BatchRows(
        rows.row[mine], rows.lane[mine], rows.position[mine], rows.is_pad[mine], np.searchsorted(mine, rows.bounds)
    )
    return own, mine


class MapAnswers:
    """Items of a map-style dataset."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset

    def begin(self) -> None:
        """An item depends on nothing before it."""

    def close(self) -> None:
        """Nothing to give back."""

    def answer(self, work: Work, worker: int, num_workers: int, allocate: Allocate) -> Answer:
        if not isinstance(work, MapWork):
            raise TypeError(f"a map-style dataset answers no {type(work).__name__}")
        began = time.perf_counter()
        samples = self._load(work.indices)
        return answer_of_samples(samples, allocate, time.perf_counter() - began)

    def _load(self, indices: Sequence[Any]) -> list[Any]:
        load_many = getattr(self._dataset, "__getitems__", None)
        if load_many is not None:
            samples = list(load_many(indices))
            if len(samples) != len(indices):
                raise ValueError(
                    f"{type(self._dataset).__name__}.__getitems__: got {len(samples)} items for {len(indices)} indices, expected "
                    "as many; return an item for each, or leave items out in the sampler"
                )
            return samples
        samples = []
        for index in indices:
            try:
                samples.append(self._dataset[index])
            except Exception as error:
                error.add_note(f"shardmix: raised by {type(self._dataset).__name__}[{index!r}]")
                raise
        return samples


class StreamAnswers:
    """Rows of an iterable dataset, one iterator a pass."""

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        self._iterator: Iterator[Any] | None = None

    def begin(self) -> None:
        self._iterator = None

    def close(self) -> None:
        self._iterator = None

    def answer(self, work: Work, worker: int, num_workers: int, allocate: Allocate) -> Answer:
        if not isinstance(work, StreamWork):
            raise TypeError(f"an iterable dataset answers no {type(work).__name__}")
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        began = time.perf_counter()
        samples = list(islice(self._iterator, work.num_rows))
        return answer_of_samples(samples, allocate, time.perf_counter() - began)._replace(ended=len(samples) < work.num_rows)


def answer_of_samples(samples: list[Any], allocate: Allocate, user_seconds: float) -> Answer:
    """Samples of a user's dataset, packed."""
    began = time.perf_counter()
    structure, columns = pack_samples(samples, allocate)
    spent = Spent(decode=time.perf_counter() - began, user=user_seconds)
    return Answer(structure, columns, np.arange(len(samples)), spent=spent)


class ChunkSource(Dataset[Reply]):
    """The dataset of the private DataLoader: `source[request]` is the reply.

    With shared memory it lives in a worker process, which tells its number; else it is `host` of `num_hosts` threads.
    """

    def __init__(
        self, answers: Answers, num_slabs: int, generation: SharedBytes | PrivateBytes, host: int = 0, num_hosts: int = 1
    ) -> None:
        self._answers = answers
        self._num_slabs = num_slabs
        self._generation = generation  # 8 bytes: the number of the talk at hand, written by the main process
        self._is_shared = isinstance(generation, SharedBytes)
        self._host, self._num_hosts = host, num_hosts
        self._seen_generation = -1
        self._num_counted = 0
        self._slabs: dict[int, SlabWriter] = {}
        self._structure: Structure | None = None
        self._structure_bytes = b""
        self._failure: BaseException | None = None  # of the user's worker_init_fn
        self._answered = 0.0  # when it gave the last answer

    def __len__(self) -> int:
        return 1 << 60

    def __getitem__(self, request: Request) -> Reply:
        info = get_worker_info() if self._is_shared else None
        host, num_hosts = (info.id, info.num_workers) if info else (self._host, self._num_hosts)
        is_stale = bool(self._generation.array.view(np.int64)[0] > request.generation)
        empty = Reply(request.generation, host, request.slab, None, 0, 0, 0.0, False, is_stale, None, ())
        if request.work is None or is_stale:
            return empty
        started = time.perf_counter()
        waiting = started - self._answered if request.generation == self._seen_generation else 0.0
        try:
            if self._failure is not None:
                raise self._failure
            reply = self._reply(request, request.work, host, num_hosts)
        except Exception as error:
            return empty._replace(problem=describe_problem(error, host) if info else error)
        self._answered = time.perf_counter()
        return reply._replace(seconds=self._answered - started, spent=reply.spent._replace(waiting=waiting))

    def fail(self, error: Exception) -> None:
        """From now on every answer is this error."""
        self._failure = error

    def close(self) -> None:
        """Give back files and iterators; slabs stay for the next pass."""
        self._answers.close()

    def _reply(self, request: Request, work: Work, worker: int, num_workers: int) -> Reply:
        if request.generation != self._seen_generation:
            self._seen_generation, self._num_counted = request.generation, 0
            self._answers.begin()
        slab = request.slab if request.slab >= 0 else self._num_counted % self._num_slabs
        self._num_counted += 1
        writer = self._slabs.get(slab)
        if writer is None:
            writer = self._slabs[slab] = SlabWriter(SharedBytes if self._is_shared else PrivateBytes)
        writer.begin()
        given = self._answers.answer(work, worker, num_workers, writer.allocate)
        if self._structure is None or given.structure != self._structure:
            self._structure, self._structure_bytes = given.structure, pickle.dumps(given.structure)
        chunk = Chunk(given.structure, given.columns, given.kept, given.source)
        packed = writer.finish(chunk, self._structure_bytes)
        if packed.slab_bytes == request.known_bytes:
            packed = packed._replace(address=None)
        num_bytes = writer.num_bytes + given.shared_bytes
        rows, spent = chunk.num_rows, given.spent
        return Reply(
            request.generation, worker, slab, packed, rows, num_bytes, 0.0, given.ended, False, None, given.damages, spent
        )


class WorkerInit:
    """The worker_init_fn of the private DataLoader: shows the user's dataset in get_worker_info(), then calls the user's.

    Ctrl-C reaches every process of the terminal; it is the main process that ends the workers then. (The handler does nothing,
    instead of the signal being ignored, since programs that a worker starts would inherit that.)
    """

    def __init__(self, dataset: Any, user_init: Callable[[int], None] | None) -> None:
        self._dataset, self._user_init = dataset, user_init

    def __call__(self, worker: int) -> None:
        signal.signal(signal.SIGINT, _leave_to_the_main_process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})  # as it was started with it blocked
        watch_parent()
        info = torch_worker._worker_info
        if info is None:
            raise RuntimeError("the worker_init_fn of the private loader is for worker processes")
        source: Any = info.dataset
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=info.id, num_workers=info.num_workers, seed=info.seed, dataset=self._dataset
        )
        if self._user_init is not None:
            try:
                self._user_init(worker)
            except Exception as error:
                source.fail(error)


def _leave_to_the_main_process(signal_number: int, frame: Any) -> None:
    """Handle a signal by doing nothing."""
