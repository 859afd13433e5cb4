"""MixLoader: a torch DataLoader whose batches mix files and workers.

Rule 1: its attributes are the user's values; it is a torch.utils.data.DataLoader, and only how it iterates is its own.
Rule 2: a pass begins with the first batch asked for. Ranks are resolved then, in the main process.
Rule 3: without set_epoch each pass is the next epoch. Only what the user has received counts.

begin.py says how a pass begins for each kind of data set, feeds.py and pulled.py how batches are put together.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from functools import partial
from itertools import count as count_up
from typing import Any

import torch
from torch.utils.data import DataLoader, RandomSampler
from torch.utils.data._utils.collate import default_collate

from ..order.hashing import WORKERS, hash64
from .assemble import Assembler
from .begin import Run, begin, deliver_iterable, deliver_map, deliver_shards, number_of_workers
from .damages import DamageLog, SkipBudget
from .dataset import ShardDataset
from .keeping import Keeper
from .limits import Counts, UserClock, describe_limit
from .passes import Mixer, MixIterator
from .progress import Loaded, OwnEpoch, Place, Progress, Start
from .pulled import UserSchedule
from .receiver import Receiver
from .sampler_state import SamplerState
from .samples import collate
from .settings import SEED_LIMIT, check_loader_arguments, integer
from .shard_plan import Batching, ShardPlan, plan_shards, read_place
from .state import State, check_state
from .workers import Hosts

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

    # Accelerate then leaves the loader as it is: it would take the dataset out and lose rows. What it asks of its own loaders:
    _is_accelerate_prepared = True
    end_of_dataloader = False  # see gradients.py
    remainder = 0

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
        check_loader_arguments(batch_size, batch_sampler, uneven, schedule, repeat, in_order)
        if shuffle and isinstance(dataset, ShardDataset):
            raise ValueError("shuffle=True: a ShardDataset shuffles by itself, unless it has shuffle=False; leave it out here")
        is_map = not isinstance(dataset, torch.utils.data.IterableDataset)
        is_own = is_map and bool(shuffle) and generator is None and sampler is None and batch_sampler is None
        own_generator = torch.Generator() if is_own else None
        if is_own:  # torch's sampler would draw its seed from the global generator
            sampler, shuffle = RandomSampler(dataset, generator=own_generator), None
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
        self._has_batch_sampler = batch_sampler is not None
        self._number = next(_loader_numbers)
        self._counts = Counts()
        self._keeper = Keeper(is_map)
        self._progress = Progress(dataset._epochs if isinstance(dataset, ShardDataset) else OwnEpoch())
        self._lanes: int | None = None  # of a loaded state, where the data set has lanes=None
        self._plan: ShardPlan | None = None  # of the pass that began last, over a ShardDataset
        self._sampler_state = SamplerState(self.batch_sampler, own_generator, self._number) if is_map else None

    def __iter__(self) -> MixIterator:  # type: ignore[override]
        user = Receiver(self, self._progress, self._begin, self._is_last)
        return MixIterator(user.begin, user.deliver, self.__len__, UserClock(self._counts))

    def __len__(self) -> int:
        """Batches of all passes on this rank; of whole passes, also after load_state_dict. TypeError where it cannot be known."""
        if self.schedule is not None:
            raise TypeError("the length of a loader with a schedule is unknown: it depends on what the schedule names")
        if self.repeat is None:
            raise TypeError("the length of a loader with repeat=None is endless")
        if isinstance(self.dataset, ShardDataset):
            return self.repeat * plan_shards(self.dataset, self._batching(), lanes=self._lanes).num_batches
        return self.repeat * super().__len__()

    def __repr__(self) -> str:
        text = f"{type(self).__name__}({self.dataset!r}, batch_size={self.batch_size}, num_workers={self.num_workers})"
        if not isinstance(self.dataset, ShardDataset):
            return text
        plan = plan_shards(self.dataset, self._batching(), lanes=self._lanes)
        return f"{text}: {plan.describe(self.num_workers, self.prefetch_factor)}"

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` that of the next pass; a dataset or sampler that has a set_epoch of its own is told as well.

        After load_state_dict, naming the loaded epoch keeps the loaded place, naming another drops it.

        Raises TypeError, ValueError for what is no epoch.
        """
        epoch = integer(0, SEED_LIMIT)("epoch", epoch)
        self._progress.set_epoch(epoch)
        self._tell_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the user stands, as plain numbers and texts: after the batches received so far. Costs microseconds.

            checkpoint["loader"] = loader.state_dict()      # json.dumps takes it, torch.save too

        The same on every rank. At the end of an epoch it is the beginning of the next.

        Raises NotImplementedError where the order is not known beforehand, with the reason.
        """
        self._check_resumable()
        if self._sampler_state is not None:
            return self._sampler_state.state(self._progress, self.repeat, self._order_of_map(self._sampler_state))
        place, plan = self._progress.place(), self._plan
        if plan is None or not self._progress.is_under_way:
            dataset: Any = self.dataset
            plan = plan_shards(dataset, self._batching(), place.first_row, self._lanes)
        else:
            plan = self._plan = plan.beginning_at(place.first_row)
        return plan.state(self._progress, self.repeat)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state in the next pass; the passes after it are the epochs after it.

            loader.load_state_dict(checkpoint["loader"])    # also with other num_workers, or on another number of ranks

        A data set with lanes=None takes the lanes of the state. Another batch_size goes on at the same row, where no order
        depends on it.

        Raises StateMismatchError, with both sides, when it is of another corpus, seed, lanes or batch; NotImplementedError as
        state_dict does.
        """
        self._check_resumable()
        if isinstance(self.dataset, ShardDataset):
            place, self._lanes = read_place(state, self.dataset, self._batching())
            self._progress.load(Loaded(place))
            return
        if self._sampler_state is not None:
            check_state(state, self._order_of_map(self._sampler_state))
        self._progress.load(Loaded(Place(state["epoch"], state["pass_epoch"], 0, state["step"]), state["generator"]))
        self._tell_epoch(state["epoch"])

    @property
    def use_stateful_dataloader(self) -> bool:
        """Whether Accelerate's save_state and load_state include this loader: they do where it has a state."""
        return self._find_obstacle() is None

    def stats(self) -> dict[str, Any]:
        """What was delivered and met so far, over all passes, where the time went, and a sentence on what limits.

            print(loader.stats()["limit"])

        batches, rows, bytes, holes, pads, damages (records that were skipped), messages, slabs_attached: counts.
        seconds_starting, seconds_waiting, seconds_user: of the thread that iterates: until the first batch of each pass, waiting
            for the others, and in the user's own code between batches.
        seconds_mixing, seconds_mixer_waiting: of the mixer: putting batches together, waiting for workers.
        workers: for each its seconds in read, decode, user (parse, transform, the user's dataset), other, waiting.
        limit: what limits, and what to change.
        """
        return {**asdict(self._counts), "limit": describe_limit(self._counts, self.num_workers)}

    def _batching(self) -> Batching:
        return Batching(self.batch_size or 1, self.drop_last, self.uneven)

    def _begin(self, start: Start) -> Mixer:
        """Begin a pass: called when its first batch is asked for."""
        if isinstance(self.dataset, ShardDataset):
            return self._begin_shards(self.dataset, start)
        generator = self.generator if self.generator is not None else torch.default_generator
        seed = partial(hash64, WORKERS, generator.initial_seed(), self._number)
        assembler = self._keeper.make_assembler(self, self._user_collate_fn, with_source=False, fill_holes=False)
        workers = self._keeper.take_workers(self, None, self.num_workers)
        run = self._run(start, workers, assembler, seed, SkipBudget(DamageLog()))
        if self._sampler_state is None:
            return begin(deliver_iterable(run), workers, ahead=self.num_workers > 0)
        self._sampler_state.begin(start)
        batches: Any = self.batch_sampler
        deliveries = deliver_map(run, batches, self._has_batch_sampler, self._sampler_state.note)
        return begin(deliveries, workers, ahead=self.num_workers > 0)

    def _begin_shards(self, dataset: ShardDataset, start: Start) -> Mixer:
        plan = self._plan = plan_shards(dataset, self._batching(), start.place.first_row, self._lanes)
        num_workers = number_of_workers(self.num_workers, plan.schedule.lanes, plan.world.world_size)
        assembler = self._keeper.make_assembler(
            self, self._user_collate_fn, dataset.with_source, fill_holes=dataset.on_hole == "fill"
        )
        workers = self._keeper.take_workers(self, plan.opened, num_workers)
        skips = SkipBudget(dataset._damage_log, dataset.max_corrupt)
        run = self._run(start, workers, assembler, partial(hash64, WORKERS, dataset.seed), skips)
        run = replace(run, slots=self._keeper.take_slots(self, assembler, plan.opened, num_workers))
        return begin(deliver_shards(run, plan.world, plan.schedule), workers, ahead=True)

    def _run(
        self, start: Start, workers: Hosts, assembler: Assembler, seed: Callable[[int], int], skips: SkipBudget
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
            skips=skips,
            seed=seed,
        )

    def _is_last(self, place: Place) -> bool:
        """Whether the batch that brought the user to a place is the last of its pass, where that can be known."""
        if self.repeat is None or place.epoch + 1 < place.pass_epoch + self.repeat or self.schedule is not None:
            return False
        if self._plan is not None:
            return place.step == self._plan.beginning_at(place.first_row).num_batches
        return self._sampler_state is not None and place.step == self._sampler_state.num_batches

    def _tell_epoch(self, epoch: int) -> None:
        for part in (self.dataset, self.sampler, self.batch_sampler):
            tell = getattr(part, "set_epoch", None)
            if tell is not None:
                tell(epoch)

    def _order_of_map(self, sampler_state: SamplerState) -> State:
        batch_size = None if self._has_batch_sampler else self.batch_size
        return sampler_state.order(self.num_workers, batch_size, self.dataset)

    def _check_resumable(self) -> None:
        """Raise NotImplementedError where the order of a pass is not known beforehand."""
        obstacle = self._find_obstacle()
        if obstacle is not None:
            raise NotImplementedError(f"state: {obstacle}")

    def _find_obstacle(self) -> str | None:
        """Why there is no state, or None."""
        if self._sampler_state is None and not isinstance(self.dataset, ShardDataset):
            return "an iterable dataset cannot be sought; of iterables only ShardDataset has a state"
        if self.schedule is not None:
            return "under `schedule` the rows of a batch depend on all batches before"
        if not self.in_order:
            return "with in_order=False the order depends on time"
        return None if self._sampler_state is None else self._sampler_state.find_obstacle()
