"""Batch memory that the workers write: dense rows go from their payload straight to their place in the batch.

Rule 1: the memory is the main process's. A request names slots; each holds the dense columns of a group of consecutive batches,
and every worker writes its own rows there. The main process shows them as tensors, without a copy.
Rule 2: a slot is used again when its last tensor is freed and no worker can write there any more: a request that was given up
keeps its slots until its workers have ended, or have said that they are done with it (`Hosts.hold`).
Rule 3: slots lie in few segments of anonymous memory: the more are held, the larger is the next. A worker maps a segment when a
request first names it, and lets go of those that the main process has let go of.

What has levels (bytes, ragged values), samples, and what user code makes, travels through slabs (handoff.py).
"""

from __future__ import annotations

import os
import threading
import weakref
from collections import deque
from collections.abc import Sequence
from itertools import count
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..format.columns import Column, IntArray
from ..format.features import Schema
from ..format.targets import DenseLayout, RowTargets, dense_row_bytes
from .assemble import GROUP_BYTES, Dense
from .buffers import map_bytes
from .handoff import HAS_ANONYMOUS_FILES, Address, Bytes, Chunk, SharedBytes, attach, round_to_pages
from .requests import MAX_BATCHES, SharedSlots
from .samples import Structure, structure_of_features

FREE_REQUESTS = 6  # slots for so many requests are kept free: as many as are under way; a user who held more gave them back
_numbers = count()  # of segments, over all loaders of the process


class Slot(NamedTuple):
    """A slot that is leased: for as long as `memory`, or an array made of it, lives."""

    segment: int
    offset: int
    memory: Bytes


class _Segment:
    """Some slots in one piece of memory."""

    def __init__(self, num_slots: int, slot_bytes: int, is_shared: bool) -> None:
        self.number = next(_numbers)
        self.num_slots, self._slot_bytes = num_slots, slot_bytes
        num_bytes = num_slots * slot_bytes
        self._shared = SharedBytes(num_bytes) if is_shared else None
        self._memory = map_bytes(num_bytes) if self._shared is None else self._shared.array
        self.free = deque(range(0, num_bytes, slot_bytes))  # where free slots begin; who frees one appends, in whatever thread

    @property
    def address(self) -> Address | Bytes:
        """Where the workers find it."""
        return self._memory if self._shared is None else self._shared.address

    def lease(self) -> Slot:
        """One of the free slots."""
        offset = self.free.pop()
        # numpy traces views of an array to the array over its memoryview, no further: that one dies with the last of them
        memory = np.frombuffer(self._memory.data[offset : offset + self._slot_bytes], np.uint8)
        weakref.finalize(memory, self.free.append, offset).atexit = False
        return Slot(self.number, offset, memory)

    def close(self) -> None:
        """No worker will ask for it again; the memory stays for as long as a view of it lives."""
        if self._shared is not None:
            self._shared.close()


class SlotPool:
    """Slots of one size. Passes of one loader may share it."""

    def __init__(self, slot_bytes: int, is_shared: bool) -> None:
        self.slot_bytes, self.is_shared = round_to_pages(slot_bytes), is_shared
        self._segments: list[_Segment] = []
        self._leasing = threading.Lock()
        self._most_asked = 0  # by one request
        self.num_allocated = 0  # segments made so far

    def lease(self, num_slots: int) -> list[Slot]:
        """Slots of any content."""
        with self._leasing:
            slots: list[Slot] = []
            for segment in self._segments:
                while segment.free and len(slots) < num_slots:
                    slots.append(segment.lease())
            missing = num_slots - len(slots)
            if missing:
                have = sum(segment.num_slots for segment in self._segments)
                segment = _Segment(max(missing, have // 4), self.slot_bytes, self.is_shared)
                self.num_allocated += 1
                self._segments.append(segment)
                slots += [segment.lease() for _ in range(missing)]
            self._most_asked = max(self._most_asked, num_slots)
            self._trim(FREE_REQUESTS * self._most_asked)
            return slots

    def segments(self) -> tuple[tuple[int, Address | Bytes], ...]:
        """Number and address of every segment."""
        with self._leasing:
            return tuple([(segment.number, segment.address) for segment in self._segments])

    def _trim(self, enough: int) -> None:
        """Let go of segments that nobody uses, the largest first, where enough slots are free without them; and of those that are
        far larger than that."""
        num_free = sum(len(segment.free) for segment in self._segments)
        for segment in sorted(self._segments, key=lambda segment: -segment.num_slots):
            is_idle = len(segment.free) == segment.num_slots
            if is_idle and (num_free - segment.num_slots >= enough or segment.num_slots > 2 * enough):
                num_free -= segment.num_slots
                self._segments.remove(segment)
                segment.close()


class BatchSlots:
    """Slots for the batches of one pass: `num_batches` a slot, of `batch_size` rows each."""

    def __init__(self, pool: SlotPool, layout: DenseLayout, structure: Structure, num_batches: int) -> None:
        self._pool, self._layout, self._structure = pool, layout, structure
        self.num_batches = num_batches

    def lease(self, num_batches: int) -> list[Slot]:
        """Slots for so many batches."""
        return self._pool.lease(-(-num_batches // self.num_batches))

    def describe(self, slots: Sequence[Slot]) -> SharedSlots:
        """What to tell the workers."""
        places = tuple([(slot.segment, slot.offset) for slot in slots])
        return SharedSlots(self._pool.segments(), places, self._layout.num_rows)

    def are_unused(self, chunks: Sequence[Chunk]) -> bool:
        """Whether the workers could not reach the slots, and sent dense columns as they send others.

        Raises RuntimeError where only some could.
        """
        whole = [chunk.structure == self._structure for chunk in chunks]
        if any(whole) and not all(whole):
            raise RuntimeError("some workers cannot reach the memory of batches; let all of them run as the same user")
        return all(whole)

    def show(self, slot: Slot, start: int, stop: int, is_there: NDArray[np.bool_] | None = None) -> Dense:
        """Rows start … stop-1 of a slot, those that are there (None: all): views of it, or a copy where there are holes."""
        columns: list[Column | None] = []
        is_whole = is_there is None or bool(is_there.all())
        for spec, values in zip(self._layout.specs, self._layout.arrays(slot.memory, self._layout.num_rows), strict=True):
            if values is None:
                columns.append(None)
                continue
            rows = values[start:stop]
            columns.append(Column(spec, rows if is_whole else rows[is_there], ()))
        return Dense(self._structure, columns)


class SlotKeeper:
    """Keeps the pool of a loader from pass to pass."""

    def __init__(self) -> None:
        self.pool: SlotPool | None = None
        self._owner = os.getpid()

    def slots(self, schema: Schema | None, batch_size: int, has_workers: bool) -> BatchSlots | None:
        """Slots for a pass; None where nothing is dense, or no memory can be shared without a name."""
        specs = [field.spec for field in schema.fields] if schema is not None else []
        batch_bytes = batch_size * dense_row_bytes(specs)
        if not batch_bytes or (has_workers and not HAS_ANONYMOUS_FILES):
            return None
        num_batches = min(max(1, GROUP_BYTES // batch_bytes), MAX_BATCHES)
        layout = DenseLayout(specs, num_batches * batch_size)
        if self._owner != os.getpid():  # forked: the slots are those of the process that it was forked from
            self.pool, self._owner = None, os.getpid()
        pool = self.pool
        if pool is None or (pool.slot_bytes, pool.is_shared) != (round_to_pages(layout.num_bytes), has_workers):
            pool = self.pool = SlotPool(layout.num_bytes, has_workers)
        return BatchSlots(pool, layout, structure_of_features(specs), num_batches)


class SlotFinder:
    """A worker's view of the slots."""

    def __init__(self, schema: Schema) -> None:
        self._specs = [field.spec for field in schema.fields]
        self._layout = DenseLayout(self._specs, 0)
        self._views: dict[int, Bytes] = {}

    def targets(self, shared: SharedSlots, rows: IntArray) -> RowTargets:
        """Where the worker's rows of a request go; `rows`: their numbers among all rows of its batches.

        Raises OSError where the memory cannot be reached.
        """
        if self._layout.num_rows != shared.num_rows:
            self._layout = DenseLayout(self._specs, shared.num_rows)
        addresses = dict(shared.segments)
        self._views = {number: view for number, view in self._views.items() if number in addresses}
        size = self._layout.num_bytes
        buffers = tuple([self._find(number, addresses[number])[start : start + size] for number, start in shared.slots])
        buffer, position = np.divmod(rows, shared.num_rows)
        return RowTargets(buffers, buffer, position, self._layout)

    def close(self) -> None:
        """Let go of all memory."""
        self._views.clear()

    def _find(self, number: int, address: Address | Bytes) -> Bytes:
        view = self._views.get(number)
        if view is None:
            view = self._views[number] = address if isinstance(address, np.ndarray) else attach(address)
        return view
