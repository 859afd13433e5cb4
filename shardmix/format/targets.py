"""Where rows of dense columns go when they are handed on: straight into the memory of batches, each row to its place.

Rule 1: a buffer holds some rows of all dense columns, column after column, each aligned to ALIGNMENT bytes.
Rule 2: the layout follows from the specs and the number of rows, so that whoever writes and whoever reads need not talk of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .columns import Column, ColumnSpec
from .records import Bytes, IntArray

ALIGNMENT = 64


class DenseLayout:
    """How `num_rows` rows of the dense columns among `specs` lie in a buffer of `num_bytes` bytes, a row `row_bytes` of them."""

    def __init__(self, specs: Sequence[ColumnSpec], num_rows: int) -> None:
        self.specs, self.num_rows = tuple(specs), num_rows
        self.offsets: IntArray = np.zeros(len(self.specs), np.int64)  # where each column begins; 0 for those with levels
        end = 0
        for number, spec in enumerate(self.specs):
            if not spec.levels:
                self.offsets[number] = -(-end // ALIGNMENT) * ALIGNMENT
                end = int(self.offsets[number]) + num_rows * row_bytes(spec)
        self.num_bytes, self.row_bytes = end, dense_row_bytes(self.specs)

    def array(self, number: int, buffer: Bytes, num_rows: int) -> NDArray[np.generic]:
        """The first rows of a dense column, the number-th: a view of a buffer."""
        spec = self.specs[number]
        return np.ndarray((num_rows, *spec.item_shape), spec.dtype, buffer, int(self.offsets[number]))

    def arrays(self, buffer: Bytes, num_rows: int) -> list[NDArray[np.generic] | None]:
        """The first rows of each column, views of a buffer; None for columns with levels."""
        return [None if spec.levels else self.array(number, buffer, num_rows) for number, spec in enumerate(self.specs)]


class RowTargets(NamedTuple):
    """Row i of the dense columns goes to row position[i] of the layout in buffers[buffer[i]]."""

    buffers: tuple[Bytes, ...]
    buffer: IntArray  # (rows,)
    position: IntArray  # (rows,)
    layout: DenseLayout

    def take(self, rows: IntArray) -> RowTargets:
        """The targets of some rows."""
        return self._replace(buffer=self.buffer[rows], position=self.position[rows])

    def put(self, number: int, rows: IntArray, column: Column, column_rows: IntArray) -> None:
        """Copy rows of a dense column, the number-th of the layout, to their targets."""
        used = self.buffer[rows]
        for buffer in np.unique(used).tolist():
            here = np.flatnonzero(used == buffer)
            out = self.layout.array(number, self.buffers[buffer], self.layout.num_rows)
            out[self.position[rows[here]]] = column.values[column_rows[here]]


def row_bytes(spec: ColumnSpec) -> int:
    """Bytes of one row of a dense column."""
    return math.prod(spec.item_shape) * np.dtype(spec.dtype).itemsize


def dense_row_bytes(specs: Sequence[ColumnSpec]) -> int:
    """Bytes of one row of all dense columns among `specs`."""
    return sum(row_bytes(spec) for spec in specs if not spec.levels)
