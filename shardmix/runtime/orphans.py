"""Workers whose parent is gone: they end by themselves.

torch's workers look every five seconds whether their parent is still the process that it was when they began to look. A parent
that is killed before that, while its workers start, leaves them for ever: they look at the process that took them over. So a
worker is told here who its parent is.

And they look only between two pieces of work. One that is in the user's code, or that cannot say goodbye because nobody empties
its queue, would stay: so a thread looks too, and ends the process if it has not ended in an orderly way some seconds later.
"""

from __future__ import annotations

import os
import threading
import time
from multiprocessing import parent_process

import torch.utils.data._utils.worker as torch_worker

LOOK_SECONDS = 1.0
GRACE_SECONDS = 6.0  # torch looks every 5 s


class ParentWatch:
    """Stands in for torch's ManagerWatchdog, in a worker process."""

    def __init__(self) -> None:
        parent = parent_process()
        if parent is None:
            raise RuntimeError("ParentWatch is for processes that multiprocessing started")
        self._parent, self._starter = parent, os.getppid()
        # a fork server is the parent of its processes, and lives as long as they do
        self._is_own_child = self._starter == parent.pid

    def is_alive(self) -> bool:
        """Whether the process that wants this one's answers lives, and can see whether this one does."""
        if self._is_own_child:
            return os.getppid() == self._parent.pid
        return os.getppid() == self._starter and self._parent.is_alive()


def watch_parent() -> None:
    """Let this worker process end when its parent is gone. To be called before torch's loop of it begins to look."""
    torch_worker.ManagerWatchdog = ParentWatch  # type: ignore[assignment,misc]
    threading.Thread(target=_end_orphan, args=(ParentWatch(),), name="shardmix-orphan", daemon=True).start()


def _end_orphan(watch: ParentWatch) -> None:
    while watch.is_alive():
        time.sleep(LOOK_SECONDS)
    time.sleep(GRACE_SECONDS)
    os._exit(1)
