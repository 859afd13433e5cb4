"""How far the user has come, and which epoch is next.

Rule 1: only what the user has received counts; what the mixer made ahead does not.
Rule 2: without set_epoch each pass is the next epoch; under `repeat` each epoch of the pass is.
Rule 3: the user stands in the pass that began last. What an earlier pass still delivers moves nothing.
Rule 4: a loaded place is that of the next pass, once; naming another epoch before drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple, Protocol

from .feeds import Delivery


class Place(NamedTuple):
    """How far the user has come in an epoch: `step` batches, the first of which began at `first_row`."""

    epoch: int
    pass_epoch: int  # in which the pass began, under `repeat`
    first_row: int = 0  # of a ShardDataset's epoch
    step: int = 0  # of a map-style epoch: from its beginning, in any case


class EpochCounter(Protocol):
    """Who knows the epoch of the next pass: a ShardDataset's, which its workers share, or a loader's own."""

    @property
    def next_epoch(self) -> int:
        """The epoch of the next pass."""
        ...

    def set(self, epoch: int) -> None:
        """Make `epoch` that of the next pass."""
        ...


class OwnEpoch:
    """The epochs of a data set that does not count them."""

    def __init__(self) -> None:
        self.next_epoch = 0

    def set(self, epoch: int) -> None:
        self.next_epoch = epoch


class Loaded(NamedTuple):
    """A place that was loaded, for the next pass."""

    place: Place
    generator: str | None = None  # of a map-style dataset's sampler, as the epoch began


class Start(NamedTuple):
    """Where a pass begins, and how many epochs it has (None: endless)."""

    place: Place
    generator: str | None  # of a loaded place
    num_epochs: int | None

    @property
    def epoch(self) -> int:
        """The first epoch."""
        return self.place.epoch

    def epochs(self) -> Iterator[int]:
        """The numbers of the epochs."""
        return count(self.epoch) if self.num_epochs is None else iter(range(self.epoch, self.epoch + self.num_epochs))


class Progress:
    """The place of one loader's user."""

    def __init__(self, epochs: EpochCounter) -> None:
        self._epochs = epochs
        self._loaded: Loaded | None = None
        self._pass: Start | None = None  # that began last
        self._place: Place | None = None  # in it
        self._has_ended = False  # it has no more batches

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; a pass that was begun and left is no longer where the user stands."""
        self._pass = self._place = None
        if self._loaded is not None and self._loaded.place.epoch != epoch:
            self._loaded = None
        self._epochs.set(epoch)

    def load(self, loaded: Loaded) -> None:
        """Make a loaded place that of the next pass."""
        self._pass = self._place = None
        self._loaded = loaded
        self._epochs.set(loaded.place.epoch)

    def next_start(self, repeat: int | None) -> Start:
        """Where the next pass begins."""
        place = self._next_place()
        num_epochs = None if repeat is None else max(1, place.pass_epoch + repeat - place.epoch)
        return Start(place, self.loaded_generator(), num_epochs)

    def begin(self, start: Start) -> None:
        """A pass has begun; from now on the one after it is the epoch after it."""
        self._pass, self._place, self._has_ended = start, start.place, False
        self._loaded = None
        self._epochs.set(start.epoch + 1)

    def deliver(self, start: Start, delivery: Delivery) -> None:
        """Take down that the user has received a batch of the pass that began with `start`."""
        if start is not self._pass or self._place is None:
            return
        place = self._place
        if delivery.epoch != place.epoch:
            place = Place(delivery.epoch, place.pass_epoch)
            self._epochs.set(delivery.epoch + 1)
        self._place = Place(place.epoch, place.pass_epoch, place.first_row, delivery.step + 1)

    def end(self, start: Start) -> None:
        """Take down that the pass has no more batches."""
        if start is self._pass:
            self._has_ended = True

    @property
    def is_under_way(self) -> bool:
        """Whether the user stands in a pass that began, not before the next."""
        return self._place is not None

    @property
    def has_ended(self) -> bool:
        """Whether the pass in which the user stands has no more batches."""
        return self._place is not None and self._has_ended

    def place(self) -> Place:
        """Where the user stands: in the pass that began last, or at the beginning of the next."""
        return self._place or self._next_place()

    def following(self, repeat: int | None) -> Place:
        """The beginning of the epoch after the one at hand: of the same pass under `repeat`, else of the next."""
        place = self.place()
        if not self.has_ended and (repeat is None or place.epoch + 1 < place.pass_epoch + repeat):
            return Place(place.epoch + 1, place.pass_epoch)
        return Place(self._epochs.next_epoch, self._epochs.next_epoch)

    def loaded_generator(self) -> str | None:
        """The state of the sampler's generator in a loaded place that no pass has taken up yet."""
        return self._loaded.generator if self._loaded is not None else None

    def _next_place(self) -> Place:
        if self._loaded is not None:
            return self._loaded.place
        return Place(self._epochs.next_epoch, self._epochs.next_epoch)
