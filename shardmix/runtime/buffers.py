"""Read buffers, used again: memory whose pages are already there.

Rule 1: a buffer comes back when nobody looks at it any more, neither as an array nor through a memoryview of a record: so what a
user's parser keeps stays whole.
Rule 2: sizes are rounded up to an eighth of a power of two, so that buffers of similar size serve one another.
Rule 3: no more free bytes are kept than `limit`; the rest goes back to the system.

Measured: fresh pages cost 100 ms for 154 MB, used ones 17 ms (docs/performance.md).
"""

from __future__ import annotations

import weakref

import numpy as np

from ..format.records import Bytes

_SMALLEST_BYTES = 1 << 16  # below it the allocator's own lists do as well


class BufferPool:
    """Buffers of one worker."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._free: dict[int, list[Bytes]] = {}  # size class → memory that nobody looks at
        self.free_bytes = 0

    def take(self, num_bytes: int) -> Bytes:
        """A buffer of `num_bytes` bytes, uint8, of any content."""
        if num_bytes < _SMALLEST_BYTES:
            return np.empty(num_bytes, np.uint8)
        size = round_up(num_bytes)
        free = self._free.get(size)
        if free:
            memory = free.pop()
            self.free_bytes -= size
        else:
            memory = np.empty(size, np.uint8)
        # numpy traces views of a buffer to the array over its memoryview, no further: that array dies with the last of them
        buffer: Bytes = np.frombuffer(memory.data[:num_bytes], np.uint8)
        weakref.finalize(buffer, self._give_back, memory).atexit = False
        return buffer

    def _give_back(self, memory: Bytes) -> None:
        if self.free_bytes + memory.size <= self._limit:
            self._free.setdefault(memory.size, []).append(memory)
            self.free_bytes += memory.size

    def clear(self) -> None:
        """Give all free memory to the system, and keep none from here on."""
        self._limit = 0
        self._free.clear()
        self.free_bytes = 0


def round_up(num_bytes: int) -> int:
    """The size class of a buffer: at most an eighth larger.

    >>> [round_up(n) for n in (1024, 1025, 1152, 1153)]
    [1024, 1152, 1152, 1280]
    """
    step = 1 << max(0, (num_bytes - 1).bit_length() - 4)
    return -(-num_bytes // step) * step
