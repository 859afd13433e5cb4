"""Read buffers, used again: memory whose pages are already there.

Rule 1: a buffer comes back when nobody looks at it any more, neither as an array nor through a memoryview of a record: so what a
user's parser keeps stays whole.
Rule 2: the smallest free buffer that is large enough serves, unless it is more than twice as large.
Rule 3: no more free bytes are kept than `limit`; what has been free for longest goes back to the system. The one that came back
last is kept however large it is, unless the limit is 0: the next chunk asks for it.

Measured: fresh pages cost 100 ms for 154 MB, used ones 17 ms (docs/performance.md).
"""

from __future__ import annotations

import mmap
import threading
import weakref
from collections import deque

import numpy as np

from ..format.records import Bytes

_SMALLEST_BYTES = 1 << 16  # below it the allocator's own lists do as well
_MAPPED_BYTES = 1 << 18


def map_bytes(num_bytes: int) -> Bytes:
    """Memory from the system itself, which goes back there when it is freed.

    Large blocks that threads take from malloc and free again leave holes in its arenas: ten epochs of records of 110 kB took
    380 MB where 275 MB were in use.
    """
    if num_bytes < _MAPPED_BYTES:
        return np.empty(num_bytes, np.uint8)
    return np.frombuffer(map_private(num_bytes), np.uint8)


def map_private(num_bytes: int) -> mmap.mmap:
    """Memory that a process forked later has a copy of: Python's own choice would be to share it."""
    if hasattr(mmap, "MAP_PRIVATE"):
        return mmap.mmap(-1, num_bytes, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return mmap.mmap(-1, num_bytes)


def _allocate_bytes(num_bytes: int) -> Bytes:
    return np.empty(num_bytes, np.uint8)


class BufferPool:
    """Buffers of one worker. `has_threads`: others in the process take memory at the same time."""

    def __init__(self, limit: int, has_threads: bool = False) -> None:
        self._limit = limit
        self._allocate = map_bytes if has_threads else _allocate_bytes
        self._free: list[Bytes] = []  # that nobody looks at, the one that came back last at the end
        self._returned: deque[Bytes] = deque()  # not among the free ones yet
        self._sorting = threading.Lock()
        self.free_bytes = 0

    def take(self, num_bytes: int) -> Bytes:
        """A buffer of `num_bytes` bytes, uint8, of any content."""
        if num_bytes < _SMALLEST_BYTES:
            return np.empty(num_bytes, np.uint8)
        with self._sorting:
            memory = self._find(num_bytes)
        if memory is None:
            memory = self._allocate(round_up(num_bytes))
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
        """Called when the last look at a buffer ends: in any thread, and by the garbage collector in the middle of `take` too."""
        self._returned.append(memory)
        if not self._sorting.acquire(blocking=False):
            return  # the next that comes back takes this one along
        try:
            while self._returned:
                back = self._returned.popleft()
                self._free.append(back)
                self.free_bytes += back.size
            while self.free_bytes > self._limit and len(self._free) > (self._limit > 0):
                self.free_bytes -= self._free.pop(0).size
        finally:
            self._sorting.release()


def round_up(num_bytes: int) -> int:
    """The size class of a buffer: at most an eighth larger.

    >>> [round_up(n) for n in (1024, 1025, 1152, 1153)]
    [1024, 1152, 1152, 1280]
    """
    step = 1 << max(0, (num_bytes - 1).bit_length() - 4)
    return -(-num_bytes // step) * step
