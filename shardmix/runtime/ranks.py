"""Which rank this process is, of how many.

Rule 1: what the user gives; else the process group of torch.distributed, where one is initialised; else the environment's RANK
and WORLD_SIZE, as torchrun sets them; else rank 0 of 1.
Rule 2: half an answer is an error, and so is a process group that contradicts the environment: both sides are named. Where there
is a group, the environment may know less (Lightning sets WORLD_SIZE alone).
Rule 3: asked anew when a pass begins, in the main process; workers are told.
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch.distributed

_VARIABLES = ("RANK", "WORLD_SIZE")  # as torchrun sets them


class World(NamedTuple):
    """One rank's place among all."""

    rank: int
    world_size: int


def resolve_world(rank: int | None = None, world_size: int | None = None) -> World:
    """This process's place among the ranks.

        resolve_world(rank=1, world_size=4)     # World(rank=1, world_size=4)
        resolve_world()                         # under torchrun: its ranks; elsewhere World(rank=0, world_size=1)

    Raises ValueError when only one of the two is known, the rank is not 0 … world_size-1, or the process group contradicts the
    environment; TypeError when one of the two is not an integer.
    """
    if rank is not None or world_size is not None:
        return check_world(rank, world_size, "arguments")
    environment = _read_environment()
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        if not environment:
            return World(0, 1)
        origin = "environment variables RANK and WORLD_SIZE"
        return check_world(environment.get("RANK"), environment.get("WORLD_SIZE"), origin)
    group = World(torch.distributed.get_rank(), torch.distributed.get_world_size())
    if environment != {name: number for name, number in zip(_VARIABLES, group, strict=True) if name in environment}:
        told = ", ".join(f"{name}={number}" for name, number in environment.items())
        raise ValueError(
            f"ranks: the process group says rank {group.rank} of {group.world_size}, the environment says {told}; pass rank= and "
            "world_size=, or unset the variables"
        )
    return group


def check_world(rank: int | None, world_size: int | None, origin: str) -> World:
    """Both numbers, known and in range, or an error that names both and where they came from."""
    if rank is None or world_size is None:
        missing = "world_size" if world_size is None else "rank"
        raise ValueError(
            f"ranks: {origin} give rank={rank!r}, world_size={world_size!r}; {missing} is missing, give both or neither"
        )
    for name, value in (("rank", rank), ("world_size", world_size)):
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"ranks: {name}={value!r} of the {origin} is a {type(value).__name__}, expected an int")
    if not 0 <= rank < world_size:
        raise ValueError(f"ranks: {origin} give rank={rank}, world_size={world_size}; expected 0 <= rank < world_size")
    return World(rank, world_size)


def _read_environment() -> dict[str, int]:
    """RANK and WORLD_SIZE, as far as they are set."""
    numbers: dict[str, int] = {}
    for name in _VARIABLES:
        text = os.environ.get(name)
        if not text:
            continue
        try:
            numbers[name] = int(text)
        except ValueError:
            raise ValueError(f"ranks: the environment says {name}={text!r}, expected an integer") from None
    return numbers
