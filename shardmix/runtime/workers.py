"""The worker processes of a loader: a private torch DataLoader over a map-style source.

Rule 1: torch starts, feeds, watches and ends the processes; the sampler is the only control channel.
Rule 2: workers serve one pass at a time. A second live pass gets workers of its own; persistent ones serve the first.
Rule 3: worker seeds come from a generator of our own; no global one is moved.
"""

from __future__ import annotations

import pickle
import signal
from collections.abc import Callable, Generator, Iterator
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from .handoff import Bytes, PrivateBytes, SharedBytes
from .requests import Reply, Request, RequestSampler
from .source import Answers, ChunkSource, WorkerInit


class _InnerLoader(DataLoader[Any]):
    """torch's loader; the user was told already when there are more workers than processors."""

    def check_worker_number_rationality(self) -> None:
        pass


class Workers:
    """The processes that answer requests, and the slabs that are known of them; num_workers=0: this process itself."""

    def __init__(
        self,
        dataset: Any,
        answers: Answers,
        num_workers: int,
        *,
        opened: Any,
        prefetch_factor: int,
        persistent: bool,
        in_order: bool,
        timeout: float,
        worker_init_fn: Callable[[int], None] | None,
        context: Any,
    ) -> None:
        self.num_workers, self.persistent = num_workers, persistent
        self.opened = opened  # what the answers stand on; workers serve no other
        self.num_slabs = prefetch_factor + 1 if num_workers else 1
        self.views: dict[tuple[int, int], Bytes] = {}
        self.is_busy = False
        self.generation = 0
        self._is_broken = False  # torch's iterator met an error: its processes serve no other pass
        self._sampler = RequestSampler()
        self._generator = torch.Generator()
        self._cell = SharedBytes(8) if num_workers else PrivateBytes(8)
        self._cell.array[:] = 0
        self._source = ChunkSource(answers, self.num_slabs, self._cell)
        self._inner: DataLoader[Any] | None = None
        if num_workers:
            self._inner = _InnerLoader(
                self._source,
                batch_size=None,
                sampler=self._sampler,
                num_workers=num_workers,
                prefetch_factor=prefetch_factor,
                persistent_workers=persistent,
                in_order=in_order,
                timeout=timeout,
                worker_init_fn=WorkerInit(dataset, worker_init_fn),
                multiprocessing_context=context,
                generator=self._generator,
                collate_fn=_as_it_is,
            )
        self._replies: Any = None

    def next_generation(self) -> int:
        """Begin another talk: answers to the one before are void from now on. Returns its number."""
        self.generation += 1
        self._cell.array.view(np.int64)[0] = self.generation
        return self.generation

    def answers_to(self, requests: Iterator[Request], seed: int, describe: Callable[[int], str]) -> Generator[Reply, None, None]:
        """The replies to some requests, in torch's order. Starts the processes where they do not run yet.

        `describe` tells what a worker is at, for the error when it dies.
        """
        self._sampler.requests = requests
        if self._inner is None:
            yield from map(self._source.__getitem__, self._sampler)
            return
        if not self.persistent:
            self.views.clear()  # new processes, new slabs
        self._generator.manual_seed(seed)
        self._is_broken = False
        try:
            self._replies = iter(self._inner)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            error.add_note(
                "shardmix: this start method pickles the dataset with its parser and transform, and worker_init_fn; define them "
                "at the top level of a module, not as a lambda or inside a function"
            )
            raise
        yield from self._watched(self._replies, describe)

    def _watched(self, replies: Any, describe: Callable[[int], str]) -> Iterator[Reply]:
        """The replies; where torch says only that a process died, its worker, signal and work are named."""
        while True:
            self._is_broken = True
            try:
                reply = next(replies, None)
            except RuntimeError as error:
                processes = enumerate(replies._workers)
                dead = [describe_dead(worker, process, describe) for worker, process in processes if process.exitcode]
                if not dead:
                    raise
                raise RuntimeError("; ".join(dead)) from error
            self._is_broken = False
            if reply is None:
                return
            yield reply

    def hurry(self) -> None:
        """From now on what is asked for in this pass is answered at once, without work: nobody waits for it."""
        self._cell.array.view(np.int64)[0] = self.generation + 1

    def close(self) -> None:
        """End persistent workers."""
        iterator: Any = None if self._inner is None else self._inner._iterator
        if iterator is not None and self._inner is not None:
            iterator._shutdown_workers()
            self._inner._iterator = None

    def release(self) -> None:
        """End the pass at hand. Persistent workers stay for the next, the others end."""
        self.hurry()
        self._sampler.requests = iter(())
        replies, self._replies = self._replies, None
        if replies is not None and (self._is_broken or not self.persistent):
            replies._shutdown_workers()
            self.views.clear()
            if self._inner is not None:
                self._inner._iterator = None  # of persistent workers
        self.is_busy = False


def _as_it_is(reply: Any) -> Any:
    return reply


def describe_dead(worker: int, process: Any, describe: Callable[[int], str]) -> str:
    """Which worker died, of what, and over what work."""
    code = process.exitcode
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
    return f"worker {worker} (pid {process.pid}) {how}, {describe(worker)}"
