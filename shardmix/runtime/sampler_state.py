"""The random state behind a map-style dataset's sampler: what it takes to draw an epoch's indices again.

Rule 1: a sampler's state is that of its generator as the epoch began; the indices before the place are drawn again, not loaded.
Rule 2: a sampler that draws from torch's global generator cannot be resumed, and is told so.
"""

from __future__ import annotations

import base64
from typing import Any

import numpy as np
import torch


def find_generator(batch_sampler: Any) -> torch.Generator | None:
    """The generator of a batch sampler, or of the sampler that it draws from; None where there is none."""
    sampler = getattr(batch_sampler, "sampler", batch_sampler)
    generator = getattr(sampler, "generator", None)
    return generator if isinstance(generator, torch.Generator) else None


def find_obstacle(batch_sampler: Any) -> str | None:
    """Why the draws of a sampler cannot be repeated, or None."""
    sampler = getattr(batch_sampler, "sampler", batch_sampler)
    if getattr(sampler, "generator", False) is None:  # torch's random samplers: None is the global one
        return "the sampler draws from torch's global generator, so its epoch cannot be drawn again; give it a generator"
    return None


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


class EpochStates:
    """The state of a sampler's generator as each epoch of a pass began."""

    def __init__(self, generator: torch.Generator | None) -> None:
        self._generator = generator
        self._states: dict[int, str] = {}

    def begin(self, epoch: int, loaded: str | None) -> None:
        """A pass begins; `loaded`: what the generator's state was before this epoch, in the run that is resumed."""
        self._states.clear()
        if self._generator is not None and loaded is not None:
            restore_generator(self._generator, loaded)
        self.note(epoch)

    def note(self, epoch: int) -> None:
        """Take down the state before an epoch is drawn."""
        if self._generator is not None:
            self._states[epoch] = encode_generator(self._generator)

    def find(self, epoch: int, loaded: str | None) -> str | None:
        """The state before an epoch: as noted, else as loaded, else as it is now."""
        for passed in [number for number in list(self._states) if number < epoch]:
            self._states.pop(passed, None)
        if self._generator is None:
            return None
        return self._states.get(epoch) or loaded or encode_generator(self._generator)
