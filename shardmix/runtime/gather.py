"""The columns of a group of batches, gathered from chunks, and the batches that are cut out of them.

Rule 1: numbers and ragged values are copied once, into memory of the group; bytes and texts become the objects that a batch holds
straight from the slab.
Rule 2: a batch cut out of a group shows its own rows of the group's memory: it is what torch would collate of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from torch import from_numpy

from ..format.columns import Allocate, Column, IntArray, scatter_rows, slice_rows, take_rows
from .samples import Container, Structure, batch_of
from .shown import DENSE, LISTED, SHOWN

Gathered = Column | list[Any]


def gather(
    structure: Structure,
    parts: Sequence[Sequence[Column]],
    bounds: Sequence[tuple[int, int]],
    positions: Sequence[IntArray],
    allocate: Allocate,
) -> list[Gathered]:
    """Row bounds[j][0] + i of parts[j] becomes row positions[j][i] of every column; see `scatter_rows`."""
    listed = [kind in LISTED for kind in structure.kinds]
    scattered = iter(
        scatter_rows(
            [[column for column, is_listed in zip(part, listed, strict=True) if not is_listed] for part in parts],
            positions,
            allocate,
            bounds,
        )
    )
    return [
        _list_rows(structure.kinds[c], [part[c] for part in parts], bounds, positions) if is_listed else next(scattered)
        for c, is_listed in enumerate(listed)
    ]


def _list_rows(
    kind: str, parts: Sequence[Column], bounds: Sequence[tuple[int, int]], positions: Sequence[IntArray]
) -> list[Any]:
    """One object a row."""
    rows: list[Any] = [None] * sum(map(len, positions))
    for column, (start, stop), places in zip(parts, bounds, positions, strict=True):
        values = SHOWN[kind].rows(slice_rows(column, start, stop))
        step = int(places[1] - places[0]) if len(places) > 1 else 1
        if step > 0 and (np.diff(places) == step).all():  # as where every worker has as many rows of each batch
            rows[int(places[0]) : int(places[-1]) + 1 : step] = values
            continue
        for place, value in zip(places.tolist(), values, strict=True):
            rows[place] = value
    return rows


def take(columns: Sequence[Gathered], rows: IntArray) -> list[Gathered]:
    """Some rows, as copies; a row may be named more than once."""
    numbers = rows.tolist()
    return [[column[row] for row in numbers] if isinstance(column, list) else take_rows(column, rows) for column in columns]


class Cutter:
    """Cuts batches out of the columns of a group, over the group's memory.

        cutter = Cutter(structure, columns)
        cutter.cut(0, 32)      # the batch of the first 32 rows
    """

    def __init__(self, structure: Structure, columns: Sequence[Gathered]) -> None:
        self.columns, self.structure = columns, structure
        layout = structure.layout
        is_dict = type(layout) is Container and layout.type is dict and layout.children == tuple(range(len(columns)))
        self._keys: tuple[Any, ...] | None = layout.keys if is_dict else None
        # small batches of many numbers cost what their tensors cost, so nothing else is done for each of them
        self._arrays = [
            column.values
            for kind, column in zip(structure.kinds, columns, strict=True)
            if kind in DENSE and not isinstance(column, list)
        ]
        self._is_dense = len(self._arrays) == len(columns)

    def cut(self, start: int, stop: int) -> Any:
        """The batch of the rows start … stop-1."""
        if self._is_dense:
            shown: list[Any] = [from_numpy(values[start:stop]) for values in self._arrays]
        else:
            kinds = zip(self.structure.kinds, self.columns, strict=True)
            shown = [_show(kind, column, start, stop) for kind, column in kinds]
        if self._keys is not None:
            return dict(zip(self._keys, shown, strict=True))
        return batch_of(self.structure.layout, shown)


class Cut(NamedTuple):
    """A batch that is cut when the user takes it, by his thread: objects that one thread makes and another frees cost both more
    than twice as much (batches of 32 rows of 40 columns: 61 us of CPU against 32)."""

    cutter: Cutter
    start: int
    stop: int

    def make(self) -> Any:
        """The batch."""
        return self.cutter.cut(self.start, self.stop)


def _show(kind: str, column: Gathered, start: int, stop: int) -> Any:
    if isinstance(column, list):
        return column[start:stop]
    if kind in DENSE:
        return from_numpy(column.values[start:stop])
    return SHOWN[kind].batch(slice_rows(column, start, stop))
