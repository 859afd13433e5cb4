"""What a run needs: memory and open files, from the index and the settings alone.

The formula is that of the README, "Memory, and the time to the first batch".
"""

from __future__ import annotations

from typing import NamedTuple

from ..format.framing import FRAME_BYTES
from ..format.index import Index
from ..order.lanes import choose_lanes
from ..order.plan import Plan

CHUNK_BYTES = 2 << 20  # least of a slab
READ_BLOCK_BYTES = 1 << 20  # most of a track's read block
BATCHES_IN_MEMORY = 4
PREFETCH_FACTOR = 2


class RunSettings(NamedTuple):
    """The settings that decide it. None: what ShardDataset takes."""

    batch_size: int = 256
    num_workers: int = 4
    shuffle_buffer_size: int | None = None
    lanes: int | None = None
    cycle_length: int | None = None
    world_size: int = 1


class Needs(NamedTuple):
    """Of one rank, in bytes; beside Python and torch themselves."""

    lanes: int
    cycle_length: int  # as it takes effect
    shuffle_buffer_size: int
    open_files: int  # at most
    buffer_bytes: int  # encoded records in the shuffle buffers
    shared_bytes: int  # slabs between workers and the main process
    batch_bytes: int  # batches in the main process
    read_bytes: int  # read blocks, at most

    @property
    def bytes(self) -> int:
        """All together."""
        return self.buffer_bytes + self.shared_bytes + self.batch_bytes + self.read_bytes


def estimate_needs(index: Index, settings: RunSettings) -> Needs | None:
    """What a run needs on each rank; None for a corpus without records.

    Raises ValueError where the settings contradict each other.
    """
    if not index.num_records:
        return None
    lanes = choose_lanes(settings.lanes, settings.world_size)
    wanted = 16384 if settings.shuffle_buffer_size is None else settings.shuffle_buffer_size
    plan = Plan(index.counts, lanes, settings.cycle_length or 4, shuffle_buffer_size=wanted, whole=index.compressed)
    record_bytes = mean_record_bytes(index)
    batch_bytes = settings.batch_size * record_bytes
    tracks = lanes // settings.world_size * plan.effective_cycle_length
    slabs = settings.num_workers * (PREFETCH_FACTOR + 1)
    held = min(wanted, index.num_records) / settings.world_size
    return Needs(
        lanes=lanes,
        cycle_length=plan.effective_cycle_length,
        shuffle_buffer_size=wanted,
        open_files=min(tracks, index.num_records),
        buffer_bytes=round(held * record_bytes),
        shared_bytes=round(slabs * max(CHUNK_BYTES, batch_bytes / settings.num_workers)) if slabs else 0,
        batch_bytes=round(BATCHES_IN_MEMORY * batch_bytes),
        read_bytes=round(min(tracks * READ_BLOCK_BYTES, inflated_bytes(index))),
    )


def inflated_bytes(index: Index) -> int:
    """Bytes of all frames, before compression."""
    return sum(index.offset(shard, int(count)) for shard, count in enumerate(index.counts))


def mean_record_bytes(index: Index) -> float:
    """Bytes of a payload, on average."""
    return inflated_bytes(index) / index.num_records - FRAME_BYTES if index.num_records else 0.0
