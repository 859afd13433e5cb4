"""A pass over the data: the mixer works ahead in a thread, the user takes batches.

Rule 1: the thread knows nothing of the iterator that the user holds, so that dropping it ends the pass.
Rule 2: the thread stays at most AHEAD batches ahead of the user, or one group of several that are made together (small ones, or
those that the workers wrote in their places), which are handed over together: a change of threads costs more than such a batch.
What was mixed and not taken was not delivered.
Rule 3: an exception ends the pass where its batch was due; StopIteration stays.

Data sets other than ShardDataset have no thread at num_workers=0: as with torch, each batch is made when it is asked for, so that
user code that draws from global generators takes turns with the training loop in a fixed order.
"""

from __future__ import annotations

import queue
import threading
import weakref
from collections.abc import Callable, Generator, Iterator
from typing import Any, NamedTuple, Protocol, Self

from .feeds import Delivery
from .limits import UserClock
from .link import PassGivenUp

AHEAD = 2  # batches

Deliveries = Generator[Delivery, None, None]


class _End(NamedTuple):
    """What the thread says last: the pass ended, or failed."""

    error: BaseException | None


class Mixer(Protocol):
    """Makes the deliveries of one pass."""

    def get(self) -> Delivery | None:
        """The next delivery; None at the end. Raises what was met on the way."""
        ...

    def close(self) -> None:
        """End the pass and give back what it uses. Closing twice is allowed."""
        ...

    def give_up(self) -> None:
        """Let the pass end; waits for no thread."""
        ...


class InlineMixer:
    """Mixes in the thread of the user."""

    def __init__(self, deliveries: Deliveries, release: Callable[[], None]) -> None:
        self._deliveries, self._release = deliveries, release
        self._is_closed = False

    def get(self) -> Delivery | None:
        return next(self._deliveries, None)

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self._deliveries.close()
            self._release()

    def give_up(self) -> None:
        self.close()


class ThreadMixer:
    """Mixes in a thread, which alone touches the deliveries and what they stand on.

    `hurry` tells the workers that nobody waits for their answers any more; `release` gives them back.
    """

    def __init__(self, deliveries: Deliveries, release: Callable[[], None], hurry: Callable[[], None]) -> None:
        self._deliveries, self._release, self._hurry = deliveries, release, hurry
        self._made: queue.SimpleQueue[list[Delivery] | _End] = queue.SimpleQueue()
        self._taken: Iterator[Delivery] = iter(())  # what the user's thread has of the last group
        self._room = threading.Semaphore(AHEAD)
        self._ending = threading.RLock()  # whoever hurries workers must not meet those that serve another pass already
        self._is_closed = self._is_released = False
        self._thread = threading.Thread(target=self._run, name="shardmix-mixer", daemon=True)
        self._thread.start()

    def get(self) -> Delivery | None:
        while (delivery := next(self._taken, None)) is None:
            item = self._made.get()
            if isinstance(item, _End):
                if item.error is None:
                    return None
                try:
                    raise item.error
                finally:
                    del item  # this frame is in the traceback of the error: who keeps the error would keep the pass
            self._room.release(_room_of(item))
            self._taken = iter(item)
        return delivery

    def close(self) -> None:
        self.give_up()
        if self._thread is not threading.current_thread():
            self._thread.join()
            # an error that nobody took has this mixer in its traceback: in its queue it would keep all that the pass had open
            self._made = queue.SimpleQueue()
            self._made.put(_End(None))

    def give_up(self) -> None:
        with self._ending:
            self._is_closed = True
            if not self._is_released:
                self._hurry()
        self._room.release(AHEAD + 1)  # whatever the thread waits for

    def _run(self) -> None:
        error: BaseException | None = None
        try:
            try:
                while self._step():
                    pass
            finally:
                self._deliveries.close()
                with self._ending:
                    self._is_released = True
                self._release()
        except PassGivenUp:  # closed from elsewhere: for who waits it is the end
            if not self._is_closed:
                error = RuntimeError("the workers were told that nobody waits for this pass, and not by this loader")
        except BaseException as caught:  # it is the user's thread that must see it
            error = caught
        self._made.put(_End(None if self._is_closed else error))
        error = None  # as in `get`

    def _step(self) -> bool:
        """Make one batch, or a group, as soon as there is room for it; False at the end."""
        self._room.acquire()
        made: list[Delivery] = []
        try:
            while not self._is_closed and (delivery := next(self._deliveries, None)) is not None:
                made.append(delivery)
                if not delivery.has_more:
                    return True
            return False
        finally:
            for _ in range(_room_of(made) - 1):
                self._room.acquire()
            if made:
                self._made.put(made)


def _room_of(made: list[Delivery]) -> int:
    """How much of the room some deliveries take that are handed over together."""
    return 1 if len(made) <= 1 else AHEAD


class MixIterator:
    """What `iter(loader)` gives. The pass begins with the first batch asked for, and ends with the iterator."""

    def __init__(
        self, begin: Callable[[], Mixer], deliver: Callable[[Delivery], None], length: Callable[[], int], clock: UserClock
    ) -> None:
        self._begin, self._deliver, self._length, self._clock = begin, deliver, length, clock
        self._mixer: Mixer | None = None
        self._is_ended = False

    def __iter__(self) -> Self:
        return self

    def __len__(self) -> int:
        return self._length()

    def __next__(self) -> Any:
        if self._is_ended:
            raise StopIteration
        self._clock.ask()
        try:
            if self._mixer is None:
                self._mixer = self._begin()
                self._finalizer = weakref.finalize(self, _end_dropped, self._mixer)
            delivery = self._mixer.get()
        except BaseException:
            self.close()
            raise
        if delivery is None:
            self.close()
            raise StopIteration
        batch = delivery.take()
        self._deliver(delivery)
        self._clock.give()
        return batch

    def close(self) -> None:
        """End the pass now: workers that are not persistent end, memory comes back. Closing twice is allowed."""
        self._is_ended = True
        if self._mixer is not None:
            self._finalizer.detach()
            self._mixer.close()


def _end_dropped(mixer: Mixer) -> None:
    """End the pass of an iterator that nobody holds any more.

    Garbage is collected in whichever thread is at work. It may be one that the pass itself waits for as it ends: a reader, or one
    that feeds a queue of torch's. All those are daemons, so no daemon waits here.
    """
    if threading.current_thread().daemon:
        mixer.give_up()
    else:
        mixer.close()
