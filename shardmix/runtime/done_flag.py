"""How workers are told to end, and how they do.

Rule 1: the flag is a byte of shared memory. It has no lock: torch's event has one, and the main process would wait for ever for a
lock that a worker held when it was killed.
Rule 2: a spawned worker leaves out the end of its interpreter, which with torch takes 0.4 s of CPU, during which the main process
waits: what was registered with atexit is called, then the process ends. (Forked processes do so by themselves.)
"""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from .handoff import SharedBytes


class DoneFlag:
    """Stands in for torch's event."""

    def __init__(self) -> None:
        self._memory = SharedBytes(1)
        self._memory.array[0] = 0
        self._ends_here = False  # whether this is in a worker that is to leave at once, and was not yet told

    def __setstate__(self, state: dict[str, SharedBytes]) -> None:
        self.__dict__.update(state)
        self._ends_here = True  # only what is spawned is sent its arguments

    def set(self) -> None:
        """Tell the workers."""
        self._memory.array[0] = 1

    def is_set(self) -> bool:
        """Whether they were told; a worker that learns of it here ends at once when its work is over."""
        is_set = bool(self._memory.array[0])
        if is_set and self._ends_here:
            self._ends_here = False
            atexit.register(leave)  # the last to be registered, so the first to be called
        return is_set


def leave() -> None:
    """Call what else was registered, and end the process."""
    atexit.unregister(leave)
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):  # there is none, or it is closed
            stream.flush()
    os._exit(0)
