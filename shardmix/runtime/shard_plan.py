"""The order of a ShardDataset as one rank sees it, and the state that stands for a place in it.

Rule 1: the ranks are resolved when a plan is made. A place in a pass is told by the plan of that pass, whatever became of the
ranks since: a process group may be gone when the last state is saved.
Rule 2: what does not change in a pass is worked out once, so that a state costs microseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..errors import StateMismatchError
from ..order.schedule import Schedule
from .dataset import Opened, ShardDataset
from .needs import PREFETCH_FACTOR, format_bytes, needs_of_plan
from .progress import Place, Progress
from .ranks import World, resolve_world
from .state import State, check_state, check_version, order_of_shards, state_of_shards


@dataclass(frozen=True)
class Batching:
    """What a loader says about its batches."""

    batch_size: int
    drop_last: bool
    uneven: str


@dataclass(frozen=True)
class ShardPlan:
    """The order of a ShardDataset for one rank, and what its state must say of it."""

    world: World
    opened: Opened
    schedule: Schedule
    num_batches: int  # of this rank, from the schedule's first row on
    order: State

    def beginning_at(self, first_row: int) -> ShardPlan:
        """The same order from another row on."""
        if first_row == self.schedule.first_row:
            return self
        schedule = replace(self.schedule, first_row=first_row)
        return replace(self, schedule=schedule, num_batches=schedule.num_batches(self.world.rank))

    def describe(self, num_workers: int, prefetch_factor: int | None) -> str:
        """What a run of it uses, for people."""
        plan, world_size = self.opened.plan, self.world.world_size
        factor = prefetch_factor or PREFETCH_FACTOR
        needs = needs_of_plan(self.opened.index, plan, self.schedule.batch_size, num_workers, world_size, factor)
        hosts = f"{min(num_workers, plan.lanes // world_size)} workers" if num_workers else "threads of this process"
        ranks = f" of {world_size} ranks" if world_size > 1 else ""
        buffer = f"shuffle buffer of {plan.shuffle_buffer_size} records" if plan.shuffle else "no shuffle"
        return (
            f"{plan.lanes} lanes{ranks} on {hosts}, at most {needs.open_files} open files, {buffer} "
            f"({format_bytes(needs.buffer_bytes)}), {format_bytes(needs.bytes)} in all"
        )

    def state(self, progress: Progress, repeat: int | None) -> State:
        """The state where the user stands; the plan begins at the first row of the place."""
        place = progress.place()
        if progress.has_ended or 0 < self.num_batches <= place.step:
            return state_of_shards(progress.following(repeat), 0, self.order)
        schedule = self.schedule
        rows = min(schedule.first_row + place.step * schedule.global_batch, schedule.stop_row)
        return state_of_shards(place, rows, self.order)


def plan_shards(dataset: ShardDataset, batching: Batching, first_row: int = 0, lanes: int | None = None) -> ShardPlan:
    """The plan of this rank, as the ranks are now; `lanes` stands in for lanes=None."""
    world = resolve_world(dataset.rank, dataset.world_size)
    opened = dataset._open(world.world_size, lanes)
    schedule = Schedule(
        num_records=opened.plan.num_records,
        lanes=opened.plan.lanes,
        batch_size=batching.batch_size,
        world_size=world.world_size,
        drop_last=batching.drop_last,
        uneven=batching.uneven,
        seed=opened.plan.seed,
        num_rows=opened.num_rows,
        first_row=first_row,
    )
    order = order_of_shards(dataset, opened, schedule.global_batch)
    return ShardPlan(world, opened, schedule, schedule.num_batches(world.rank), order)


def read_place(state: Mapping[str, Any], dataset: ShardDataset, batching: Batching) -> tuple[Place, int | None]:
    """The place that a state names, and its lanes where the data set has lanes=None. Raises StateMismatchError."""
    check_version(state)
    lanes = state.get("lanes") if dataset.lanes is None else None
    world_size = resolve_world(dataset.rank, dataset.world_size).world_size
    if lanes is not None and lanes % world_size:
        raise StateMismatchError(
            f"state: its {lanes} lanes cannot be shared equally by the {world_size} ranks here; resume on a number of ranks that "
            f"divides {lanes}, or begin without the state",
            differences={"lanes": (lanes, None), "world_size": (None, world_size)},
        )
    check_state(state, plan_shards(dataset, batching, lanes=lanes).order)
    return Place(state["epoch"], state["pass_epoch"], state["rows"]), lanes
