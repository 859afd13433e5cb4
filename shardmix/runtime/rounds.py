"""Rounds of a map-style dataset: which batches of the sampler are loaded together, by which workers.

Rule 1: num_workers consecutive batches of the sampler form a round; worker w loads the w-th; the round's items, taken in turn
from each worker, are cut into batches of the same sizes.
Rule 2: a user's own batch_sampler is left whole: each of its batches is split over the workers, and comes out as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any

from .feeds import Round


def rounds_of_sampler(batches: Iterable[list[Any]], num_workers: int, epoch: int, skip: int = 0) -> Iterator[Round]:
    """Rounds of a sampler's batches, after the first `skip` of them were delivered."""
    source = iter(batches)
    step = 0
    while lists := [list(batch) for batch in islice(source, num_workers)]:
        if step + len(lists) > skip:
            yield Round(lists, [len(indices) for indices in lists], epoch, step, max(0, skip - step))
        step += len(lists)


def rounds_of_batch_sampler(batches: Iterable[list[Any]], num_workers: int, epoch: int, skip: int = 0) -> Iterator[Round]:
    """Rounds of one batch each, its items dealt to the workers."""
    for step, batch in enumerate(batches):
        if step >= skip:
            indices = list(batch)
            yield Round([indices[worker::num_workers] for worker in range(num_workers)], [len(indices)], epoch, step, 0)
