"""Tell Accelerate which loader is being iterated, and when its last batch is out.

Rule 1: only in a program that has made an Accelerator; nothing of it is imported here.
Rule 2: with the last batch `end_of_dataloader` is true, so that `accumulate` steps with what it has.
Rule 3: `remainder` is 0: the rows that repeat others are not the last of what is gathered when there are more than two ranks, so
`gather_for_metrics` is to cut nothing. The source of a batch marks them (`is_pad`).

`accelerate.state.GradientState` is what Accelerate's own loaders report to.
"""

from __future__ import annotations

import sys
from typing import Any


def find_gradient_state() -> Any | None:
    """Accelerate's record of the loaders that are iterated; None in a program without Accelerate."""
    module = sys.modules.get("accelerate.state")
    if module is None or not module.GradientState._shared_state:
        return None
    return module.GradientState()


class LoaderReport:
    """What Accelerate is told of one pass of a loader."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._state = find_gradient_state()
        if self._state is not None:
            loader.end_of_dataloader = False
            self._state._add_dataloader(loader)

    @property
    def is_wanted(self) -> bool:
        """Whether there is anybody to tell."""
        return self._state is not None

    def tell(self, is_last: bool) -> None:
        """The user receives a batch."""
        self._loader.end_of_dataloader = is_last

    def close(self) -> None:
        """The pass has ended. Closing twice is allowed."""
        state, self._state = self._state, None
        if state is not None:
            self._loader.end_of_dataloader = False
            state._remove_dataloader(self._loader)
