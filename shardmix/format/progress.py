"""A bar for work of many parts, or the caller's own function.

Rule: the bar appears on a terminal, after two seconds; in a pipe there is none.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

# progress(parts done, parts in all); True, False, or None: a bar on a terminal
ProgressLike = bool | Callable[[int, int], None] | None

BAR_AFTER_SECONDS = 2.0


@contextmanager
def show_progress(
    progress: ProgressLike, total: int, *, doing: str = "indexing", unit: str = "shards"
) -> Iterator[Callable[[int], None]]:
    """A function to call with the number of parts that were done since the last call; 0 lets a bar appear that is due.

    with show_progress(None, total=3) as show:
        show(1)
    """
    done = 0
    bar: Any = None
    is_terminal = sys.stderr is not None and sys.stderr.isatty()
    begin = time.monotonic()

    def show(num_parts: int) -> None:
        nonlocal bar, done
        done += num_parts
        if callable(progress):
            if num_parts:
                progress(done, total)
        elif bar is not None:
            bar.update(num_parts)
        elif progress or (progress is None and is_terminal and time.monotonic() - begin > BAR_AFTER_SECONDS):
            bar = _open_bar(done, total, doing, unit)

    try:
        yield show
    finally:
        if bar is not None:
            bar.close()


def _open_bar(done: int, total: int, doing: str, unit: str) -> Any:
    from tqdm import tqdm

    bar_class: Any = type("Bar", (tqdm,), {"monitor_interval": 0})  # no thread of its own
    return bar_class(total=total, initial=done, desc=doing, unit=f" {unit}", file=sys.stderr)
