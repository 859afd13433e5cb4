"""Batches out of chunks: rows are copied once, from the slabs into the batch, unless they were written there (shared_rows.py).

Rule 1: consecutive batches are put together as a group, one copy of all their rows into one buffer; each batch is a view of it,
of its own rows only. What is paid per column and chunk is then paid once a group, not once a batch.
Rule 2: where all chunks have one structure and nobody wants samples, no Python object is made per row.
Rule 3: a hole shrinks its batch, or is filled by repeating another row of it; no other batch changes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from ..errors import ShardMixError
from ..format.columns import Column, IntArray, slice_rows, take_rows
from .gather import Cut, Cutter, Gathered, gather, take
from .handoff import Chunk
from .memory import BatchMemory
from .samples import PICKLED, Source, Structure, attach_source, collate, unpack_samples

# A group is at most that large, unless a batch is: a batch that a user keeps keeps its group's memory.
GROUP_BYTES = 1 << 20
SOURCE_FIELDS = 4  # shard, record, lane, is_pad: what a worker says of a row


class Part(NamedTuple):
    """Rows start … stop-1 of a chunk, and where in the group each of them goes."""

    chunk: Chunk
    worker: int
    start: int
    stop: int
    positions: IntArray  # (stop - start,) ascending


class Dense(NamedTuple):
    """Dense columns of a group that lie in their places already, written by the workers."""

    structure: Structure  # of all columns
    columns: Sequence[Column | None]  # None: the column is in the chunks

    def join(self, gathered: Sequence[Gathered]) -> list[Gathered]:
        """All columns, with those that were gathered from the chunks."""
        others = iter(gathered)
        return [next(others) if column is None else column for column in self.columns]


class Group(NamedTuple):
    """Consecutive batches: batch j is the rows bounds[j] … bounds[j+1]-1 of the group."""

    parts: Sequence[Part]
    bounds: Sequence[int]
    due: Sequence[int]  # rows that each batch would have without holes
    epoch: int
    first_step: int
    dense: Dense | None = None


def batches_of_group(chunks: Sequence[Chunk], num_batches: int) -> int:
    """How many of the batches that some chunks span make a group."""
    num_bytes = sum(column.values.nbytes for chunk in chunks for column in chunk.columns)
    return max(1, num_batches * GROUP_BYTES // max(num_bytes, 1))


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
        self._with_source, self.fills_holes = with_source, fill_holes
        self._has_workers = has_workers  # else threads of this process answer, and no row is of a worker
        self._before: list[Part] = []  # of the batch before, where a batch of holes only may repeat it

    @property
    def takes_slots(self) -> bool:
        """Whether dense columns may come in memory of the pass's own instead of from chunks: where nobody needs samples of them,
        batches to repeat, or pages that are pinned."""
        return self._collate_fn is None and not self.fills_holes and not self._memory.pinned

    @property
    def adds_nothing(self) -> bool:
        """Whether a batch without holes is its columns, no more."""
        return self.takes_slots and not self._with_source

    def assemble(self, group: Group) -> Iterator[tuple[Any, bool]]:
        """The batches of a group, one after another, or a Cut; with each whether the next one is made already, but for that."""
        parts = [part for part in group.parts if part.stop > part.start]
        shown = self._show(parts, group.dense) if parts and self._are_columns(parts) else None
        for j, due in enumerate(group.due):
            start, stop = group.bounds[j], group.bounds[j + 1]
            if stop - start == due and shown is not None and not self._with_source and not self.fills_holes:
                yield Cut(shown, start, stop), j + 1 < len(group.due)
                continue
            own = _cut_parts(parts, start, stop)
            yield self._make(own, shown, start, stop, due, group.epoch, group.first_step + j), False

    def remember(self, parts: Sequence[Part]) -> None:
        """Take a batch for the one before, without making it."""
        if self.fills_holes:
            self._before = [_own_part(part) for part in parts if part.stop > part.start]

    def _make(
        self, parts: list[Part], shown: Cutter | None, start: int, stop: int, due: int, epoch: int, step: int
    ) -> Any:
        """One batch that is more than its columns: with holes, its source, or samples."""
        num_rows = num_own = stop - start
        if not parts:
            parts = self._parts_before(due, epoch, step)
            shown, start = self._show(parts, None) if self._are_columns(parts) else None, 0
            num_rows = sum(part.stop - part.start for part in parts)
        else:
            self.remember(parts)
        wanted = due if self.fills_holes else num_rows
        rows = np.arange(wanted) % num_rows
        if shown is None:
            batch = self._collate(parts, num_rows, wanted)
        elif wanted == num_rows:
            batch = shown.cut(start, start + num_rows)
        else:
            batch = Cutter(shown.structure, take(shown.columns, start + rows)).cut(0, wanted)
        if self._with_source:
            batch = attach_source(batch, self._source_of(parts, num_rows, rows, num_own, epoch))
        return batch

    def _collate(self, parts: Sequence[Part], num_rows: int, wanted: int) -> Any:
        """The batch of samples, repeated until there are as many as are wanted; repeated rows are samples of their own."""
        samples: list[Any] = []
        while len(samples) < wanted:
            samples += _samples_of(parts, num_rows)
        return (self._collate_fn or collate)(samples[:wanted])

    def _are_columns(self, parts: Sequence[Part]) -> bool:
        """Whether nobody needs the samples."""
        structure = parts[0].chunk.structure
        if self._collate_fn is not None or structure == PICKLED:
            return False
        return all(part.chunk.structure is structure or part.chunk.structure == structure for part in parts)

    def _show(self, parts: Sequence[Part], dense: Dense | None) -> Cutter:
        """All columns of a group."""
        structure = parts[0].chunk.structure
        gathered = self._gather(structure, parts) if structure.specs else []
        return Cutter(structure, gathered) if dense is None else Cutter(dense.structure, dense.join(gathered))

    def _gather(self, structure: Structure, parts: Sequence[Part]) -> list[Gathered]:
        return gather(
            structure,
            [part.chunk.columns for part in parts],
            [(part.start, part.stop) for part in parts],
            [part.positions for part in parts],
            self._memory.allocate,
        )

    def _parts_before(self, due: int, epoch: int, step: int) -> list[Part]:
        """What a batch of holes only is made of: the batch before. Raises ShardMixError where there is none."""
        if self._before:
            return self._before
        remedy = "there is no batch before it to repeat; check the corpus"
        if not self.fills_holes:
            remedy = 'check the corpus, or let batches repeat rows with on_hole="fill"'
        raise ShardMixError(f"epoch {epoch} step {step}: all {due} records of the batch were skipped; {remedy}")

    def _source_of(self, parts: Sequence[Part], num_rows: int, order: IntArray, num_own: int, epoch: int) -> Source:
        """Where the rows of a batch came from, in `order`; the first `num_own` are its own, the others fill holes."""
        rows = np.empty((num_rows, SOURCE_FIELDS), np.int64)
        worker = np.zeros(num_rows, np.int64)
        for part in parts:
            rows[part.positions] = part.chunk.source[part.start : part.stop]
            if self._has_workers:
                worker[part.positions] = part.worker
        rows, worker, is_fill = rows[order], worker[order], np.arange(len(order)) >= num_own
        shard, record, lane, is_pad = (np.ascontiguousarray(rows[:, field]) for field in range(SOURCE_FIELDS))
        return Source.of(np.full(len(order), epoch), shard, record, lane, worker, is_pad.astype(np.bool_), is_fill)


def _cut_parts(parts: Sequence[Part], start: int, stop: int) -> list[Part]:
    """The parts of one batch of a group, with positions in the batch."""
    cut = []
    for part in parts:
        first, last = np.searchsorted(part.positions, (start, stop)).tolist()
        if first < last:
            positions = part.positions[first:last] - start
            cut.append(part._replace(start=part.start + first, stop=part.start + last, positions=positions))
    return cut


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
