"""Who receives the batches of one pass: takes down how far the user has come, and tells Accelerate where a program uses it.

Rule 1: what was mixed and not taken was not received.
Rule 2: a pass that cannot begin takes up no epoch, and no loaded place.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .feeds import Delivery
from .gradients import LoaderReport
from .passes import Mixer
from .progress import Place, Progress, Start


class Receiver:
    """Stands between the mixer of a pass and the iterator that the user holds; a `Mixer` itself.

    begin: starts mixing. is_last: whether the batch that brought the user to a place is the last of its pass.
    """

    def __init__(
        self, loader: Any, progress: Progress, begin: Callable[[Start], Mixer], is_last: Callable[[Place], bool]
    ) -> None:
        self._loader, self._progress = loader, progress
        self._begin, self._is_last = begin, is_last

    def begin(self) -> Mixer:
        """Begin the pass: called when its first batch is asked for."""
        self._start = self._progress.next_start(self._loader.repeat)
        self._mixer = self._begin(self._start)
        self._progress.begin(self._start)
        self._report = LoaderReport(self._loader)
        return self

    def get(self) -> Delivery | None:
        """The next delivery of the mixer; None at the end."""
        delivery = self._mixer.get()
        if delivery is None:
            self._progress.end(self._start)
        return delivery

    def deliver(self, delivery: Delivery) -> None:
        """The user receives a batch."""
        self._progress.deliver(self._start, delivery)
        self._loader._counts.batches += 1
        if self._report.is_wanted:
            self._report.tell(self._is_last(self._progress.place()))

    def close(self) -> None:
        """End the pass. Closing twice is allowed."""
        self._report.close()
        self._mixer.close()

    def give_up(self) -> None:
        """Let the pass end; waits for no thread."""
        self._report.close()
        self._mixer.give_up()
