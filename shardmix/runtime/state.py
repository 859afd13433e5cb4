"""The state of a run: where it stands, and what its order depends on; a handful of plain numbers and one digest.

Rule 1: a state holds no buffer, no path and no time: a corpus that was moved or copied still resumes.
Rule 2: everything that decides the order is in it, in one list (`order_of_shards`). What differs is an error that shows both
sides.
Rule 3: the format is API: a change of it, or of the order, is a new VERSION and a changelog entry.
Rule 4: where an epoch is complete the state says so as row 0 of the next.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..errors import StateMismatchError
from ..order.schedule import Schedule
from .dataset import Opened, ShardDataset

VERSION = 1

State = dict[str, Any]


class Place(NamedTuple):
    """How far the user has come in an epoch: `step` batches, the first of which began at `first_row`."""

    epoch: int
    pass_epoch: int  # in which the pass began, under `repeat`
    first_row: int = 0
    step: int = 0


def order_of_shards(dataset: ShardDataset, opened: Opened, global_batch: int) -> State:
    """What the order of a ShardDataset depends on."""
    plan = opened.plan
    return {
        "seed": plan.seed,
        "shuffle": plan.shuffle,
        "lanes": plan.lanes,
        "lane_buffer": plan.shuffle_buffer_size // plan.lanes if plan.shuffle else 0,
        "cycle_length": plan.effective_cycle_length,
        "block_length": plan.block_length,
        "global_batch": global_batch if global_batch < plan.lanes else None,
        "take": dataset.num_taken,
        "split": [[share.name, list(share.split.names), share.split.numbers] for share in opened.shares],
        "records": plan.num_records,
        "shards": len(plan.counts),
        "digest": opened.index.digest(),
    }


def check_state(state: Mapping[str, Any], order: State) -> None:
    """Raise StateMismatchError with both sides when the state is of another order, or of another version."""
    version = state.get("version")
    if version != VERSION:
        raise StateMismatchError(
            f"state: version {version!r}, this release reads version {VERSION}; resume with the release that saved it",
            differences={"version": (version, VERSION)},
        )
    differences = {name: (state.get(name), value) for name, value in order.items() if state.get(name) != value}
    if differences:
        lines = [f"{name}: state {saved!r}, loader {own!r}" for name, (saved, own) in differences.items()]
        raise StateMismatchError(
            "state: it is of another order than the loader's; " + "; ".join(lines) + ". Give the loader the values of the state, "
            "or begin anew without it",
            differences=differences,
        )


def state_of_shards(place: Place, is_complete: bool, following: Place, schedule: Schedule, order: State) -> State:
    """The state at a place of a ShardDataset; where the epoch is complete, at the beginning of the `following` one."""
    rows = 0 if is_complete else min(place.first_row + place.step * schedule.global_batch, schedule.stop_row)
    at = following if is_complete else place
    return {"version": VERSION, "epoch": at.epoch, "rows": rows, "pass_epoch": at.pass_epoch, **order}


def order_of_map(num_workers: int, is_whole: bool, num_batches: int) -> State:
    """What the batches of a map-style dataset depend on, besides its sampler; `is_whole`: they are of a user's batch_sampler."""
    return {"kind": "map", "num_workers": 0 if is_whole else max(1, num_workers), "batches": num_batches}


def state_of_map(place: Place, is_complete: bool, following: Place, order: State) -> State:
    """The state at a place of a map-style dataset, without that of its sampler."""
    at = following if is_complete else place
    return {"version": VERSION, "epoch": at.epoch, "step": 0 if is_complete else place.step, "pass_epoch": at.pass_epoch, **order}


class Loaded(NamedTuple):
    """A place that was loaded, for the next pass."""

    epoch: int
    pass_epoch: int  # in which the pass began, under `repeat`
    first_row: int = 0
    skip: int = 0  # batches of a map-style epoch
    generator: str | None = None  # of its sampler, as the epoch began
