"""What a map-style dataset's sampler needs to draw an epoch's indices again.

Rule 1: a sampler's state is that of its generator as the epoch began; the indices before the place are drawn again, not loaded.
Rule 2: a sampler that draws from torch's global generator cannot be resumed, and is told so.
Rule 3: without a generator of the user `shuffle` draws from one of our own, seeded once from torch's initial seed as it is when
that is first needed. The global one is not moved.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch

from ..order.hashing import SAMPLER, hash64
from .progress import Place, Progress, Start
from .state import State, order_of_map, state_of_map


class SamplerState:
    """The batch sampler of one loader, and the state of its generator as each epoch of a pass began.

    own_generator: what it draws from, when that is ours to seed; `number` tells such loaders apart.
    """

    def __init__(self, batch_sampler: Any, own_generator: torch.Generator | None, number: int) -> None:
        self.batch_sampler = batch_sampler
        self._unseeded, self._number = own_generator, number
        self._generator = find_generator(batch_sampler)
        self._states: dict[int, str] = {}

    @property
    def num_batches(self) -> int | None:
        """Batches of an epoch, where that is known."""
        return find_length(self.batch_sampler)

    def find_obstacle(self) -> str | None:
        """Why the draws cannot be repeated, or None."""
        sampler = getattr(self.batch_sampler, "sampler", self.batch_sampler)
        if getattr(sampler, "generator", False) is None:  # torch's random samplers: None is the global one
            return "the sampler draws from torch's global generator, so its epoch cannot be drawn again; give it a generator"
        return None

    def begin(self, start: Start) -> None:
        """A pass begins: its first epoch is drawn as in the run that is resumed, if one is."""
        self._seed()
        self._states.clear()
        if self._generator is not None and start.generator is not None:
            restore_generator(self._generator, start.generator)
        self.note(start.epoch)

    def note(self, epoch: int) -> None:
        """Take down the generator's state before an epoch is drawn."""
        if self._generator is not None:
            self._states[epoch] = encode_generator(self._generator)

    def order(self, num_workers: int, batch_size: int | None, dataset: Any) -> State:
        """What the batches depend on besides the draws."""
        return order_of_map(num_workers, batch_size, self.num_batches, find_length(dataset))

    def state(self, progress: Progress, repeat: int | None, order: State) -> State:
        """The state where the user stands."""
        self._seed()
        place, num_batches = progress.place(), order["batches"]
        if progress.has_ended or (num_batches is not None and 0 < num_batches <= place.step):
            place = progress.following(repeat)
        return state_of_map(place, self._find(place, progress), order)

    def _find(self, place: Place, progress: Progress) -> str | None:
        """The generator's state before an epoch: as noted, else as loaded, else as it is now."""
        for passed in [epoch for epoch in list(self._states) if epoch < place.epoch]:
            self._states.pop(passed, None)
        if self._generator is None:
            return None
        return self._states.get(place.epoch) or progress.loaded_generator() or encode_generator(self._generator)

    def _seed(self) -> None:
        generator, self._unseeded = self._unseeded, None
        if generator is not None:
            generator.manual_seed(hash64(SAMPLER, torch.initial_seed(), self._number))


def find_generator(batch_sampler: Any) -> torch.Generator | None:
    """The generator of a batch sampler, or of the sampler that it draws from; None where there is none."""
    sampler = getattr(batch_sampler, "sampler", batch_sampler)
    generator = getattr(sampler, "generator", None)
    return generator if isinstance(generator, torch.Generator) else None


def find_length(sized: Any) -> int | None:
    """How many it has, where it knows."""
    try:
        return len(sized)
    except (TypeError, NotImplementedError):
        return None


def encode_generator(generator: torch.Generator) -> str:
    """The state of a generator as text."""
    return base64.b64encode(generator.get_state().numpy().tobytes()).decode("ascii")


def restore_generator(generator: torch.Generator, text: str) -> None:
    """Put a generator back to an encoded state."""
    state = np.frombuffer(base64.b64decode(text), np.uint8).copy()
    generator.set_state(torch.from_numpy(state))
