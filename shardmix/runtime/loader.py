"""MixLoader: a torch DataLoader whose batches mix files and workers.

Rule 1: its attributes are the user's values; it is a torch.utils.data.DataLoader, and only how it iterates is its own.
Rule 2: a pass begins with the first batch asked for. Ranks are resolved then, in the main process.
Rule 3: without set_epoch each pass is the next epoch. Only what the user has received counts.

begin.py says how a pass begins for each kind of data set, feeds.py and pulled.py how batches are put together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from itertools import count as count_up
from typing import Any, NamedTuple

import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data._utils.collate import default_collate

from ..order.hashing import SAMPLER, WORKERS, hash64
from ..order.schedule import UNEVEN, Schedule
from .assemble import Assembler
from .begin import Run, Start, answers_of, begin, deliver_iterable, deliver_map, deliver_shards, number_of_workers
from .dataset import Opened, ShardDataset
from .feeds import Delivery
from .link import Counts
from .memory import BatchMemory
from .passes import Mixer, MixIterator
from .pulled import UserSchedule
from .ranks import World, resolve_world
from .samples import collate
from .workers import Workers

_loader_numbers = count_up()


class MixLoader(DataLoader[Any]):
    """Batches of a data set, each mixed from all workers, and for a ShardDataset from all its files.

        loader = MixLoader(ShardDataset("corpus/*.tfrecord"), batch_size=256, num_workers=4)
        for batch in loader: ...

    dataset: a ShardDataset, or any map-style or iterable dataset.
    batch_size: rows of a batch, on each rank.
    drop_last: drop the last global batch unless it has all its rows; under `schedule`, every batch that is shortened.
    collate_fn: called in the main process, once a batch, with its samples; None makes tensors of columns without samples.
    uneven: "pad" repeats rows so that every rank has as many in the last batch, "drop" drops a last batch that has no row for
        some rank, "allow" lets ranks differ.
    schedule: `schedule(step, remaining)` gives the lane of each row of a batch (for other data sets the worker); a pure
        function. `remaining` has the rows left of each, None where unknown. Lanes are numbered on their rank.
    repeat: passes in a row, None for endless. No batch crosses an epoch.
    in_order: False hands rows over as workers have them, in no fixed order.
    shuffle, sampler, batch_sampler, generator: for map-style datasets, as in torch; else None (or False).
    num_workers, pin_memory, prefetch_factor (chunks of each worker that are on their way), persistent_workers, timeout,
        worker_init_fn, multiprocessing_context: as in torch's DataLoader.

    Raises ValueError and TypeError for wrong arguments. Iterating raises what the workers met, with the worker's traceback as
    cause: CorruptShardError, ParseError, an exception of the user's dataset; RuntimeError for a worker that died.
    """

    # Accelerate then leaves the loader as it is: it would take the dataset out and lose rows
    _is_accelerate_prepared = True

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        *,
        num_workers: int = 0,
        drop_last: bool = False,
        collate_fn: Callable[[list[Any]], Any] | None = None,
        pin_memory: bool = False,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        timeout: float = 0,
        worker_init_fn: Callable[[int], None] | None = None,
        multiprocessing_context: Any = None,
        generator: torch.Generator | None = None,
        in_order: bool = True,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        uneven: str = "pad",
        schedule: UserSchedule | None = None,
        repeat: int | None = 1,
    ) -> None:
        _check_arguments(batch_size, batch_sampler, uneven, schedule, repeat, in_order)
        self._own_generator: torch.Generator | None = None
        is_map = not isinstance(dataset, torch.utils.data.IterableDataset)
        if is_map and shuffle and generator is None and sampler is None and batch_sampler is None:
            # torch's sampler would draw its seed from the global generator
            self._own_generator = torch.Generator()
            sampler, shuffle = RandomSampler(dataset, generator=self._own_generator), None
        super().__init__(
            dataset,
            batch_size=batch_size,
            shuffle=shuffle,
            sampler=sampler,
            batch_sampler=batch_sampler,
            num_workers=num_workers,
            collate_fn=collate_fn,
            pin_memory=pin_memory,
            drop_last=drop_last,
            timeout=timeout,
            worker_init_fn=worker_init_fn,
            multiprocessing_context=multiprocessing_context,
            generator=generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            in_order=in_order,
        )
        self.uneven, self.schedule, self.repeat = uneven, schedule, repeat
        self._user_collate_fn = collate_fn if collate_fn not in (collate, default_collate) else None
        self._is_map, self._has_batch_sampler = is_map, batch_sampler is not None
        self._number = next(_loader_numbers)
        self._counts = Counts()
        self._memory: BatchMemory | None = None
        self._workers: Workers | None = None
        self._next_epoch = 0  # of data sets that do not count their epochs themselves
        self._place = Place(0, 0, 0)

    def __iter__(self) -> MixIterator:  # type: ignore[override]
        return MixIterator(self._begin, self._deliver, self.__len__)

    def __len__(self) -> int:
        """Batches of all passes on this rank; TypeError where it cannot be known."""
        if self.schedule is not None:
            raise TypeError("the length of a loader with a schedule is unknown: it depends on what the schedule names")
        if self.repeat is None:
            raise TypeError("the length of a loader with repeat=None is endless")
        if isinstance(self.dataset, ShardDataset):
            world = resolve_world(self.dataset.rank, self.dataset.world_size)
            return self.repeat * self._plan_schedule(world, self.dataset._open(world.world_size)).num_batches(world.rank)
        return self.repeat * super().__len__()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next pass; a dataset or sampler that has a set_epoch of its own is told as well."""
        self._next_epoch = epoch
        for part in (self.dataset, self.sampler, self.batch_sampler):
            tell = getattr(part, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def stats(self) -> dict[str, Any]:
        """What was delivered and met so far, over all passes: batches, rows, bytes, holes, pads, damages, messages, seconds."""
        return asdict(self._counts)

    def _plan_schedule(self, world: World, opened: Opened, first_row: int = 0) -> Schedule:
        return Schedule(
            num_records=opened.plan.num_records,
            lanes=opened.plan.lanes,
            batch_size=self.batch_size or 1,
            world_size=world.world_size,
            drop_last=self.drop_last,
            uneven=self.uneven,
            seed=opened.plan.seed,
            num_rows=opened.num_rows,
            first_row=first_row,
        )

    def _begin(self) -> Mixer:
        """Begin a pass: called when its first batch is asked for."""
        start = self._start()
        if isinstance(self.dataset, ShardDataset):
            return self._begin_shards(self.dataset, start)
        workers = self._take_workers(None, self.num_workers)
        run = self._run(start, workers, self._assembler(with_source=False, fill_holes=False), self._seed_of_epoch)
        if not self._is_map:
            return begin(deliver_iterable(run), workers)
        if self._own_generator is not None:
            self._own_generator.manual_seed(hash64(SAMPLER, torch.initial_seed(), self._number, start.epoch))
        batches: Any = self.batch_sampler
        return begin(deliver_map(run, batches, self._has_batch_sampler), workers)

    def _begin_shards(self, dataset: ShardDataset, start: Start) -> Mixer:
        world = resolve_world(dataset.rank, dataset.world_size)
        opened = dataset._open(world.world_size)
        schedule = self._plan_schedule(world, opened, start.first_row)
        workers = self._take_workers(opened, number_of_workers(self.num_workers, schedule.lanes, world.world_size))
        assembler = self._assembler(dataset.with_source, dataset.on_hole == "fill")
        run = self._run(start, workers, assembler, partial(hash64, WORKERS, dataset.seed), dataset.max_corrupt)
        return begin(deliver_shards(run, world, schedule), workers)

    def _run(
        self,
        start: Start,
        workers: Workers,
        assembler: Assembler,
        seed: Callable[[int], int],
        max_corrupt: int | None = None,
    ) -> Run:
        return Run(
            start=start,
            workers=workers,
            assembler=assembler,
            counts=self._counts,
            batch_size=self.batch_size or 1,
            drop_last=self.drop_last,
            in_order=self.in_order or self.num_workers == 0,
            schedule=self.schedule,
            max_corrupt=max_corrupt,
            seed=seed,
        )

    def _assembler(self, with_source: bool, fill_holes: bool) -> Assembler:
        can_pin = self.pin_memory and torch.accelerator.is_available()
        if self.pin_memory and not can_pin:
            warnings.warn(
                "'pin_memory' argument is set as true but no accelerator is found, then device pinned memory won't be used.",
                stacklevel=5,
            )
        if self._memory is None:
            self._memory = BatchMemory(can_pin)
        return Assembler(self._memory, self._user_collate_fn, with_source, fill_holes)

    def _take_workers(self, opened: Opened | None, num_workers: int) -> Workers:
        """Workers for one pass: those that persist, where they are free; else new ones."""
        kept = self._workers
        if kept is not None and not kept.is_busy and kept.num_workers == num_workers and kept.opened is opened:
            kept.is_busy = True
            return kept
        workers = Workers(
            self.dataset,
            answers_of(self.dataset, opened, self._is_map),
            num_workers,
            opened=opened,
            prefetch_factor=self.prefetch_factor or 2,
            persistent=self.persistent_workers and (kept is None or not kept.is_busy),
            in_order=self.in_order,
            timeout=self.timeout,
            worker_init_fn=self.worker_init_fn,
            context=self.multiprocessing_context,
        )
        workers.is_busy = True
        if workers.persistent:
            if kept is not None:
                kept.close()
            self._workers = workers
        return workers

    def _start(self) -> Start:
        """Where the next pass begins; from now on the pass after it is the epoch after it."""
        epoch = self._epoch_of_next_pass()
        self._set_next_epoch(epoch + 1)
        self._place = Place(epoch, 0, 0)
        return Start(epoch, 0, 0, self.repeat)

    def _deliver(self, delivery: Delivery) -> None:
        """Take down that the user has received a batch."""
        if delivery.epoch != self._place.epoch:
            self._place = Place(delivery.epoch, 0, 0)
            self._set_next_epoch(delivery.epoch + 1)
        self._place = self._place._replace(step=delivery.step + 1)
        self._counts.batches += 1

    def _epoch_of_next_pass(self) -> int:
        return self.dataset._epochs.next_epoch if isinstance(self.dataset, ShardDataset) else self._next_epoch

    def _set_next_epoch(self, epoch: int) -> None:
        if isinstance(self.dataset, ShardDataset):
            self.dataset._epochs.set(epoch)
        else:
            self._next_epoch = epoch

    def _seed_of_epoch(self, epoch: int) -> int:
        """A seed for the workers of other data sets, from the user's generator as in torch, else from torch's initial seed."""
        if self.generator is not None:
            return int(torch.empty((), dtype=torch.int64).random_(generator=self.generator).item())
        return hash64(WORKERS, torch.initial_seed(), self._number, epoch)


class Place(NamedTuple):
    """How far the user has come in an epoch: `step` batches, the first of which began at `first_row`."""

    epoch: int
    first_row: int
    step: int


def _check_arguments(
    batch_size: int | None, batch_sampler: Any, uneven: str, schedule: Any, repeat: int | None, in_order: bool
) -> None:
    if batch_sampler is None and batch_size is None:
        raise ValueError("batch_size=None: MixLoader makes batches, give their size; for single samples use torch's DataLoader")
    if uneven not in UNEVEN:
        raise ValueError(f"uneven={uneven!r}: expected one of {', '.join(map(repr, UNEVEN))}")
    if repeat is not None and (not isinstance(repeat, int) or repeat < 1):
        raise ValueError(f"repeat={repeat!r}: expected a number of passes, at least 1, or None for endless")
    if schedule is not None and not callable(schedule):
        raise TypeError(f"schedule={schedule!r}: expected a function of (step, remaining)")
    if schedule is not None and not in_order:
        raise ValueError("schedule with in_order=False: a schedule is an order; give one of the two")
    if schedule is not None and batch_sampler is not None:
        raise ValueError("schedule with batch_sampler: both choose the rows of a batch; give one of the two")
