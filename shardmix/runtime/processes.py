"""Torch's worker processes, watched while they answer, and ended whatever has happened to them.

Rule 1: who waits for an answer waits for the death of a process as well, and looks now and then whether anybody still wants it.
Rule 2: processes end by torch's own protocol. Once one has died, or hangs, they are killed: it may have held a lock that the
others, or the protocol, wait for. They hold nothing that a kill could spoil: slabs have no name, and shards are only read.
Rule 3: whoever drops the last reference, processes end while their queues work; see the note.
Rule 4: nothing that is shared with a worker has a lock that it could die with, where the main process would wait for it.
Rule 5: starting processes settles nothing for the program: neither its start method nor what its fork server loads.

Note "Queues in garbage". When a loader is part of a garbage cycle (an exception that is kept is enough), Python's collector calls
the finalizers of multiprocessing's queues before torch's `__del__`, which then says goodbye through queues that do not send any
more, and waits five seconds for each worker. So a finalizer of ours holds the processes: they are never garbage themselves.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import wait
from multiprocessing.context import ForkContext, ForkServerContext
from typing import Any

import torch
from torch.utils.data import DataLoader
from torch.utils.data.dataloader import _MultiProcessingDataLoaderIter

from .done_flag import DoneFlag
from .fork_server import start_fork_server
from .link import PassGivenUp

LOOK_SECONDS = 0.1
PATIENCE_SECONDS = 5.0  # as torch has with each worker


def _describe_nothing(worker: int) -> str:
    return "with nothing asked of it"


@dataclass
class Watch:
    """What who waits for the workers needs to know."""

    is_given_up: bool = False  # nobody wants the answers any more
    describe: Callable[[int], str] = _describe_nothing  # what a worker is at


class WatchedIterator(_MultiProcessingDataLoaderIter):
    """Torch's processes and the talk with them."""

    def __init__(self, loader: DataLoader[Any], watch: Watch) -> None:
        self._watch = watch
        self._done = DoneFlag()
        self._owner = os.getpid()
        self.is_broken = False  # the processes are of no more use
        try:
            start_helpers(loader.multiprocessing_context)
            with _no_interrupt():
                super().__init__(loader)
        except BaseException as error:  # torch would leave what it began to the garbage collector
            started = len(getattr(self, "_workers", ()))
            if hasattr(self, "_workers"):
                self._kill()
            if isinstance(error, (ConnectionError, EOFError)):  # who was to read the arguments is gone
                raise RuntimeError(f"worker {started} died while it was started") from error
            raise
        # torch's SIGCHLD handler, which the first torch loader of a program installs, would raise in whatever the main thread
        # is doing; here who waits for a worker learns of its death
        self._forget_at_torch()

    @property  # type: ignore[override]
    def _workers_done_event(self) -> DoneFlag:
        return self._done

    @_workers_done_event.setter
    def _workers_done_event(self, event: Any) -> None:
        """Leave torch's."""

    def _forget_at_torch(self) -> None:
        if self._worker_pids_set:
            torch._C._remove_worker_pids(id(self))
            self._worker_pids_set = False

    def _get_data(self) -> Any:
        """Torch's wait for the next answer of any worker.

        Raises RuntimeError when a worker has died or takes longer than `timeout`, PassGivenUp when nobody waits any more.
        """
        answers: Any = self._worker_result_queue
        arrivals = answers._reader
        sentinels = {process.sentinel: worker for worker, process in enumerate(self._workers)}
        started = time.monotonic()
        while True:
            ready = wait([arrivals, *sentinels], LOOK_SECONDS)
            if arrivals in ready:
                return answers.get()
            if ready:
                self.is_broken = True
                dead = [worker for sentinel, worker in sentinels.items() if sentinel in ready]
                raise RuntimeError("; ".join(map(self._describe_dead, dead)))
            if self._watch.is_given_up:
                raise PassGivenUp
            if 0 < self._timeout < time.monotonic() - started:
                self.is_broken = True
                raise RuntimeError(self._describe_late())

    def end(self) -> None:
        """End the processes, and return when they are gone. Ending twice is allowed; a forked copy of this ends nothing."""
        if not self._shutdown and self._owner == os.getpid():
            if not self.is_broken:
                self._say_goodbye()
            self._kill()

    def _shutdown_workers(self) -> None:
        """What torch calls when the iterator goes."""
        self.end()

    def _say_goodbye(self) -> None:
        """End the processes by torch's protocol, as far as they do within one patience for all."""
        self._done.set()
        for queue in self._index_queues:
            queue.put(None)
        living = {process.sentinel for process in self._workers}
        patience = time.monotonic() + PATIENCE_SECONDS
        while living and (left := patience - time.monotonic()) > 0:
            living.difference_update(wait(living, left))

    def _kill(self) -> None:
        self._shutdown = True  # torch's protocol is over
        for process in self._workers:
            process.kill()
        for process in self._workers:
            process.join()
        for queue in self._index_queues:
            _close(queue)
        self._forget_at_torch()

    def refuse_dead(self, worker: int, error: Exception) -> None:
        """Raise RuntimeError where an error comes of the death of a worker."""
        self._workers[worker].join(1)
        if not self._workers[worker].is_alive():
            self.is_broken = True
            raise RuntimeError(self._describe_dead(worker)) from error

    def _describe_dead(self, worker: int) -> str:
        """What a worker died of, and over what work."""
        process = self._workers[worker]
        process.join()
        code = process.exitcode or 0
        how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        return f"worker {worker} (pid {process.pid}) {how}, {self._watch.describe(worker)}"

    def _describe_late(self) -> str:
        worker = self._task_info[self._rcvd_idx][0]
        return (
            f"worker {worker} (pid {self._workers[worker].pid}) gave no answer within timeout={self._timeout} s, "
            f"{self._watch.describe(worker)}"
        )


def _close(queue: Any) -> None:
    """Close the writing end of a queue that nobody reads any more: its thread would wait for ever for room in a full pipe."""
    queue.cancel_join_thread()
    thread = queue._thread
    if thread is None:
        return
    reader = os.dup(queue._reader.fileno())  # the thread closes its own as it ends
    try:
        queue.close()
        while thread.is_alive():
            if wait([reader], LOOK_SECONDS / 100):
                os.read(reader, 1 << 16)
    finally:
        os.close(reader)


def start_helpers(context: Any) -> None:
    """Start what Python would start on the way: both have their own ways with Ctrl-C."""
    if not isinstance(context, ForkContext):
        resource_tracker.ensure_running()
    if isinstance(context, ForkServerContext):
        start_fork_server()


@contextlib.contextmanager
def _no_interrupt() -> Iterator[None]:
    """Keep Ctrl-C from this thread, and so from the processes that it starts, until they can take it (WorkerInit)."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _start_method_left_open() -> Iterator[str]:
    """The start method of the program. Where it has chosen none, it still can: torch, and Python's spawn, would settle it."""
    chosen, default = multiprocessing.get_start_method(allow_none=True), multiprocessing.get_all_start_methods()[0]
    try:
        yield chosen or default
    finally:
        if chosen is None and multiprocessing.get_start_method(allow_none=True) == default:
            multiprocessing.set_start_method(None, force=True)


class WatchedLoader(DataLoader[Any]):
    """A private torch loader whose processes serve pass after pass until they are ended."""

    watch: Watch

    def _get_iterator(self) -> WatchedIterator:
        with _start_method_left_open() as method:
            if self.multiprocessing_context is None:
                self.multiprocessing_context = method
            return WatchedIterator(self, self.watch)

    @property
    def processes(self) -> WatchedIterator | None:
        """The processes, where they run."""
        found: Any = self._iterator
        return found if isinstance(found, WatchedIterator) else None

    def end_processes(self) -> None:
        """End them; the next pass starts new ones."""
        processes, self._iterator = self.processes, None
        if processes is not None:
            processes.end()
