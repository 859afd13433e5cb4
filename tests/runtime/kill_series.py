"""What series of kills have in common: what is killed, at which moments drawn from a seed, and how a program tells them."""

from __future__ import annotations

import os
import random
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

SECONDS_TO_END = 60.0  # an orphan looks after at most 5 s, and after its imports; the rest is for a loaded machine


@dataclass
class Series:
    """What is killed, how often, at which moments."""

    method: str
    is_persistent: bool
    num_kills: int
    seed: int
    pattern: str
    folder: Path
    draw: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.draw = random.Random(self.seed)

    @property
    def moments(self) -> list[str]:
        """In turn: in the imports of a worker, in its first chunk, later, as the pass is closed, between passes."""
        return ["starting", "first", "steady", "closing", *(["idle"] if self.is_persistent else [])]

    def delay(self, moment: str) -> float:
        """Seconds from the beginning of a moment to the kill."""
        start = 0.03 if self.method == "fork" else 1.5
        longest = {"starting": start, "first": 0.01, "steady": 0.03, "closing": 0.005, "idle": 0.02}[moment]
        return self.draw.random() * longest

    def open_loader(self, mark: Any, num_workers: int, **settings: Any) -> Any:
        """A loader over the corpus."""
        from shardmix import MixLoader, ShardDataset
        from tests.runtime.loading import FEATURES

        return MixLoader(
            ShardDataset(self.pattern, features=FEATURES, shuffle_buffer_size=32),
            batch_size=4,
            num_workers=num_workers,
            persistent_workers=self.is_persistent,
            multiprocessing_context=self.method,
            worker_init_fn=mark,
            **settings,
        )


@dataclass
class Mark:
    """Tells through a named pipe that a moment of a program has come; as worker_init_fn, that a worker begins to work."""

    pipe: str
    number: int

    def __call__(self, worker: int) -> None:
        self.tell("first")

    def tell(self, moment: str) -> None:
        """One line, written at once."""
        pipe = os.open(self.pipe, os.O_WRONLY)
        os.write(pipe, f"{self.number} {moment}\n".encode())
        os.close(pipe)


def make_pipe(folder: Path) -> int:
    """A named pipe, open at both ends, so that nobody waits for anybody."""
    os.mkfifo(folder / "pipe")
    return os.open(folder / "pipe", os.O_RDWR | os.O_NONBLOCK)


def check(is_so: bool, otherwise: str) -> None:
    """Raise RuntimeError with a text, unless it is so."""
    if not is_so:
        raise RuntimeError(otherwise)


def read_arguments() -> Series:
    """The series that the arguments of the program name."""
    method, workers, num_kills, seed, pattern, folder = sys.argv[1:]
    return Series(method, workers == "persistent", int(num_kills), int(seed), pattern, Path(folder))
