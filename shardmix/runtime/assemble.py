"""Batches out of chunks: rows are copied once, from the slabs into the batch.

Rule 1: a batch is made of parts: consecutive rows of one chunk, and the places that they take in the batch.
Rule 2: where all parts have one structure and nobody wants samples, no Python object is made per row.
Rule 3: a hole shrinks its batch, or is filled by repeating another row of it; no other batch changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import ShardMixError
from ..format.columns import Column, IntArray, scatter_rows, slice_rows, take_rows
from .handoff import Chunk
from .memory import BatchMemory
from .samples import PICKLED, Source, attach_source, collate, unpack_batch, unpack_samples

SOURCE_FIELDS = 4  # shard, record, lane, is_pad: what a worker says of a row


class Part(NamedTuple):
    """Rows start … stop-1 of a chunk, and where in the batch each of them goes."""

    chunk: Chunk
    worker: int
    start: int
    stop: int
    positions: IntArray  # (stop - start,)


class Assembler:
    """Makes batches. `collate_fn` None: columns become tensors as they are; else it gets the samples of each batch."""

    def __init__(
        self, memory: BatchMemory, collate_fn: Callable[[list[Any]], Any] | None, with_source: bool, fill_holes: bool
    ) -> None:
        self._memory, self._collate_fn = memory, collate_fn
        self._with_source, self._fill_holes = with_source, fill_holes
        self._before: Any = None  # the batch before, kept where an all-hole batch may repeat it

    def assemble(self, parts: Sequence[Part], num_holes: int, epoch: int, step: int) -> Any:
        """The batch of some parts; `num_holes` rows that were due are missing from them."""
        parts = [part for part in parts if part.stop > part.start]
        if not parts:
            return self._all_holes(num_holes, epoch, step)
        num_rows = sum(part.stop - part.start for part in parts)
        filled = np.arange(num_rows + num_holes) % num_rows if num_holes and self._fill_holes else None
        batch = self._make(parts, num_rows, filled)
        if self._with_source:
            batch = attach_source(batch, _source_of(parts, num_rows, filled, epoch))
        if self._fill_holes:
            self._before = batch
        return batch

    def _make(self, parts: Sequence[Part], num_rows: int, filled: IntArray | None) -> Any:
        structure = parts[0].chunk.structure
        alike = structure != PICKLED and all(part.chunk.structure == structure for part in parts)
        if alike and self._collate_fn is None:
            return unpack_batch(structure, self._scatter(parts, filled))
        samples: list[Any] = [None] * num_rows
        for part in parts:
            for position, sample in zip(part.positions.tolist(), _samples_of(part), strict=True):
                samples[position] = sample
        if filled is not None:
            samples = [samples[row] for row in filled.tolist()]
        return (self._collate_fn or collate)(samples)

    def _scatter(self, parts: Sequence[Part], filled: IntArray | None) -> list[Column]:
        columns = scatter_rows(
            [part.chunk.columns for part in parts],
            [part.positions for part in parts],
            self._memory.allocate,
            [(part.start, part.stop) for part in parts],
        )
        return columns if filled is None else [take_rows(column, filled) for column in columns]

    def _all_holes(self, num_holes: int, epoch: int, step: int) -> Any:
        if self._fill_holes and self._before is not None:
            return self._before
        raise ShardMixError(
            f"epoch {epoch} step {step}: all {num_holes} records of the batch were skipped; "
            'check the corpus, or let batches repeat rows with on_hole="fill"'
        )


def _samples_of(part: Part) -> list[Any]:
    columns = [slice_rows(column, part.start, part.stop) for column in part.chunk.columns]
    return unpack_samples(part.chunk.structure, columns)


def _source_of(parts: Sequence[Part], num_rows: int, filled: IntArray | None, epoch: int) -> Source:
    """Where each row of the batch came from."""
    rows = np.empty((num_rows, SOURCE_FIELDS), np.int64)
    worker = np.empty(num_rows, np.int64)
    for part in parts:
        rows[part.positions] = part.chunk.source[part.start : part.stop]
        worker[part.positions] = part.worker
    is_fill: NDArray[np.bool_] = np.zeros(num_rows, np.bool_)
    if filled is not None:
        rows, worker, is_fill = rows[filled], worker[filled], np.arange(len(filled)) >= num_rows
    shard, record, lane, is_pad = (np.ascontiguousarray(rows[:, field]) for field in range(SOURCE_FIELDS))
    return Source.of(np.full(len(shard), epoch), shard, record, lane, worker, is_pad.astype(np.bool_), is_fill)


