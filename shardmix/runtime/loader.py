"""MixLoader: a torch DataLoader whose batches mix files and workers.

Rule 1: its attributes are the user's values; it is a torch.utils.data.DataLoader, and only how it iterates is its own.
Rule 2: a pass begins with the first batch asked for. Ranks are resolved then, in the main process.
Rule 3: without set_epoch each pass is the next epoch. Only what the user has received counts.

begin.py says how a pass begins for each kind of data set, feeds.py and pulled.py how batches are put together.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
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
from .begin import Run, answers_of, begin, deliver_iterable, deliver_map, deliver_shards, number_of_workers
from .dataset import Opened, ShardDataset
from .feeds import Delivery
from .link import Counts
from .memory import BatchMemory
from .passes import Mixer, MixIterator
from .progress import OwnEpoch, Progress, Start
from .pulled import UserSchedule
from .ranks import World, resolve_world
from .sampler_state import EpochStates, check_resumable, find_generator
from .samples import collate
from .state import Loaded, State, check_state, order_of_map, order_of_shards, state_of_map, state_of_shards
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
        self._is_seeded = False
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
        self._progress = Progress(dataset._epochs if isinstance(dataset, ShardDataset) else OwnEpoch())
        self._lanes: int | None = None  # of a loaded state, where the data set has lanes=None
        self._epoch_states = EpochStates(find_generator(self.batch_sampler) if is_map else None)

    def __iter__(self) -> MixIterator:  # type: ignore[override]
        return MixIterator(self._begin, self._deliver, self.__len__)

    def __len__(self) -> int:
        """Batches of all passes on this rank; TypeError where it cannot be known."""
        if self.schedule is not None:
            raise TypeError("the length of a loader with a schedule is unknown: it depends on what the schedule names")
        if self.repeat is None:
            raise TypeError("the length of a loader with repeat=None is endless")
        if isinstance(self.dataset, ShardDataset):
            plan = self._plan(self.dataset)
            return self.repeat * plan.schedule.num_batches(plan.world.rank)
        return self.repeat * super().__len__()

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next pass; a dataset or sampler that has a set_epoch of its own is told as well.

        After load_state_dict, naming the loaded epoch keeps the loaded place.
        """
        self._progress.set_epoch(epoch)
        for part in (self.dataset, self.sampler, self.batch_sampler):
            tell = getattr(part, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the user stands, as plain numbers and texts: after the batches received so far. Costs microseconds.

        Raises NotImplementedError where the order is not known beforehand, with the reason.
        """
        self._check_resumable()
        place, following = self._progress.place(), self._progress.following(self.repeat)
        if not isinstance(self.dataset, ShardDataset):
            self._seed_own_generator()
            order = self._order_of_map()
            state = state_of_map(place, 0 < order["batches"] <= place.step, following, order)
            return {**state, "generator": self._epoch_states.find(state["epoch"], self._progress.loaded_generator())}
        plan = self._plan(self.dataset, place.first_row)
        is_complete = 0 < plan.schedule.num_batches(plan.world.rank) <= place.step
        return state_of_shards(place, is_complete, following, plan.schedule, plan.order)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the next pass; the passes after it are the epochs after it.

        Raises StateMismatchError, with both sides, when it is of another corpus, seed, lanes or batch.
        """
        self._check_resumable()
        if not isinstance(self.dataset, ShardDataset):
            check_state(state, self._order_of_map())
            self._progress.load(Loaded(state["epoch"], state["pass_epoch"], 0, state["step"], state["generator"]))
            return
        lanes = state.get("lanes") if self.dataset.lanes is None else None
        check_state(state, self._plan(self.dataset, lanes=lanes).order)
        self._lanes = lanes
        self._progress.load(Loaded(state["epoch"], state["pass_epoch"], state["rows"]))

    def stats(self) -> dict[str, Any]:
        """What was delivered and met so far, over all passes: batches, rows, bytes, holes, pads, damages, messages, seconds."""
        return asdict(self._counts)

    def _plan(self, dataset: ShardDataset, first_row: int = 0, lanes: int | None = None) -> ShardPlan:
        """The order of a ShardDataset as this rank sees it now."""
        world = resolve_world(dataset.rank, dataset.world_size)
        opened = dataset._open(world.world_size, lanes or self._lanes)
        schedule = Schedule(
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
        return ShardPlan(world, opened, schedule, order_of_shards(dataset, opened, schedule.global_batch))

    def _begin(self) -> Mixer:
        """Begin a pass: called when its first batch is asked for."""
        start = self._progress.start(self.repeat)
        if isinstance(self.dataset, ShardDataset):
            return self._begin_shards(self.dataset, start)
        generator = self.generator if self.generator is not None else torch.default_generator
        seed = partial(hash64, WORKERS, generator.initial_seed(), self._number)
        workers = self._take_workers(None, self.num_workers)
        run = self._run(start, workers, self._assembler(with_source=False, fill_holes=False), seed)
        if not self._is_map:
            return begin(deliver_iterable(run), workers)
        self._seed_own_generator()
        self._epoch_states.begin(start.epoch, start.generator)
        batches: Any = self.batch_sampler
        return begin(deliver_map(run, batches, self._has_batch_sampler, self._epoch_states.note), workers)

    def _begin_shards(self, dataset: ShardDataset, start: Start) -> Mixer:
        plan = self._plan(dataset, start.first_row)
        num_workers = number_of_workers(self.num_workers, plan.schedule.lanes, plan.world.world_size)
        workers = self._take_workers(plan.opened, num_workers)
        assembler = self._assembler(dataset.with_source, dataset.on_hole == "fill")
        run = self._run(start, workers, assembler, partial(hash64, WORKERS, dataset.seed), dataset.max_corrupt)
        return begin(deliver_shards(run, plan.world, plan.schedule), workers)

    def _run(
        self, start: Start, workers: Workers, assembler: Assembler, seed: Callable[[int], int], max_corrupt: int | None = None
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

    def _deliver(self, delivery: Delivery) -> None:
        """Take down that the user has received a batch."""
        self._progress.deliver(delivery)
        self._counts.batches += 1

    def _seed_own_generator(self) -> None:
        """Seed the sampler's generator, once, from torch's initial seed as it is when it is first needed."""
        if self._own_generator is not None and not self._is_seeded:
            self._is_seeded = True
            self._own_generator.manual_seed(hash64(SAMPLER, torch.initial_seed(), self._number))

    def _order_of_map(self) -> State:
        return order_of_map(self.num_workers, self._has_batch_sampler, super().__len__())

    def _check_resumable(self) -> None:
        """Raise NotImplementedError where the order of a pass is not known beforehand."""
        reason = None
        if not self._is_map and not isinstance(self.dataset, ShardDataset):
            reason = "an iterable dataset cannot be sought; of iterables only ShardDataset has a state"
        elif self.schedule is not None:
            reason = "under `schedule` the rows of a batch depend on all batches before"
        elif not self.in_order:
            reason = "with in_order=False the order depends on time"
        if reason is not None:
            raise NotImplementedError(f"state: {reason}")
        if self._is_map:
            check_resumable(self.batch_sampler)


class ShardPlan(NamedTuple):
    """The order of a ShardDataset for one rank, and what its state must say of it."""

    world: World
    opened: Opened
    schedule: Schedule
    order: State


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
