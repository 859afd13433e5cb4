"""A worker's cursor over the lanes that it hosts: planned rows → packed columns.

    rows = RowSource(dataset, opened)
    filled = rows.fill(epoch, schedule.batch_rows(rank, epoch, first_step=0, num_steps=4), allocate_arrays)

Rule: asked for rows where a lane's cursor stands it goes on; elsewhere it seeks. fetch.py reads, parse.py parses.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from torch.utils.data import get_worker_info

from ..errors import CorruptShardError
from ..format.columns import Allocate, Column, IntArray
from ..format.features import Schema
from ..format.index import Index
from ..format.records import RecordBlock
from ..format.targets import RowTargets
from ..order.plan import Plan
from ..order.schedule import BatchRows
from .buffers import BufferPool
from .fetch import Fetched, RowReader
from .limits import Spent
from .reads import RecordReader, Share
from .samples import Structure

if TYPE_CHECKING:
    from .dataset import ShardDataset

DEFAULT_CACHE_BYTES = 32 << 20


@dataclass(frozen=True)
class Opened:
    """What is known of a data set before the first payload byte is read."""

    index: Index
    schema: Schema | None  # None: the user's parse or parse_batch reads the payload
    plan: Plan  # of the records of the set, where the data set is one of a split
    num_rows: int  # rows of an epoch that are delivered: fewer than plan.num_records after `take`
    shares: tuple[Share, ...] = ()  # which records of each shard those are; () is all


class Filled(NamedTuple):
    """The rows that a worker read, parsed and packed."""

    structure: Structure
    columns: Sequence[Column]
    kept: IntArray  # (rows,) which of the asked-for rows they are, ascending; the others are holes
    shard: IntArray  # (rows,) of the kept rows
    record: IntArray  # (rows,)
    damages: tuple[CorruptShardError, ...]  # what on_corrupt="skip" passed over, one for each record, pads left out
    spent: Spent


class RowSource:
    """The rows of one data set, in one worker. Not thread-safe: one user each."""

    def __init__(self, dataset: ShardDataset, opened: Opened) -> None:
        limit = DEFAULT_CACHE_BYTES if dataset.cache_bytes is None else dataset.cache_bytes
        pool = BufferPool(limit, has_threads=get_worker_info() is None)
        reader = RecordReader(opened.index, opened.shares, dataset.verify, pool)
        self._reader = RowReader(reader, opened.plan)
        self._parser = dataset._make_parser(opened)
        self._raises = dataset.on_corrupt == "raise"

    @property
    def num_open(self) -> int:
        """Files that are open: at most one a track, two where records are read as they leave."""
        return self._reader.num_open

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the records that are held."""
        return self._reader.buffer_bytes

    def fill(self, epoch: int, rows: BatchRows, allocate: Allocate, targets: RowTargets | None = None) -> Filled:
        """Read, parse and pack some rows. `allocate` is called once. With `targets`, of the rows, dense columns go there.

        Raises CorruptShardError (unless on_corrupt="skip"), StaleIndexError, ParseError (the user's exception as cause), OSError.
        """
        began = time.perf_counter()
        fetched = self._reader.fetch(epoch, rows)
        read = time.perf_counter()
        if fetched.damages and self._raises:
            raise fetched.damages[min(fetched.damages)]
        block, kept = drop_holes(fetched)
        if targets is not None and fetched.damages:
            targets = targets.take(kept)
        parsed = self._parser.parse_columns(block, epoch, allocate, targets)
        if len(parsed.kept) < len(kept):
            kept = kept[parsed.kept]
        source = fetched.block
        # what a pad repeats is told by the rank that it is a row of
        damages = tuple(fetched.damages[row] for row in sorted(fetched.damages) if not rows.is_pad[row])
        spent = Spent(read - began, time.perf_counter() - read - parsed.user_seconds, parsed.user_seconds)
        return Filled(parsed.structure, parsed.columns, kept, source.shard[kept], source.record[kept], damages, spent)

    def close(self) -> None:
        """Close files, drop buffers. It can be used again."""
        self._reader.close()


def drop_holes(fetched: Fetched) -> tuple[RecordBlock, IntArray]:
    """The sound records, and which of the asked-for rows they are."""
    block = fetched.block
    if not fetched.damages:
        return block, np.arange(len(block))
    kept = np.delete(np.arange(len(block)), list(fetched.damages))
    sound = replace(
        block,
        buffer=block.buffer[kept],
        start=block.start[kept],
        length=block.length[kept],
        shard=block.shard[kept],
        record=block.record[kept],
    )
    return sound, kept
