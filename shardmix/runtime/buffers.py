"""Read buffers, used again: memory whose pages are already there.

Rule 1: a buffer comes back when nobody looks at it any more, neither as an array nor through a memoryview of a record: so what a
user's parser keeps stays whole.
Rule 2: the smallest free buffer that is large enough serves, unless it is more than twice as large.
Rule 3: no more free bytes are kept than `limit`; what has been free for longest goes back to the system.

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
        self._free: list[Bytes] = []  # that nobody looks at, the one that came back last at the end
        self.free_bytes = 0

    def take(self, num_bytes: int) -> Bytes:
        """A buffer of `num_bytes` bytes, uint8, of any content."""
        if num_bytes < _SMALLEST_BYTES:
            return np.empty(num_bytes, np.uint8)
        memory = self._find(num_bytes)
        if memory is None:
            memory = np.empty(round_up(num_bytes), np.uint8)
        # numpy traces views of a buffer to the array over its memoryview, no further: that array dies with the last of them
        buffer: Bytes = np.frombuffer(memory.data[:num_bytes], np.uint8)
        weakref.finalize(buffer, self._give_back, memory).atexit = False
        return buffer

    def _find(self, num_bytes: int) -> Bytes | None:
        """The best of the free buffers, taken out; None where none serves."""
        sizes = [(memory.size, number) for number, memory in enumerate(self._free) if num_bytes <= memory.size <= 2 * num_bytes]
        if not sizes:
            return None
        size, number = min(sizes)
        self.free_bytes -= size
        return self._free.pop(number)

    def _give_back(self, memory: Bytes) -> None:
        self._free.append(memory)
        self.free_bytes += memory.size
        while self.free_bytes > self._limit:
            self.free_bytes -= self._free.pop(0).size

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
