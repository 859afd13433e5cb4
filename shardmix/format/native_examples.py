"""tf.train.Example and SequenceExample to columns: the C twin of example.py.

    count_values       find and count what the schema asks for; say which rows are odd
    the Python twin    decodes the odd rows, or raises for the first of them that it cannot decode
    allocate           once, now that every size is known
    decode_examples    fill the arrays
    decode_dense       both at once, where every column is dense
    fill_rows          put in the odd rows, and the default values of what is missing

Rule 1: C decodes what is written the usual way and is what the schema declares; so an error, and its text, is always the Python
twin's. As the usual rows cannot fail, the first odd row that fails is the first row that fails.
Rule 2: Python runs per block: over the fields, and over the odd rows.
Rule 3: with targets, dense columns are written there and not returned.
"""

from __future__ import annotations

import math
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from . import _core, example
from .columns import Allocate, Column, ColumnSpec, Shape, allocate_arrays
from .declarations import FixedLenFeature, RawFeature, VarLenFeature, default_array, default_bytes
from .features import Schema, SchemaField
from .native import as_ints, copy_spans
from .records import IntArray, RecordBlock
from .rows import make_columns
from .spans import starts_of
from .targets import RowTargets

_KINDS = {"bytes": 1, "float": 2, "int64": 3}  # enum kind in csrc/example.h
_MISSING = 0xFFFFFFFF  # MISSING_START there
_NONE = -1  # ANY_NUMBER, NOT_RAW


class _Plan(NamedTuple):
    """A schema as C reads it."""

    schema: Schema
    specs: list[ColumnSpec]
    names: bytes
    fields: IntArray  # (fields, 8): take_field in csrc/decode_module.c
    first_level: list[int]  # of each field, among the levels of all
    num_levels: int
    defaults: dict[int, Column]  # number of a field that may be missing → its default value, as a column of one row


class _Fill(NamedTuple):
    """Rows of one field that are copied from another column."""

    field: int
    rows: IntArray
    source: Column
    source_rows: IntArray


def decode_examples(
    block: RecordBlock, schema: Schema, allocate: Allocate = allocate_arrays, targets: RowTargets | None = None
) -> list[Column]:
    """Decode every row of the block, one column a field of the schema; see `example.decode_examples`."""
    plan = _plan_of(schema)
    rows = len(block)
    places = np.empty((rows, len(schema.fields), 2), np.uint32)
    counts = np.empty((plan.num_levels, rows), np.int64)
    codes = np.empty(rows, np.int64)
    spans = as_ints(block.buffer), as_ints(block.start), as_ints(block.length)
    call = (block.buffers, *spans, plan.names, plan.fields, schema.is_sequence, places, counts, codes)
    given = None if targets is None else (targets.buffers, targets.buffer, targets.position, targets.layout.offsets)
    if not plan.num_levels:  # every size is known: one call, while the payloads are in the cache
        columns = _allocate_columns(plan, counts, allocate, targets)
        _check(_core.decode_dense(*call, tuple(column.values for column in columns.values()), given))
        fills = [*_decode_odd_rows(block, schema, codes), *_find_missing(plan, places, codes)]
    else:
        _core.count_values(*call)
        fills = [*_decode_odd_rows(block, schema, codes), *_find_missing(plan, places, codes)]
        for fill in fills:
            _set_counts(fill, counts[plan.first_level[fill.field] :])
        columns = _allocate_columns(plan, counts, allocate, targets)
        arrays = tuple(array for column in columns.values() for array in (*column.lengths, column.values))
        _check(_core.decode_examples(*call, arrays, given))
    for fill in fills:
        if fill.field in columns:
            _fill_rows(fill, counts[plan.first_level[fill.field] :], columns[fill.field])
        elif targets is not None:
            targets.put(fill.field, fill.rows, fill.source, fill.source_rows)
    return list(columns.values())


def _check(changed: int) -> None:
    if changed >= 0:
        raise RuntimeError(f"decode_examples: row {changed} was changed while it was decoded; its buffer was reused too early")


_last_plan: _Plan | None = None


def _plan_of(schema: Schema) -> _Plan:
    """The plan of a schema; the last is kept, for a worker decodes one schema over and over."""
    global _last_plan
    plan = _last_plan
    if plan is None or plan.schema is not schema:
        plan = _last_plan = _make_plan(schema)
    return plan


def _make_plan(schema: Schema) -> _Plan:
    names = [field.name.encode() for field in schema.fields]
    name_bytes = np.array([len(name) for name in names], np.int64)
    fields = np.empty((len(names), 8), np.int64)
    fields[:, 0] = starts_of(name_bytes)
    fields[:, 1] = name_bytes
    for row, field in zip(fields, schema.fields, strict=True):
        row[2:] = _describe_field(field)
    levels = np.array([field.spec.levels for field in schema.fields], np.int64)
    defaults = {number: _default_column(field) for number, field in enumerate(schema.fields) if _has_default(field)}
    specs = [field.spec for field in schema.fields]
    return _Plan(schema, specs, b"".join(names), fields, starts_of(levels).tolist(), int(levels.sum()), defaults)


def _describe_field(field: SchemaField) -> tuple[int, ...]:
    """(kind, in_lists, has_default, counts_values, num_values, raw_bytes) of one field."""
    feature = field.feature
    kind = _KINDS[field.kind]
    if isinstance(feature, RawFeature):
        raw_bytes = math.prod(feature.shape) * np.dtype(feature.dtype).itemsize
        return kind, field.in_lists, False, False, 1, raw_bytes
    if isinstance(feature, VarLenFeature):
        return kind, field.in_lists, False, True, _NONE, _NONE
    counts_values = field.kind == "bytes" and feature.shape != ()
    return kind, field.in_lists, _has_default(field), counts_values, math.prod(feature.shape), _NONE


def _has_default(field: SchemaField) -> bool:
    """Whether the whole feature may be missing. (A default in feature lists is of a step, and is left to the Python twin.)"""
    return isinstance(field.feature, FixedLenFeature) and field.feature.default_value is not None and not field.in_lists


def _default_column(field: SchemaField) -> Column:
    feature = cast(FixedLenFeature, field.feature)
    if field.kind != "bytes":
        return make_columns([field.spec], [[default_array(feature)]])[0]
    values = default_bytes(feature)
    return make_columns([field.spec], [[values[0] if feature.shape == () else values]])[0]


def _decode_odd_rows(block: RecordBlock, schema: Schema, codes: IntArray) -> list[_Fill]:
    """What the Python twin says about the odd rows. Raises its ParseError."""
    odd = np.flatnonzero(codes)
    if not len(odd):
        return []
    places = (block.buffer[odd], block.start[odd], block.length[odd], block.shard[odd], block.record[odd])
    columns = example.decode_examples(RecordBlock(block.buffers, *places, block.places), schema)
    return [_Fill(field, odd, column, np.arange(len(odd))) for field, column in enumerate(columns)]


def _find_missing(plan: _Plan, places: NDArray[np.uint32], codes: IntArray) -> list[_Fill]:
    """The rows without a field that has a default value."""
    fills = []
    for field, column in plan.defaults.items():
        rows = np.flatnonzero((places[:, field, 0] == _MISSING) & (codes == 0))
        if len(rows):
            fills.append(_Fill(field, rows, column, np.zeros(len(rows), np.int64)))
    return fills


def _spans_of(column: Column) -> list[tuple[IntArray, IntArray]]:
    """Where a row's entries begin and how many they are: for each level of lengths, and last for the values."""
    rows = len(column.lengths[0]) if column.lengths else len(column.values)
    spans = [(np.arange(rows), np.ones(rows, np.int64))]
    for lengths in column.lengths:
        start, count = spans[-1]
        ends = np.concatenate(([0], np.cumsum(lengths)))
        spans.append((ends[start], ends[start + count] - ends[start]))
    return spans


def _set_counts(fill: _Fill, counts: IntArray) -> None:
    """Say how many entries the rows have. `counts`: from the field's outermost level on."""
    for level, (_, count) in enumerate(_spans_of(fill.source)[1:]):
        counts[level, fill.rows] = count[fill.source_rows]


def _fill_rows(fill: _Fill, counts: IntArray, column: Column) -> None:
    """Copy the rows of one field; the outermost lengths are there already, from the counts."""
    pairs = [*zip(fill.source.lengths, column.lengths, strict=True), (fill.source.values, column.values)]
    for level, ((source, out), (start, count)) in enumerate(zip(pairs, _spans_of(fill.source), strict=True)):
        if level == 0 and column.lengths:
            continue
        out_start = starts_of(counts[level - 1])[fill.rows] if level else fill.rows
        copy_spans(source, start[fill.source_rows], count[fill.source_rows], out, out_start)


def _allocate_columns(
    plan: _Plan, counts: IntArray, allocate: Allocate, targets: RowTargets | None = None
) -> dict[int, Column]:
    """The arrays of all columns, by field, asked for at once: for each its levels of lengths, outermost first, then its values.

    With targets, those of columns with levels.
    """
    rows = counts.shape[1]
    sums = counts.sum(axis=1).tolist()
    requests: list[tuple[Shape, str]] = []
    wanted = [field for field, spec in enumerate(plan.specs) if spec.levels or targets is None]
    for field in wanted:
        spec, first = plan.specs[field], plan.first_level[field]
        items = rows
        for level in range(first, first + spec.levels):
            requests.append(((items,), "int64"))
            items = sums[level]
        requests.append(((items, *spec.item_shape), spec.dtype))
    arrays = iter(allocate(requests))
    columns = {}
    for field in wanted:
        spec = plan.specs[field]
        lengths = tuple(cast(IntArray, next(arrays)) for _ in range(spec.levels)) if spec.levels else ()
        columns[field] = Column(spec, next(arrays), lengths)
    return columns
