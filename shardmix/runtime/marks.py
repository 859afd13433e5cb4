"""Marks: values of a sample whose length varies from sample to sample, so that a batch of them is ragged.

Rule 1: the mark decides, never the lengths in a batch: rows that happen to be equally long are ragged all the same.
Rule 2: a mark gets in nobody's way: a RaggedRow is an array, a RaggedList is a list, for a user's transform or collate_fn.
Rule 3: slices and elementwise results of a RaggedRow are marked too; `np.asarray(row)` takes the mark off.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..format.columns import ColumnSpec


class RaggedRow(np.ndarray[Any, Any]):
    """An array whose first dimension varies from sample to sample."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        """What numpy makes of a result: marked while it has a dimension, an ordinary number when it has none."""
        return array.view(RaggedRow) if array.ndim else array[()]


class RaggedList(list[Any]):
    """Any number of bytes, of arrays, or of lists of bytes; `spec` describes the column of such values (a list may be empty)."""

    def __init__(self, items: Iterable[Any], spec: ColumnSpec) -> None:
        super().__init__(items)
        self.spec = spec

    def __reduce__(self) -> tuple[Any, ...]:
        return RaggedList, (list(self), self.spec)


def mark_ragged(values: ArrayLike) -> NDArray[Any]:
    """The values as an array that `collate` and MixLoader put into a Ragged, not into a stacked tensor.

    >>> samples = [{"ids": mark_ragged([7, 8])}, {"ids": mark_ragged([9])}]
    >>> shardmix.collate(samples)["ids"].to_list()
    [[7, 8], [9]]

    values: array of at least one dimension; the first is the one that varies. The memory is shared, not copied.

    Raises ValueError for a single number.
    """
    array = np.asarray(values)
    if array.ndim == 0:
        raise ValueError(f"mark_ragged: got the single value {array[()]!r}, expected an array whose first dimension varies")
    return array.view(RaggedRow)
