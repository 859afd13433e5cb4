"""Where the records of a worker's lanes are between arriving and leaving: in memory, or still in their files.

Which record leaves the shuffle buffer when is known before any byte is read. So:

Rule 1: small records are read as they arrive, many by one system call, and held in memory until they leave.
Rule 2: large ones (`reads.reads_late`) are read as they leave, by a system call each, straight to where they are decoded: they
take no memory meanwhile, and are copied once less. When they arrive the system is told that they will be read, run by run, so
that a disk reads ahead in sequence, into the page cache.

Knows nothing of positions: fetch.py says what arrives, and what leaves.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

import numpy as np

from ..format.records import IntArray
from ..format.spans import expand_spans
from ..order.plan import EpochPlan, Plan, Reads
from .files import FILES_OF_LATE_TRACK, Files, SharedFiles, TrackFiles
from .held import ARRIVAL, BLOCK, NUM_FIELDS, RECORD, START, HeldRecords, Released
from .reads import Pieces, RecordReader, reads_late


class Leaving(NamedTuple):
    """Records that leave, of lanes of an epoch. All int64 (records,)."""

    lane: IntArray
    number: IntArray  # of the lane, among those of the worker
    arrival: IntArray


class Shelf(Protocol):
    """The records that have arrived and not left, of the lanes of a worker, numbered from 0."""

    is_late: bool  # what leaves need not have arrived

    @property
    def num_open(self) -> int:
        """Files that are open."""
        ...

    @property
    def buffer_bytes(self) -> int:
        """Bytes of the buffers behind the held records."""
        ...

    def arrive(self, number: IntArray, wanted: Reads) -> None:
        """Records of some lanes: owner i of what is wanted is lane number[i]."""
        ...

    def leave(self, order: EpochPlan, leaving: Leaving) -> Released:
        """Give out records, in the order asked for."""
        ...

    def forget(self, number: int) -> None:
        """A lane goes on elsewhere."""
        ...

    def end_lane(self, number: int) -> None:
        """All records of a lane were read."""
        ...

    def close(self) -> None:
        """Close files, forget all lanes."""
        ...


class MemoryShelf:
    """Rule 1."""

    is_late = False

    def __init__(self, reader: RecordReader, cycle_length: int) -> None:
        self._reader, self._cycle_length = reader, cycle_length
        self._files: Files = (SharedFiles if reader.is_plain else TrackFiles)(reader.index)
        self._held = HeldRecords(reader.pool)

    @property
    def num_open(self) -> int:
        return self._files.num_open

    @property
    def buffer_bytes(self) -> int:
        return self._held.buffer_bytes

    def arrive(self, number: IntArray, wanted: Reads) -> None:
        track = number[wanted.owner] * self._cycle_length + wanted.slot
        self._files.make_room((int(number.max(initial=0)) + 1) * self._cycle_length)
        read = self._reader.read(self._files, Pieces(track, wanted.shard, wanted.first, wanted.stop))
        self._held.add(number[wanted.owner_of_record], wanted.arrival, read)

    def leave(self, order: EpochPlan, leaving: Leaving) -> Released:
        return self._held.release(leaving.number, leaving.arrival)

    def forget(self, number: int) -> None:
        self._held.drop(number)

    def end_lane(self, number: int) -> None:
        for slot in range(self._cycle_length):
            self._files.end_track(number * self._cycle_length + slot)

    def close(self) -> None:
        self._files.close()
        self._held = HeldRecords(self._reader.pool)


class FileShelf:
    """Rule 2."""

    is_late = True
    buffer_bytes = 0

    def __init__(self, reader: RecordReader, cycle_length: int) -> None:
        self._reader, self._cycle_length = reader, cycle_length
        self._files = SharedFiles(reader.index, FILES_OF_LATE_TRACK)
        self._begun: set[int] = set()  # lanes that some of has left, and some has not

    @property
    def num_open(self) -> int:
        return self._files.num_open

    def arrive(self, number: IntArray, wanted: Reads) -> None:
        count = wanted.stop - wanted.first
        self._reader.advise_each(self._files, np.repeat(wanted.shard, count), expand_spans(wanted.first, count))

    def leave(self, order: EpochPlan, leaving: Leaving) -> Released:
        shard, record = order.addresses_of(leaving.lane, leaving.arrival)
        by_place = np.lexsort((record, shard))  # few files at a time
        shard, record = shard[by_place], record[by_place]
        numbers = set(leaving.number.tolist())
        self._files.make_room((max(numbers) + 1) * self._cycle_length)
        if not numbers <= self._begun:
            self._begun |= numbers
            self._reader.advise_each(self._files, shard, record)  # of a lane that begins here, nothing was told before
        read = self._reader.read_each(self._files, shard, record)
        table = np.empty((NUM_FIELDS, len(shard)), np.int64)
        table[BLOCK] = 0
        table[START : RECORD + 1, by_place] = read[1:5]
        table[ARRIVAL] = leaving.arrival
        damages = {int(by_place[row]): damage for row, damage in read.damages.items()}
        return Released([read.buffer], table, damages)

    def forget(self, number: int) -> None:
        self._begun.discard(number)

    def end_lane(self, number: int) -> None:
        self._begun.discard(number)
        if not self._begun:
            self._files.close()

    def close(self) -> None:
        self._files.close()
        self._begun.clear()


def make_shelf(reader: RecordReader, plan: Plan) -> Shelf:
    """What serves the plan best."""
    return (FileShelf if reads_late(reader.index, plan) else MemoryShelf)(reader, plan.effective_cycle_length)
