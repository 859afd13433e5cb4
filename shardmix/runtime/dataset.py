"""ShardDataset: TFRecord shards as an IterableDataset in a known order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from ..errors import CorruptShardError
from ..format.columns import Allocate, Column, IntArray
from ..format.features import Schema
from ..format.index import Index
from ..order.plan import Plan
from ..order.schedule import BatchRows
from .samples import Structure


class ShardDataset:
    """See the design, section 5. `_open()` resolves what is shared by all ranks, once, in the main process."""

    def _open(self, world_size: int) -> Opened:
        """Index, schema and plan; cached. Picklable, so that workers never scan or infer."""
        raise NotImplementedError


@dataclass(frozen=True)
class Opened:
    """What is known of a data set before the first payload byte is read."""

    index: Index
    schema: Schema | None  # None: the user's parse or parse_batch reads the payload
    plan: Plan
    num_rows: int  # rows of an epoch that are delivered: fewer than plan.num_records after `take`


class Filled(NamedTuple):
    """The rows that a worker read, parsed and packed."""

    structure: Structure
    columns: Sequence[Column]
    kept: IntArray  # (rows,) which of the asked-for rows they are, ascending; the others are holes
    shard: IntArray  # (rows,) of the kept rows
    record: IntArray  # (rows,)
    damages: tuple[CorruptShardError, ...]  # what on_corrupt="skip" passed over, each damage once


class RowSource:
    """A worker's cursor over the lanes that it hosts (runtime/fetch.py reads, runtime/parse.py parses).

    Asked for rows where a lane's cursor stands it goes on; elsewhere it seeks. Pads are read directly, whatever their lane.
    """

    def __init__(self, dataset: ShardDataset, opened: Opened) -> None:
        raise NotImplementedError

    def fill(self, epoch: int, rows: BatchRows, allocate: Allocate) -> Filled:
        """Read, parse and pack some rows. Raises CorruptShardError, StaleIndexError, ParseError (the user's exception as cause)."""
        raise NotImplementedError

    def close(self) -> None:
        """Close files, drop buffers."""
        raise NotImplementedError


Batch = Any
