"""Propose shuffle_buffer_size, lanes and cycle_length for an amount of memory.

Rule 1: lanes are what ShardDataset takes for so many ranks, unless they are given.
Rule 2: cycle_length is the largest of 8, 4, 2, 1 with at most MAX_OPEN_FILES open files a rank. To open more files costs little
memory, and mixes a sorted corpus better than a larger buffer does.
Rule 3: the buffer takes what memory is left, up to the whole corpus.
"""

from __future__ import annotations

from typing import NamedTuple

from ..format.index import Index
from ..order.lanes import choose_lanes
from ..runtime.needs import Needs, RunSettings, estimate_needs, mean_record_bytes
from .texts import format_bytes

CYCLE_LENGTHS = (8, 4, 2, 1)
MAX_OPEN_FILES = 256


class Recommendation(NamedTuple):
    """The proposed settings, what they need on a rank, and what to know."""

    shuffle_buffer_size: int
    lanes: int
    cycle_length: int
    needs: Needs
    warnings: tuple[str, ...]


def recommend_settings(index: Index, memory_bytes: int, settings: RunSettings) -> Recommendation:
    """Settings for `memory_bytes` on each rank; batch_size, num_workers and world_size are taken from `settings`.

        recommend_settings(open_index("corpus/*.tfrecord"), 2_000_000_000, RunSettings(batch_size=256))

    Raises ValueError when the memory is too small for the batches alone, or the corpus has no records.
    """
    lanes = choose_lanes(settings.lanes, settings.world_size)
    base = settings._replace(lanes=lanes, shuffle_buffer_size=0)
    candidates = CYCLE_LENGTHS if settings.cycle_length is None else (settings.cycle_length,)
    needs = [_needs(index, base._replace(cycle_length=length)) for length in candidates]
    chosen = next((need for need in needs if need.open_files <= MAX_OPEN_FILES), needs[-1])
    left = memory_bytes - chosen.bytes
    if left < 0:
        raise ValueError(
            f"--memory {format_bytes(memory_bytes)}: batches, slabs and read buffers alone take {format_bytes(chosen.bytes)}; "
            "use a smaller batch or fewer workers"
        )
    room = int(left / max(mean_record_bytes(index), 1)) * settings.world_size
    buffer = min(room, index.num_records)
    buffer = buffer if buffer >= lanes else 0
    final = base._replace(cycle_length=chosen.cycle_length, shuffle_buffer_size=buffer)
    return Recommendation(buffer, lanes, chosen.cycle_length, _needs(index, final), tuple(_warnings(index, final)))


def _needs(index: Index, settings: RunSettings) -> Needs:
    needs = estimate_needs(index, settings)
    if needs is None:
        raise ValueError(f"{index.corpus.parent}: no records, so nothing to recommend")
    return needs


def _warnings(index: Index, settings: RunSettings) -> list[str]:
    """What stands in the way of mixing, whatever the settings."""
    filled = int((index.counts > 0).sum())
    tracks = (settings.lanes or 1) * (settings.cycle_length or 1)
    if bool(index.compressed.any()) and filled < tracks:
        text = (
            f"{filled} compressed shards for {tracks} tracks: a track that begins inside one inflates it from its start; "
            f"rewrite them as {tracks} shards or more: shardmix reshard PATTERN OUT --shards {tracks} --shuffle"
        )
        return [text]
    return []


def format_recommendation(recommendation: Recommendation, settings: RunSettings, memory_bytes: int) -> list[str]:
    """The same for people: arguments to paste."""
    found = recommendation
    return [
        f"for {format_bytes(memory_bytes)} on each rank: ShardDataset(…, shuffle_buffer_size={found.shuffle_buffer_size}, "
        f"lanes={found.lanes}, cycle_length={found.cycle_length})",
        f"  needs {format_bytes(found.needs.bytes)} and at most {found.needs.open_files:,} open files, "
        f"with batch_size={settings.batch_size}, num_workers={settings.num_workers}",
        *(f"  warning: {text}" for text in found.warnings),
    ]
