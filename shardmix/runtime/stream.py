"""One pass in a plain DataLoader, or over the data set itself: samples, one by one.

Rule 1: a worker hosts its share of the rank's lanes, dealt in turn; workers beyond the lanes have none. So nothing is lost or
repeated for any number of workers.
Rule 2: the order is that of the epoch's rows, those of other workers left out.
Rule 3: rows are read and decoded in chunks, small at first; a damaged record is raised, or skipped, when its turn comes.
Rule 4: the place of a worker is how many of its rows it has passed, holes too. The same worker of as many goes on from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ..errors import StateMismatchError
from ..format.records import IntArray
from ..order.schedule import BatchRows
from .buffers import BufferPool
from .damages import SkipBudget
from .epochs import SharedEpoch
from .fetch import Fetched, RowReader
from .ranks import World
from .reads import RecordReader
from .rows import DEFAULT_CACHE_BYTES, Opened, drop_holes
from .source_rows import Source, attach_source
from .state import VERSION, State, check_state, order_of_shards

if TYPE_CHECKING:
    from .dataset import ShardDataset

CHUNK_BYTES = 1 << 20
MAX_CHUNK_ROWS = 4096


class Host(NamedTuple):
    """Whose lanes a pass is over; num_workers: 0 in the main process, which then hosts them all."""

    world: World
    worker: int
    num_workers: int

    def lanes(self, num_lanes: int) -> IntArray:
        """The lanes that are hosted here: of lane l the rank is l mod world_size, the worker l div world_size mod num_workers."""
        return np.arange(self.world.rank, num_lanes, self.world.world_size)[self.worker :: max(1, self.num_workers)]


@dataclass
class StreamPlace:
    """How far a worker has come in a pass: as many of its rows were passed, which are holes or were given."""

    epoch: int
    rows: int = 0


class StreamProgress:
    """The place of the pass that began last in this process, and a loaded one, which is that of the next."""

    def __init__(self) -> None:
        self._current: StreamPlace | None = None
        self._loaded: StreamPlace | None = None
        self._host: Host | None = None  # whose place was loaded

    def set_epoch(self, epoch: int) -> None:
        """The epoch of the next pass is named: a place in another is dropped."""
        self._current = None
        if self._loaded is not None and self._loaded.epoch != epoch:
            self._loaded = None

    def begin(self, host: Host, epochs: SharedEpoch, base_seed: int | None) -> StreamPlace:
        """Begin a pass; its place moves as samples are given. Raises StateMismatchError where another host's was loaded."""
        if self._loaded is not None and self._host != host:
            raise StateMismatchError(
                f"state: a place of {self._host} was loaded before this pass began for {host}; load it where it is used, as "
                "torchdata's StatefulDataLoader does in each worker",
                differences={"host": (self._host, host)},
            )
        place, self._loaded = self._loaded, None
        if place is None:
            place = StreamPlace(epochs.begin_pass(base_seed))
        else:
            epochs.resume_pass(base_seed, place.epoch)
        self._current = place
        return place

    def state(self, next_epoch: int, order: State) -> State:
        """Where the pass that began last stands; else where the next begins."""
        place = self._loaded or self._current or StreamPlace(next_epoch)
        return {"version": VERSION, "epoch": place.epoch, "rows": place.rows, **order}

    def load(self, state: Mapping[str, Any], order: State, host: Host) -> None:
        """Make the place of a state that of the next pass. Raises StateMismatchError."""
        check_state(state, order)
        self._host, self._loaded = host, StreamPlace(state["epoch"], state["rows"])


def order_of_stream(dataset: ShardDataset, opened: Opened, host: Host) -> State:
    """What the samples of one worker depend on."""
    world, worker, num_workers = host
    whose = {"rank": world.rank, "world_size": world.world_size, "worker": worker, "num_workers": num_workers}
    return {**order_of_shards(dataset, opened, None), **whose}


def iterate_samples(dataset: ShardDataset, opened: Opened, host: Host, place: StreamPlace) -> Iterator[Any]:
    """The samples of one pass from a place on, which moves along. Raises what reading and parsing raise, in the place of the
    sample."""
    limit = DEFAULT_CACHE_BYTES if dataset.cache_bytes is None else dataset.cache_bytes
    reader = RowReader(RecordReader(opened.index, opened.shares, dataset.verify, BufferPool(limit)), opened.plan)
    parser = dataset._make_parser(opened)
    skips = SkipBudget(dataset._damage_log, dataset.max_corrupt, raises=dataset.on_corrupt == "raise")
    epoch, passed = place.epoch, place.rows
    try:
        for rows, fetched in _fetch_chunks(reader, opened, host, epoch, passed):
            block, kept = drop_holes(fetched)
            damages = sorted(fetched.damages.items(), reverse=True)
            for row, sample in parser.iter_samples(block, epoch):
                at = int(kept[row])
                while damages and damages[-1][0] < at:
                    skips.skip(damages.pop()[1])
                if dataset.with_source:
                    address = (int(block.shard[row]), int(block.record[row]), int(rows.lane[at]))
                    sample = attach_source(sample, Source._make((epoch, *address, host.worker, False, False)))
                place.rows = passed + at + 1
                yield sample
            passed += len(rows.row)
            while damages:
                skips.skip(damages.pop()[1])
    finally:
        reader.close()


def _fetch_chunks(
    reader: RowReader, opened: Opened, host: Host, epoch: int, passed: int
) -> Iterator[tuple[BatchRows, Fetched]]:
    """The rows of the hosted lanes after those that were passed, some places of every lane at a time."""
    num_lanes = opened.plan.lanes
    lanes = host.lanes(num_lanes)
    position, begun = divmod(passed, max(1, len(lanes)))  # at that position as many lanes were passed
    places = 1
    while len(lanes) and position * num_lanes + int(lanes[begun]) < opened.num_rows:
        row = (np.arange(position, position + places)[:, None] * num_lanes + lanes).ravel()[begun:]
        row, begun = row[row < opened.num_rows], 0
        bounds = np.array([0, len(row)])
        rows = BatchRows(row, row % num_lanes, row // num_lanes, np.zeros(len(row), np.bool_), bounds)
        fetched = reader.fetch(epoch, rows)
        yield rows, fetched
        position += places
        if 2 * len(row) <= MAX_CHUNK_ROWS and 2 * int(fetched.block.length.sum()) <= CHUNK_BYTES:
            places *= 2
