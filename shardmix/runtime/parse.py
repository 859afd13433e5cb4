"""Records → columns or samples: the vectorised decoder, or the user's own code.

Rule 1: Examples are decoded column by column, into memory of the caller's. No Python code runs per record.
Rule 2: a class that overrides `parse` gives one sample a record, one that overrides `parse_batch` columns of all; `transform`
takes samples of any of the three, one by one.
Rule 3: what the user's code raises becomes a ParseError that names the record; the original is its cause. SkipRecord, from
`parse` and `transform`, drops the record.
Rule 4: random user code has a seed for each record, hashed from (seed, epoch, shard, record): the same in any worker.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, NoReturn

import numpy as np

from ..errors import ParseError, SkipRecord
from ..format import backend
from ..format.columns import Allocate, Column, IntArray, allocate_arrays
from ..format.features import Schema
from ..format.records import RecordBlock
from ..format.targets import RowTargets
from ..order.hashing import SAMPLE, hash64
from .parsed_batch import pack_batch
from .samples import Structure, pack_samples, structure_of_features, unpack_samples

Transform = Callable[[Any], Any]


class Parsed(NamedTuple):
    """Records, parsed and packed."""

    structure: Structure
    columns: list[Column]
    kept: IntArray  # (rows,) which records of the block they are, ascending; the others were skipped
    user_seconds: float  # in the user's code


class _Current(threading.local):
    """The record that the user's code is looking at, in this thread."""

    block: RecordBlock | None = None
    row = -1
    seed = 0
    epoch = 0


_current = _Current()


def sample_seed() -> int:
    """A number of 64 bits for random user code: of (seed, epoch, shard, record), the same in whatever worker.

        def transform(sample):
            generator = np.random.default_rng(shardmix.sample_seed())
            ...

    Raises RuntimeError outside of `parse` and `transform`, where no record is at hand.
    """
    block, row = _current.block, _current.row
    if block is None or row < 0:
        raise RuntimeError("sample_seed: no record is at hand; it is known while parse(record) or transform(sample) runs")
    return hash64(SAMPLE, _current.seed, _current.epoch, int(block.shard[row]), int(block.record[row]))


class Parser:
    """Parses the records of one data set.

    Exactly one of schema, parse and parse_batch is not None.
    """

    def __init__(
        self,
        *,
        schema: Schema | None,
        parse: Callable[[memoryview], Any] | None,
        parse_batch: Callable[[list[memoryview]], Any] | None,
        transform: Transform | None,
        seed: int,
    ) -> None:
        self._schema, self._parse, self._parse_batch = schema, parse, parse_batch
        self._transform = transform
        self._seed = seed
        self._user_seconds = 0.0  # in the user's code, of the block at hand

    def parse_columns(
        self, block: RecordBlock, epoch: int, allocate: Allocate = allocate_arrays, targets: RowTargets | None = None
    ) -> Parsed:
        """Columns of the records. `allocate` is called once. With `targets` (where no user code runs), dense ones go there.

        Raises ParseError, or what `parse_batch` should not have returned.
        """
        self._user_seconds = 0.0
        if self._parse is None and self._transform is None:
            structure, columns = self._decode(block, allocate, targets)
            return Parsed(structure, columns, np.arange(len(block)), self._user_seconds)
        kept, samples = [], []
        for row, sample in self.iter_samples(block, epoch):
            kept.append(row)
            samples.append(sample)
        structure, columns = pack_samples(samples, allocate)
        return Parsed(structure, columns, np.array(kept, np.int64), self._user_seconds)

    def iter_samples(self, block: RecordBlock, epoch: int) -> Iterator[tuple[int, Any]]:
        """(row, sample) of every record that is not skipped, in order. Raises ParseError when it is the record's turn."""
        if self._parse is not None:
            yield from self._run(block, epoch, self._parse, _payloads(block), self._transform)
            return
        samples = unpack_samples(*self._decode(block, allocate_arrays))
        if self._transform is None:
            yield from enumerate(samples)
        else:
            yield from self._run(block, epoch, self._transform, samples, None)

    def _decode(
        self, block: RecordBlock, allocate: Allocate, targets: RowTargets | None = None
    ) -> tuple[Structure, list[Column]]:
        """Columns of all records, before any transform."""
        if self._schema is not None:
            columns = backend.decode_examples(block, self._schema, allocate, targets)
            return structure_of_features([column.spec for column in columns]), columns
        if self._parse_batch is None:
            raise TypeError("Parser: no schema and no parser given")
        if not len(block):  # a worker may have no row of a small batch; numpy's stack, for one, takes no empty list
            return pack_samples([], allocate)
        payloads = _payloads(block)
        began = time.perf_counter()
        try:
            batch = self._parse_batch(payloads)
        except Exception as error:
            self._refuse_batch(block, error)
        self._user_seconds += time.perf_counter() - began
        return pack_batch(batch, len(block), _name(self._parse_batch), allocate)

    def _run(
        self, block: RecordBlock, epoch: int, first: Callable[[Any], Any], given: list[Any], then: Transform | None
    ) -> Iterator[tuple[int, Any]]:
        """Call the user's code on one record after another."""
        current, function, clock = _current, first, time.perf_counter
        for row, sample in enumerate(given):
            current.block, current.row, current.seed, current.epoch = block, row, self._seed, epoch
            began = clock()
            try:
                function = first
                sample = first(sample)
                if then is not None:
                    function = then
                    sample = then(sample)
            except SkipRecord:
                continue
            except Exception as error:
                path, record, offset = block.place(row)
                text = f"{_name(function)} raised {_describe(error)}"
                raise ParseError(text, path=path, record=record, offset=offset) from error
            finally:
                self._user_seconds += clock() - began
                current.block, current.row = None, -1
            yield row, sample

    def _refuse_batch(self, block: RecordBlock, error: Exception) -> NoReturn:
        """Raise what `parse_batch` raised, with the place of the record that raises it alone too, else of the first."""
        name = _name(self._parse_batch)
        if isinstance(error, SkipRecord):
            text = f"{name} raised SkipRecord, which drops one record; write parse instead of parse_batch, or skip in transform"
            raise ParseError(text, path=block.place(0)[0]) from error
        for row in range(len(block)):
            try:
                self._parse_batch([block.payload(row)])  # type: ignore[misc]
            except Exception as alone:
                path, record, offset = block.place(row)
                raise ParseError(f"{name} raised {_describe(alone)}", path=path, record=record, offset=offset) from alone
        path, record, offset = block.place(0)
        text = f"{name} raised {_describe(error)} on {len(block)} records, of which this is the first, and on none of them alone"
        raise ParseError(text, path=path, record=record, offset=offset) from error


def _payloads(block: RecordBlock) -> list[memoryview]:
    """The payloads, one view a record."""
    views = [buffer.data for buffer in block.buffers]
    spans = zip(block.buffer.tolist(), block.start.tolist(), (block.start + block.length).tolist(), strict=True)
    return [views[buffer][start:stop] for buffer, start, stop in spans]


def _name(function: Any) -> str:
    """`LineDataset.parse`, or how a transform calls itself."""
    return getattr(function, "__qualname__", None) or type(function).__name__


def _describe(error: Exception) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
