"""Who answers: the worker processes of a loader, or threads of this process.

Rule 1: torch starts, feeds and ends the processes (processes.py watches them); the sampler is the only control channel.
Rule 2: workers serve one pass at a time. A second live pass gets workers of its own; persistent ones serve the first.
Rule 3: worker seeds come from a generator of our own; no global one is moved.
Rule 4: processes are started while the user waits for the first batch, so that a fork does not meet the user's code at work.
"""

from __future__ import annotations

import os
import pickle
import queue
import threading
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np
import torch

from .handoff import Bytes, PrivateBytes, SharedBytes, attach
from .processes import Watch, WatchedLoader
from .requests import Reply, Request, RequestSampler
from .source import Answers, ChunkSource, WorkerInit

AHEAD = 2  # requests of each thread that are on their way

Replies = Generator[Reply, None, None]


class Hosts(ABC):
    """Who hosts the lanes of a loader and answers its requests; and the slabs that are known of them.

    num_hosts: who are asked in turn. num_workers: those of them that are processes, as the user counts.
    """

    num_workers = 0

    def __init__(
        self, num_hosts: int, num_slabs: int, cell: SharedBytes | PrivateBytes, *, opened: Any, persistent: bool
    ) -> None:
        self.num_hosts, self.num_slabs = num_hosts, num_slabs
        self.opened = opened  # what the answers stand on; they serve no other
        self.persistent = persistent
        self.is_busy = False
        self.views: dict[tuple[int, int], Bytes] = {}
        self.generation = 0
        self._cell = cell  # the number of the talk at hand, as the hosts see it
        self._cell.array[:] = 0
        self._is_given_up = False
        self._held: list[Any] = []
        self._owner = os.getpid()

    def take(self) -> None:
        """Let them serve a pass."""
        self.is_busy, self._is_given_up = True, False

    def next_generation(self) -> int:
        """Begin another talk: answers to the one before are void from now on. Returns its number."""
        self.generation += 1
        self._tell()
        return self.generation

    def hurry(self) -> None:
        """From now on what is asked for in this pass is answered at once, without work: nobody waits for it."""
        self._is_given_up = True
        self._tell()

    def hold(self, memory: list[Any]) -> None:
        """Keep memory that requests name which were given up, until no host can write there any more."""
        self._held += memory

    def _note_slab(self, reply: Reply) -> None:
        """Remember where a slab lies, when the reply tells it. Raises OSError where it cannot be reached."""
        packed = reply.packed
        if packed is not None and packed.address is not None:
            memory = attach(packed.address) if packed.memory is None else packed.memory
            self.views[reply.worker, reply.slab] = memory

    @property
    def is_own(self) -> bool:
        """Whether this process started them, not the one that it was forked from."""
        return self._owner == os.getpid()

    def _tell(self) -> None:
        if self.is_own:  # a forked copy of a loader, dropped, must not end the pass of the original
            self._cell.array.view(np.int64)[0] = self.generation + self._is_given_up

    @abstractmethod
    def answers_to(self, requests: Iterator[Request], seed: int, describe: Callable[[int], str]) -> Replies:
        """The replies to some requests, in the order of the requests.

        `describe` tells what a host is at, for the error when it dies.
        """

    @abstractmethod
    def release(self) -> None:
        """End the pass at hand."""

    @abstractmethod
    def close(self) -> None:
        """End what serves pass after pass."""


class Workers(Hosts):
    """Worker processes."""

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
        super().__init__(num_workers, prefetch_factor + 1, SharedBytes(8), opened=opened, persistent=persistent)
        self.num_workers = num_workers
        self._sampler, self._generator = RequestSampler(), torch.Generator()
        self._watch = Watch()
        self._inner = WatchedLoader(
            ChunkSource(answers, self.num_slabs, self._cell),
            batch_size=None,
            sampler=self._sampler,
            num_workers=num_workers,
            prefetch_factor=prefetch_factor,
            persistent_workers=True,
            in_order=in_order,
            timeout=timeout,
            worker_init_fn=WorkerInit(dataset, worker_init_fn),
            multiprocessing_context=context,
            generator=self._generator,
            collate_fn=_as_it_is,
        )
        self._inner.watch = self._watch
        self._end = weakref.finalize(self, WatchedLoader.end_processes, self._inner)

    def take(self) -> None:
        super().take()
        self._watch.is_given_up = False

    def hurry(self) -> None:
        super().hurry()
        self._watch.is_given_up = True

    def answers_to(self, requests: Iterator[Request], seed: int, describe: Callable[[int], str]) -> Replies:
        """The replies, in torch's order. Starts the processes where they do not run yet."""
        self._sampler.requests, self._watch.describe = requests, describe
        self._generator.manual_seed(seed)
        try:
            replies: Any = iter(self._inner)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            error.add_note(
                "shardmix: this start method pickles the dataset with its parser and transform, and worker_init_fn; define them "
                "at the top level of a module, not as a lambda or inside a function"
            )
            raise
        self._held.clear()  # torch has drained the answers to the pass before
        for reply in replies:
            try:
                self._note_slab(reply)
            except OSError as error:  # its slabs went with it
                replies.refuse_dead(reply.worker, error)
                raise
            yield reply

    def release(self) -> None:
        """End the pass at hand. Persistent workers stay for the next, the others end."""
        self.hurry()
        processes = self._inner.processes
        if not self.persistent or (processes is not None and processes.is_broken):
            self._inner.end_processes()
            self.views.clear()
            self._held.clear()
        self._sampler.requests, self._watch.describe = iter(()), Watch.describe
        self.is_busy = False

    def close(self) -> None:
        """End persistent workers."""
        self._end()


class Threads(Hosts):
    """Threads of this process that read and decode; where there is one, it is the one that asks.

    The threads end with the pass; slabs and read buffers serve pass after pass, as those of persistent workers do.
    """

    def __init__(self, make_answers: Callable[[], Answers], num_threads: int, *, opened: Any, persistent: bool) -> None:
        super().__init__(num_threads, AHEAD + 1, PrivateBytes(8), opened=opened, persistent=persistent)
        self._sources = [
            ChunkSource(make_answers(), self.num_slabs, self._cell, number, num_threads) for number in range(num_threads)
        ]

    def answers_to(self, requests: Iterator[Request], seed: int, describe: Callable[[int], str]) -> Replies:
        if self.num_hosts == 1:
            yield from self._noted(map(self._sources[0].__getitem__, requests))
            return
        threads = [AnsweringThread(source) for source in self._sources]
        try:
            yield from self._noted(take_in_turn(requests, threads))
        except BaseException:
            self.hurry()
            raise
        finally:
            for thread in threads:
                thread.close()

    def _noted(self, replies: Iterator[Reply]) -> Iterator[Reply]:
        for reply in replies:
            self._note_slab(reply)
            yield reply

    def release(self) -> None:
        self._held.clear()  # the threads have ended
        for source in self._sources:
            source.close()
        self.is_busy = False

    def close(self) -> None:
        self.views.clear()
        self._sources.clear()


class AnsweringThread:
    """A thread that answers one request after the other."""

    def __init__(self, source: ChunkSource) -> None:
        self._source = source
        self._asked: queue.SimpleQueue[Request | None] = queue.SimpleQueue()
        self._answered: queue.SimpleQueue[Reply | BaseException] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="shardmix-reader", daemon=True)
        self._thread.start()

    def ask(self, request: Request) -> None:
        self._asked.put(request)

    def get(self) -> Reply:
        """The answer to the oldest request."""
        answer = self._answered.get()
        if isinstance(answer, BaseException):
            raise answer
        return answer

    def close(self) -> None:
        """End the thread, after the requests that it was given."""
        self._asked.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (request := self._asked.get()) is not None:
            try:
                answer: Reply | BaseException = self._source[request]
            except BaseException as error:  # it is the asking thread that must see it
                answer = error
            self._answered.put(answer)


def take_in_turn(requests: Iterator[Request], threads: Sequence[AnsweringThread]) -> Replies:
    """Ask the threads in turn, AHEAD requests each; the next when an answer is handed over, as torch does."""
    on_their_way: deque[AnsweringThread] = deque()
    turn = 0

    def ask() -> None:
        nonlocal turn
        request = next(requests, None)
        if request is not None:
            thread = threads[turn % len(threads)]
            thread.ask(request)
            on_their_way.append(thread)
            turn += 1

    for _ in range(AHEAD * len(threads)):
        ask()
    while on_their_way:
        reply = on_their_way.popleft().get()
        ask()
        yield reply


def _as_it_is(reply: Any) -> Any:
    return reply
