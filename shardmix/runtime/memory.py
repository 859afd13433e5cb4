"""Batch memory: one packed buffer a batch, used again when the batch's last tensor is freed.

Rule 1: a batch owns its memory for as long as any tensor of it lives; nobody else writes there.
Rule 2: memory comes back by itself, whichever thread drops the last tensor.

Fresh memory costs a page fault for every 4 kB: 154 MB into fresh memory took 100 ms, into reused memory 17 ms
(docs/performance.md).
"""

from __future__ import annotations

import math
import weakref
from collections import deque
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from ..format.columns import Shape
from .buffers import map_bytes
from .handoff import align, round_to_pages

Bytes = NDArray[np.uint8]
Layout = tuple[list[tuple[Shape, np.dtype[Any], int]], int]  # (shape, dtype, offset) of each array, bytes of all
LATELY = 64  # requests; buffers are as large as the largest of them
MAX_IDLE = 8  # buffers kept for the next batches; a user who holds on to more gets new ones


class BatchMemory:
    """A pool of equal buffers. `allocate` gives the arrays of one batch out of one buffer: an `Allocate`."""

    def __init__(self, pinned: bool = False) -> None:
        self.pinned = pinned
        self._idle: deque[Bytes] = deque(maxlen=MAX_IDLE)
        self.num_allocated = 0  # buffers made so far
        self._asked: deque[int] = deque(maxlen=LATELY)  # bytes
        self._requests: Sequence[tuple[Shape, DTypeLike]] = []
        self._layout: Layout = ([], 0)

    def allocate(self, requests: Sequence[tuple[Shape, DTypeLike]]) -> list[NDArray[np.generic]]:
        """Arrays of one batch, in one buffer that they keep alive."""
        if requests != self._requests:  # dense batches of one size ask for the same again and again
            self._requests, self._layout = list(requests), _lay_out(requests)
        places, end = self._layout
        lease = self._lease(end)
        return [np.ndarray(shape, kind, lease, start) for shape, kind, start in places]

    def _lease(self, num_bytes: int) -> Bytes:
        """An array over one buffer that every array made of it keeps alive: numpy ends a chain of bases at an array over a
        foreign buffer, as frombuffer makes it. Its end is the end of the batch."""
        memory = self._take(num_bytes)
        lease = np.frombuffer(memory.data, np.uint8)
        weakref.finalize(lease, self._idle.append, memory).atexit = False
        return lease

    def _take(self, num_bytes: int) -> Bytes:
        self._asked.append(num_bytes)
        largest = max(self._asked)  # the first batches of a pass come in smaller groups than those that follow
        while True:
            try:
                memory = self._idle.popleft()
            except IndexError:
                break
            # one that is too small, or far too large for what batches now need, is let go
            if num_bytes <= memory.size <= 4 * largest + (1 << 20):
                return memory
        self.num_allocated += 1
        size = round_to_pages(largest + largest // 8)  # ragged batches differ a little in size
        if self.pinned:
            pinned: Bytes = torch.empty(size, dtype=torch.uint8, pin_memory=True).numpy()
            return pinned
        return map_bytes(size)


def _lay_out(requests: Sequence[tuple[Shape, DTypeLike]]) -> Layout:
    """Where each array begins, and where the last one ends."""
    places, end = [], 0
    for shape, dtype in requests:
        kind = np.dtype(dtype)
        start = align(end)
        end = start + math.prod(shape) * kind.itemsize
        places.append((shape, kind, start))
    return places, end
