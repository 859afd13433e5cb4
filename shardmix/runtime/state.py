"""The state of a run: where it stands, and what its order depends on; a handful of plain numbers and one digest.

Rule 1: a state holds no buffer, no path and no time: a corpus that was moved or copied still resumes.
Rule 2: everything that decides the order is in it, in one list (`order_of_shards`). What differs is an error that shows both
sides.
Rule 3: the format is API: a change of it, or of the order, is a new VERSION and a changelog entry.
Rule 4: where an epoch is complete the state says so as row 0 of the next.

    kind "shards"   of a MixLoader over a ShardDataset: the row of the epoch, over all ranks
    kind "stream"   of a ShardDataset in a plain DataLoader: the rows that one worker has passed
    kind "map"      of a MixLoader over a map-style dataset: batches, and the state of the sampler's generator
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import StateMismatchError

if TYPE_CHECKING:
    from .dataset import Opened, ShardDataset
    from .progress import Place

VERSION = 1

# What the user calls it, where that is another name than the state's
_NAMES = {
    "lane_buffer": "shuffle_buffer_size // lanes",
    "global_batch": "batch_size · world_size where that is less than lanes",
    "digest": "digest of the names, counts and compression of the shards",
}

State = dict[str, Any]


def order_of_shards(dataset: ShardDataset, opened: Opened, global_batch: int | None) -> State:
    """What the order of a ShardDataset depends on; global_batch: None where no batches are made."""
    plan = opened.plan
    return {
        "kind": "stream" if global_batch is None else "shards",
        "seed": plan.seed,
        "shuffle": plan.shuffle,
        "lanes": plan.lanes,
        "lane_buffer": plan.lane_buffer_size,
        "cycle_length": plan.effective_cycle_length,
        "block_length": plan.block_length,
        "global_batch": global_batch if global_batch is not None and global_batch < plan.lanes else None,
        "take": dataset.num_taken,
        "split": [[share.name, list(share.split.names), share.split.numbers] for share in opened.shares],
        "records": plan.num_records,
        "shards": len(plan.counts),
        "digest": opened.index.digest(),
    }


def state_of_shards(place: Place, rows: int, order: State) -> State:
    """The state at a row of a ShardDataset's epoch."""
    return {"version": VERSION, "epoch": place.epoch, "rows": rows, "pass_epoch": place.pass_epoch, **order}


def order_of_map(num_workers: int, batch_size: int | None, num_batches: int | None, num_items: int | None) -> State:
    """What the batches of a map-style dataset depend on, besides its sampler; batch_size None: they are of a user's
    batch_sampler, which the workers do not change. What is not known is None."""
    workers = None if batch_size is None else max(1, num_workers)
    return {"kind": "map", "num_workers": workers, "batch_size": batch_size, "batches": num_batches, "items": num_items}


def state_of_map(place: Place, generator: str | None, order: State) -> State:
    """The state at a place of a map-style dataset, and its sampler's generator as the epoch began."""
    head = {"version": VERSION, "epoch": place.epoch, "step": place.step, "pass_epoch": place.pass_epoch}
    return {**head, "generator": generator, **order}


def check_state(state: Mapping[str, Any], order: State) -> None:
    """Raise StateMismatchError with both sides when the state is of another order, of another kind, or of another version."""
    check_version(state)
    differences = {name: (state.get(name), value) for name, value in order.items() if state.get(name) != value}
    if "kind" in differences:
        differences = {"kind": differences["kind"]}
    if differences:
        lines = [
            f"{_NAMES.get(name, name)}: state {_show(name, saved, state)}, here {_show(name, own, order)}"
            for name, (saved, own) in differences.items()
        ]
        raise StateMismatchError(
            f"state: it is of another order than the one here; {'; '.join(lines)}. Give the values of the state, or begin "
            "without it",
            differences=differences,
        )


def _show(name: str, value: Any, order: Mapping[str, Any]) -> str:
    """A value for people: no global batch is one that has a row of every lane."""
    return f"{order.get('lanes')} or more" if name == "global_batch" and value is None else repr(value)


def check_version(state: Mapping[str, Any]) -> None:
    """Raise StateMismatchError when the state was written in another format, or is none."""
    if "version" not in state:
        raise StateMismatchError(
            f"state: what state_dict() gives holds 'version', this holds {', '.join(map(repr, list(state)[:5])) or 'nothing'}; "
            f"this release reads version {VERSION}; give load_state_dict the loader's own part of a checkpoint",
            differences={"version": (None, VERSION)},
        )
    version = state["version"]
    if version != VERSION:
        raise StateMismatchError(
            f"state: version {version!r}, this release reads version {VERSION}; resume with the release that saved it",
            differences={"version": (version, VERSION)},
        )
