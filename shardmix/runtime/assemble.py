"""Batches out of chunks: rows are copied once, from the slabs into the batch.

Rule 1: a batch is made of parts: consecutive rows of one chunk, and the places that they take in the batch.
Rule 2: where all parts have one structure and nobody wants samples, no Python object is made per row.
Rule 3: a hole shrinks its batch, or is filled by repeating another row of it; no other batch changes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

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
        self,
        memory: BatchMemory,
        collate_fn: Callable[[list[Any]], Any] | None,
        with_source: bool,
        fill_holes: bool,
        has_workers: bool,
    ) -> None:
        self._memory, self._collate_fn = memory, collate_fn
        self._with_source, self._fill_holes = with_source, fill_holes
        self._has_workers = has_workers  # else threads of this process answer, and no row is of a worker
        self._before: list[Part] = []  # of the batch before, where a batch of holes only may repeat it

    def assemble(self, parts: Sequence[Part], num_holes: int, epoch: int, step: int) -> Any:
        """The batch of some parts; `num_holes` rows that were due are missing from them."""
        parts = [part for part in parts if part.stop > part.start]
        num_own = num_rows = sum(part.stop - part.start for part in parts)
        if not parts:
            parts = self._parts_before(num_holes, epoch, step)
            num_rows = sum(part.stop - part.start for part in parts)
        elif self._fill_holes:
            self._before = [_own_part(part) for part in parts]
        due = num_own + num_holes if self._fill_holes else num_rows
        batch = self._make(parts, num_rows, due)
        if self._with_source:
            batch = attach_source(batch, self._source_of(parts, num_rows, due, num_own, epoch))
        return batch

    def _make(self, parts: Sequence[Part], num_rows: int, due: int) -> Any:
        """The batch of the parts' rows, repeated until there are as many as are due."""
        structure = parts[0].chunk.structure
        alike = structure != PICKLED and all(part.chunk.structure == structure for part in parts)
        if alike and self._collate_fn is None:
            columns = self._scatter(parts)
            rows = np.arange(due) % num_rows
            return unpack_batch(structure, columns if due == num_rows else [take_rows(column, rows) for column in columns])
        samples: list[Any] = []
        while len(samples) < due:  # repeated rows are samples of their own
            samples += _samples_of(parts, num_rows)
        return (self._collate_fn or collate)(samples[:due])

    def _scatter(self, parts: Sequence[Part]) -> list[Column]:
        return scatter_rows(
            [[slice_rows(column, part.start, part.stop) for column in part.chunk.columns] for part in parts],
            [part.positions for part in parts],
            self._memory.allocate,
        )

    def _parts_before(self, num_holes: int, epoch: int, step: int) -> list[Part]:
        """What a batch of holes only is made of: the batch before. Raises ShardMixError where there is none."""
        if self._before:
            return self._before
        raise ShardMixError(
            f"epoch {epoch} step {step}: all {num_holes} records of the batch were skipped; "
            'check the corpus, or let batches repeat rows with on_hole="fill"'
        )

    def _source_of(self, parts: Sequence[Part], num_rows: int, due: int, num_own: int, epoch: int) -> Source:
        """Where each row of the batch came from; `num_own` of them are its own, the others fill holes."""
        rows = np.empty((num_rows, SOURCE_FIELDS), np.int64)
        worker = np.zeros(num_rows, np.int64)
        for part in parts:
            rows[part.positions] = part.chunk.source[part.start : part.stop]
            if self._has_workers:
                worker[part.positions] = part.worker
        order = np.arange(due)
        rows, worker, is_fill = rows[order % num_rows], worker[order % num_rows], order >= num_own
        shard, record, lane, is_pad = (np.ascontiguousarray(rows[:, field]) for field in range(SOURCE_FIELDS))
        return Source.of(np.full(due, epoch), shard, record, lane, worker, is_pad.astype(np.bool_), is_fill)


def _own_part(part: Part) -> Part:
    """The rows of a part in memory of their own, out of the slab."""
    chunk = part.chunk
    rows = np.arange(part.start, part.stop)
    columns = [take_rows(column, rows) for column in chunk.columns]
    source = chunk.source[part.start : part.stop].copy()
    return part._replace(chunk=Chunk(chunk.structure, columns, rows, source), start=0, stop=len(rows))


def _samples_of(parts: Sequence[Part], num_rows: int) -> list[Any]:
    """The samples of a batch; each owns its values."""
    samples: list[Any] = [None] * num_rows
    for part in parts:
        columns = [slice_rows(column, part.start, part.stop) for column in part.chunk.columns]
        for position, sample in zip(part.positions.tolist(), unpack_samples(part.chunk.structure, columns), strict=True):
            samples[position] = sample
    return samples
