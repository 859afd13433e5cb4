"""Where the rows of a batch came from: what `with_source=True` adds.

Rule: a dict batch gets the key "source"; any other batch comes as (batch, source).
"""

from __future__ import annotations

import copy
from typing import Any, NamedTuple, Self

import torch
from numpy.typing import NDArray
from torch import Tensor

KEY = "source"


class Source(NamedTuple):
    """One entry a row, in the order of the batch; each a Tensor (rows,), int64 or bool."""

    epoch: Tensor
    shard: Tensor  # number of the shard in the corpus, in listing order
    record: Tensor  # number of the record in its shard
    lane: Tensor
    worker: Tensor  # 0 where there is none
    is_pad: Tensor  # bool: repeats a row of an earlier batch, so that every rank has as many rows
    is_fill: Tensor  # bool: repeats another row of this batch, in the place of a record that was skipped

    @classmethod
    def of(cls, *fields: NDArray[Any]) -> Self:
        """A Source over the arrays, in the order of the fields."""
        return cls(*map(torch.from_numpy, fields))


def attach_source(batch: Any, source: Source) -> Any:
    """The batch with its source. Raises ValueError for a dict batch that has a value of that name."""
    if not isinstance(batch, dict):
        return batch, source
    if KEY in batch:
        raise ValueError(f"with_source: the batch has a {KEY!r} of its own; rename that value, or set with_source=False")
    batch = copy.copy(batch)  # what a user's collate_fn returned may be the user's still
    batch[KEY] = source
    return batch
