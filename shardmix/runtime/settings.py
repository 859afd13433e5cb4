"""Check the arguments of a data set, and of a loader: what is wrong is said when it is built, with what was got and expected."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping
from multiprocessing.reduction import ForkingPickler
from typing import Any

from ..order.lanes import LEAST_LANES, choose_lanes
from ..order.schedule import UNEVEN
from .ranks import check_world

SEED_LIMIT = 1 << 63

Check = Callable[[str, Any], Any]


def integer(least: int, limit: int | None = None) -> Check:
    """An int from `least` up to `limit` - 1; numpy's integers become ints."""
    expected = f"an int of at least {least}" if limit is None else f"an int from {least} to {limit - 1}"

    def check(name: str, value: Any) -> int:
        if isinstance(value, bool) or not hasattr(value, "__index__"):
            raise TypeError(f"{name} is {value!r}, expected {expected}")
        number = int(value.__index__())
        if number < least or (limit is not None and number >= limit):
            raise ValueError(f"{name} is {value!r}, expected {expected}")
        return number

    return check


def optional(check: Check) -> Check:
    """None, or what `check` lets pass."""
    return lambda name, value: None if value is None else check(name, value)


def one_of(*choices: str) -> Check:
    """One of some words."""

    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; it is one of {', '.join(map(repr, choices))}")
        return str(value)

    return check


def flag(name: str, value: Any) -> bool:
    """True or False, nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise TypeError(f"{name} is {value!r}, expected True or False")
    return value


def function(name: str, value: Any) -> Any:
    """Something to call."""
    if not callable(value):
        raise TypeError(f"{name} is {value!r}, expected a function of one sample, or None")
    return value


CHECKS: dict[str, Check] = {
    "transform": optional(function),
    "shuffle": flag,
    "seed": integer(0, SEED_LIMIT),
    "shuffle_buffer_size": integer(0),
    "cycle_length": integer(1),
    "block_length": integer(1),
    "lanes": optional(integer(1)),
    "verify": one_of("full", "length", "off"),
    "on_corrupt": one_of("raise", "skip"),
    "max_corrupt": optional(integer(0)),
    "on_hole": one_of("shrink", "fill"),
    "cache_bytes": optional(integer(0)),
    "rank": optional(integer(0)),
    "world_size": optional(integer(1)),
    "with_source": flag,
}


def check_settings(values: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments that CHECKS names, each checked, and those that depend on each other together.

    Raises TypeError, ValueError.
    """
    checked = {name: check(name, values[name]) for name, check in CHECKS.items()}
    rank, world_size, lanes = checked["rank"], checked["world_size"], checked["lanes"]
    if rank is not None or world_size is not None:
        check_world(rank, world_size, "arguments")
        lanes = choose_lanes(lanes, world_size)
    if checked["shuffle"]:
        check_buffer(checked["shuffle_buffer_size"], lanes or LEAST_LANES)
    if checked["max_corrupt"] is not None and checked["on_corrupt"] == "raise":
        raise ValueError(f"max_corrupt is {checked['max_corrupt']} with on_corrupt='raise'; it is for on_corrupt='skip'")
    return checked


def check_buffer(shuffle_buffer_size: int, lanes: int) -> None:
    """A shuffle buffer holds at least one record for each lane, or none at all. Raises ValueError."""
    if 0 < shuffle_buffer_size < lanes:
        raise ValueError(
            f"shuffle_buffer_size is {shuffle_buffer_size} in all, less than one record for each of the {lanes} lanes; "
            f"use at least {lanes}, or 0 for no buffer"
        )


def check_picklable(name: str, value: Any) -> None:
    """On the way to a worker: say what to do about a value that cannot go there. Raises pickle.PicklingError."""
    try:
        ForkingPickler.dumps(value)
    except Exception as error:
        raise pickle.PicklingError(
            f"{name} {value!r} cannot be sent to a worker process ({type(error).__name__}: {error}); define it as a "
            "function at the top of a module, not as a lambda or inside another function, or pass "
            'multiprocessing_context="fork" to the loader'
        ) from error


def check_loader_arguments(
    batch_size: int | None, batch_sampler: Any, uneven: str, schedule: Any, repeat: int | None, in_order: bool
) -> None:
    """What MixLoader takes beside torch's own arguments, and what contradicts what. Raises ValueError, TypeError."""
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
