"""The epoch of the next pass, known to the main process and to every worker.

Rule 1: `set_epoch(e)` names the epoch of the next pass, for workers that are already running too; without it each pass is the
next.
Rule 2: workers begin a pass one by one and must agree on its epoch. torch gives all workers of a DataLoader one base seed, and
starts a pass in each of them once: (base seed, how often this worker began under it, how often an epoch had been named when it
was started) names a pass. The first worker to ask takes the next epoch, the others find it in the table.
Rule 3: the numbers lie in anonymous shared memory, compared under a lock that the kernel frees when its holder dies. Neither has
a name, so nothing is left behind.

Sent to a worker under spawn or forkserver it arrives as the same memory; pickled in any other way, as a copy of the number.
"""

from __future__ import annotations

import mmap
import os
import tempfile
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import get_spawning_popen
from typing import Any

import numpy as np

try:
    import fcntl
except ImportError:  # no such locks on this platform: workers then count from what they were sent
    fcntl = None  # type: ignore[assignment]

_NUM_PASSES = 256  # that are remembered: passes that may begin at the same time, by any number of loaders
_NEXT, _CURSOR, _TABLE = 0, 1, 2  # words: the next epoch; passes begun; per pass the columns of the table
_SEED, _REPETITION, _NAMED, _EPOCH, _IS_USED = range(5)
_NUM_WORDS = _TABLE + 5 * _NUM_PASSES


class SharedEpoch:
    """A counter of passes, shared by the processes that hold it."""

    def __init__(self, next_epoch: int = 0) -> None:
        descriptor = _open_anonymous()
        os.ftruncate(descriptor, 8 * _NUM_WORDS)
        self._attach(descriptor, 0)
        self._words[_NEXT] = next_epoch

    def _attach(self, descriptor: int, num_named: int) -> None:
        self._num_named = num_named  # epochs named in this process; in a worker: as it was started
        self._descriptor = descriptor
        weakref.finalize(self, os.close, descriptor)
        self._words = np.frombuffer(mmap.mmap(descriptor, 8 * _NUM_WORDS), np.int64)
        self._table = self._words[_TABLE:].reshape(_NUM_PASSES, 5)
        self._mutex = threading.Lock()
        self._repetitions: dict[int, int] = {}  # base seed → passes that this process began under it

    @property
    def next_epoch(self) -> int:
        """The epoch of the next pass."""
        return int(self._words[_NEXT])

    def set(self, epoch: int) -> None:
        """Make `epoch` that of the next pass."""
        with self._locked():
            self._words[_NEXT] = epoch
            self._num_named += 1

    def begin_pass(self, base_seed: int | None) -> int:
        """The epoch of a pass that begins here; base_seed: None in the main process, where a pass has no other members."""
        with self._locked():
            if base_seed is None:
                return self._take_next()
            repetition = self._repetitions.get(base_seed, 0)
            self._repetitions[base_seed] = repetition + 1
            name = base_seed, repetition, self._num_named
            known = np.flatnonzero((self._table[:, :_EPOCH] == name).all(axis=1) & (self._table[:, _IS_USED] == 1))
            if len(known):
                return int(self._table[known[0], _EPOCH])
            epoch = self._take_next()
            self._table[self._words[_CURSOR] % _NUM_PASSES] = *name, epoch, 1
            self._words[_CURSOR] += 1
            return epoch

    def resume_pass(self, base_seed: int | None, epoch: int) -> None:
        """A pass begins here in a given epoch; the pass after it is the epoch after it, whatever was known under its seed."""
        with self._locked():
            self._words[_NEXT] = epoch + 1
            if base_seed is not None:
                self._repetitions.pop(base_seed, None)
                self._table[self._table[:, _SEED] == base_seed, _IS_USED] = 0

    def _take_next(self) -> int:
        epoch = int(self._words[_NEXT])
        self._words[_NEXT] = epoch + 1
        return epoch

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among threads and processes."""
        with self._mutex:
            if fcntl is None:
                yield
                return
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX)
            try:
                yield
            finally:
                fcntl.lockf(self._descriptor, fcntl.LOCK_UN)

    def __reduce__(self) -> tuple[Any, ...]:
        if get_spawning_popen() is None or fcntl is None:
            return SharedEpoch, (self.next_epoch,)
        from multiprocessing.reduction import DupFd  # where there are descriptors to send

        return _attach_shared, (DupFd(self._descriptor), self._num_named)


def _attach_shared(duplicate: Any, num_named: int) -> SharedEpoch:
    """The same memory in a worker."""
    shared = SharedEpoch.__new__(SharedEpoch)
    shared._attach(duplicate.detach(), num_named)
    return shared


def _open_anonymous() -> int:
    """A descriptor of memory without a name."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("shardmix", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
