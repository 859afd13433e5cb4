"""What a run needs: memory and open files, from the index and the settings alone.

The formula is that of the README, "Memory, and the time to the first batch".

Imports no torch: the command line uses it.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ..format.framing import FRAME_BYTES
from ..format.index import Index
from ..order.lanes import choose_lanes
from ..order.plan import Plan
from .files import FILES_OF_LATE_TRACK
from .limits import count_cores
from .reads import reads_late

_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")
BATCHES_IN_MEMORY = 4
PREFETCH_FACTOR = 2
READ_SLACK_BYTES = 32 << 20  # of a worker: read buffers that are free for the next read, or mostly empty
# A chunk has some hundred small rows of each lane of its worker, so that what is paid per chunk is little beside the rest
# (docs/performance.md). Rows of middling size take up to twice the bytes for that.
LANE_BYTES = 1024 << 10
MIN_CHUNK_BYTES, MAX_CHUNK_BYTES = 1 << 20, 8 << 20
ROWS_OF_LANE, LARGE_ROW_BYTES = 512, 16 << 10


def chunk_bytes(num_lanes: int, row_bytes: float) -> int:
    """Bytes that a chunk of a worker with so many lanes grows to, where a batch is smaller.

    >>> [chunk_bytes(8, row_bytes) >> 20 for row_bytes in (1_000, 3_000, 10_000, 100_000)]
    [8, 11, 16, 8]
    """
    usual = min(max(num_lanes * LANE_BYTES, MIN_CHUNK_BYTES), MAX_CHUNK_BYTES)
    if row_bytes > LARGE_ROW_BYTES:
        return usual
    return min(max(usual, int(ROWS_OF_LANE * num_lanes * row_bytes)), 2 * usual)


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
    buffer_bytes: int  # encoded records in the shuffle buffers; none where each is read as it leaves
    shared_bytes: int  # slabs between workers, or threads, and the mixer
    batch_bytes: int  # batches in the main process
    read_bytes: int  # read buffers beside them, at most

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
    return needs_of_plan(index, plan, settings.batch_size, settings.num_workers, settings.world_size)


def needs_of_plan(
    index: Index, plan: Plan, batch_size: int, num_workers: int, world_size: int, prefetch_factor: int = PREFETCH_FACTOR
) -> Needs:
    """What a run of a plan needs on each rank."""
    record_bytes = mean_record_bytes(index)
    batch_bytes = batch_size * record_bytes
    lanes = plan.lanes // world_size  # of a rank
    hosts = min(num_workers or count_cores(), lanes)  # without workers, threads stand in
    slab_bytes = max(chunk_bytes(lanes // hosts, record_bytes), batch_bytes / hosts)
    tracks = lanes * plan.effective_cycle_length
    is_late = reads_late(index, plan)
    held = 0 if is_late or not plan.shuffle else min(plan.shuffle_buffer_size, plan.num_records) / world_size
    slack = slab_bytes if is_late else 2 * READ_SLACK_BYTES
    shards = int((index.counts > 0).sum())
    return Needs(
        lanes=plan.lanes,
        cycle_length=plan.effective_cycle_length,
        shuffle_buffer_size=plan.shuffle_buffer_size,
        open_files=min(FILES_OF_LATE_TRACK * tracks, hosts * shards) if is_late else min(tracks, plan.num_records),
        buffer_bytes=round(held * record_bytes),
        shared_bytes=round(hosts * (prefetch_factor + 1) * slab_bytes),
        batch_bytes=round(BATCHES_IN_MEMORY * batch_bytes),
        read_bytes=round(min(hosts * slack, inflated_bytes(index))),
    )


def inflated_bytes(index: Index) -> int:
    """Bytes of all frames, before compression."""
    return sum(index.offset(shard, int(count)) for shard, count in enumerate(index.counts))


def mean_record_bytes(index: Index) -> float:
    """Bytes of a payload, on average."""
    return inflated_bytes(index) / index.num_records - FRAME_BYTES if index.num_records else 0.0


def format_bytes(number: float) -> str:
    """Bytes in the unit that fits; 1 kB is 1000 bytes.

    >>> format_bytes(999), format_bytes(784_000), format_bytes(1_500_000_000)
    ('999 B', '784 kB', '1.50 GB')
    """
    unit = 0
    while number >= 999.5 and unit < len(_UNITS) - 1:
        number, unit = number / 1000, unit + 1
    if unit == 0:
        return f"{number:.0f} B"
    digits = max(0, 2 - int(math.log10(max(number, 1))))
    return f"{number:.{digits}f} {_UNITS[unit]}"
