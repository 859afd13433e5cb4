"""How many lanes a run has.

Rule: their number belongs to the order, not to the machine; every rank hosts equally many.
"""

from __future__ import annotations

LEAST_LANES = 16
LANES_PER_RANK = 8


def choose_lanes(lanes: int | None, world_size: int) -> int:
    """The lanes of a run on so many ranks. None: the smallest multiple of world_size that is at least max(16, 8 · world_size).

    >>> choose_lanes(None, 1), choose_lanes(None, 3), choose_lanes(32, 4)
    (16, 24, 32)

    Raises ValueError where the ranks cannot have equal shares of the lanes.
    """
    if lanes is None:
        least = max(LEAST_LANES, LANES_PER_RANK * world_size)
        return -(-least // world_size) * world_size
    if lanes % world_size:
        below, above = lanes // world_size * world_size, -(-lanes // world_size) * world_size
        nearest = above if not below or above - lanes <= lanes - below else below
        raise ValueError(
            f"lanes is {lanes}, which {world_size} ranks cannot share equally; the nearest that they can is lanes={nearest}"
        )
    return lanes
