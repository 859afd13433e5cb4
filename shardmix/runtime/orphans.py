"""Workers whose parent is gone: they end by themselves.

torch's workers look every five seconds whether their parent is still the process that it was when they began to look. A parent
that is killed before that, while its workers start, leaves them for ever: they look at the process that took them over. So a
worker is told here who its parent is.
"""

from __future__ import annotations

import os
from multiprocessing import parent_process

import torch.utils.data._utils.worker as torch_worker


class ParentWatch:
    """Stands in for torch's ManagerWatchdog, in a worker process."""

    def __init__(self) -> None:
        parent = parent_process()
        if parent is None:
            raise RuntimeError("ParentWatch is for processes that multiprocessing started")
        self._parent = parent
        # a fork server is the parent of its processes, and ends with the process that it serves
        self._is_own_child = os.getppid() == parent.pid

    def is_alive(self) -> bool:
        """Whether the process that wants this one's answers lives."""
        return os.getppid() == self._parent.pid if self._is_own_child else self._parent.is_alive()


def watch_parent() -> None:
    """Make torch's loop of this worker process look at its real parent. To be called before the loop begins to look."""
    torch_worker.ManagerWatchdog = ParentWatch  # type: ignore[assignment,misc]
