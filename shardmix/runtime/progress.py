"""How far the user has come, and which epoch is next.

Rule 1: only what the user has received counts; what the mixer made ahead does not.
Rule 2: without set_epoch each pass is the next epoch; under `repeat` each epoch of the pass is.
Rule 3: a loaded place is that of the next pass, once; naming another epoch before drops it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import NamedTuple, Protocol

from .feeds import Delivery
from .state import Loaded, Place


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


class Start(NamedTuple):
    """Where a pass begins, and how many epochs it has (None: endless)."""

    epoch: int
    first_row: int  # of a ShardDataset's epoch
    skip: int  # batches of a map-style epoch that were delivered before
    generator: str | None  # of a loaded place: its sampler's, as the epoch began
    repeat: int | None

    def epochs(self) -> Iterator[int]:
        """The numbers of the epochs."""
        return count(self.epoch) if self.repeat is None else iter(range(self.epoch, self.epoch + self.repeat))


class Progress:
    """The place of one loader's user."""

    def __init__(self, epochs: EpochCounter) -> None:
        self._epochs = epochs
        self._loaded: Loaded | None = None
        self._place: Place | None = None  # of the pass that began last

    def set_epoch(self, epoch: int) -> None:
        """Name the epoch of the next pass; a pass that was begun and left is no longer where the user stands."""
        self._place = None
        self._epochs.set(epoch)

    def load(self, loaded: Loaded) -> None:
        """Make a loaded place that of the next pass."""
        self._loaded, self._place = loaded, None
        self._epochs.set(loaded.epoch)

    def start(self, repeat: int | None) -> Start:
        """Begin a pass; from now on the pass after it is the epoch after it."""
        place, loaded = self.pending()
        self._loaded = None
        self._place = place
        self._epochs.set(place.epoch + 1)
        epochs = None if repeat is None else max(1, place.pass_epoch + repeat - place.epoch)
        return Start(place.epoch, place.first_row, loaded.skip if loaded else 0, loaded.generator if loaded else None, epochs)

    def deliver(self, delivery: Delivery) -> None:
        """Take down that the user has received a batch."""
        place = self._place or self.pending()[0]
        if delivery.epoch != place.epoch:
            place = Place(delivery.epoch, place.pass_epoch)
            self._epochs.set(delivery.epoch + 1)
        self._place = place._replace(step=delivery.step + 1)

    def place(self) -> Place:
        """Where the user stands: in the pass that began last, or at the beginning of the next."""
        return self._place or self.pending()[0]

    def following(self, repeat: int | None) -> Place:
        """The beginning of the epoch after the one at hand: of the same pass under `repeat`, else of the next."""
        place = self.place()
        if repeat is None or place.epoch + 1 < place.pass_epoch + repeat:
            return Place(place.epoch + 1, place.pass_epoch)
        return Place(self._epochs.next_epoch, self._epochs.next_epoch)

    def loaded_generator(self) -> str | None:
        """The state of the sampler's generator in a loaded place that no pass has taken up yet."""
        loaded = self.pending()[1]
        return loaded.generator if loaded else None

    def pending(self) -> tuple[Place, Loaded | None]:
        """Where the next pass begins, and the loaded place that says so."""
        epoch, loaded = self._epochs.next_epoch, self._loaded
        if loaded is None or loaded.epoch != epoch:
            return Place(epoch, epoch), None
        return Place(epoch, loaded.pass_epoch, loaded.first_row, loaded.skip), loaded
