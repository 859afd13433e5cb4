"""Copy spans of items between flat arrays, and rows to their places; cut bytes: the Python twins of the C functions.

Rule 1: a span is (start, length) in items along the first axis; lengths are counted in items, not in bytes.
Rule 2: neighbouring spans that are contiguous on both sides are copied as one.
Rule 3: long spans are copied one by one (a memcpy each), short ones by index arrays (no Python code per span). Measured: a slice
costs 300 ns and hardly more when it is longer, an index 4 to 12 ns an item; they meet between 32 and 64 items.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .records import IntArray

Array = NDArray[Any]

_LONG_SPAN_ITEMS = 48


def starts_of(lengths: IntArray) -> IntArray:
    """Where each of the spans begins that lie end to end: `[2, 0, 3]` → `[0, 2, 2]`."""
    starts = np.empty(len(lengths), np.int64)
    if len(lengths):
        starts[0] = 0
        np.cumsum(lengths[:-1], out=starts[1:])
    return starts


def expand_spans(start: IntArray, length: IntArray) -> IntArray:
    """The items of all spans, one number each: starts `[5, 0]`, lengths `[2, 3]` → `[5, 6, 0, 1, 2]`."""
    shift = np.repeat(start - starts_of(length), length)
    return np.arange(len(shift), dtype=np.int64) + shift


def copy_spans(source: Array, source_start: IntArray, length: IntArray, out: Array, out_start: IntArray) -> None:
    """`out[out_start[i] :][: length[i]] = source[source_start[i] :][: length[i]]` for every span i, along the first axis.

    Raises ValueError when a span is not within its array; nothing is copied then.
    """
    is_bad = (length < 0) | (source_start < 0) | (out_start < 0)
    is_bad |= (source_start > len(source) - length) | (out_start > len(out) - length)
    if is_bad.any():
        raise span_error(int(is_bad.argmax()), source, source_start, length, out, out_start)
    source_start, length, out_start = _merge_neighbours(source_start, length, out_start)
    if not len(length):
        return
    if len(length) == 1 or int(length.sum()) >= _LONG_SPAN_ITEMS * len(length):
        for a, b, n in zip(source_start.tolist(), out_start.tolist(), length.tolist(), strict=True):
            out[b : b + n] = source[a : a + n]
        return
    taken = _slice_or_items(source_start, length)
    out[_slice_or_items(out_start, length)] = source[taken]


def span_error(
    span: int, source: Array, source_start: IntArray, length: IntArray, out: Array, out_start: IntArray
) -> ValueError:
    """The error of a span that is not within its array, for both twins."""
    return ValueError(
        f"copy_spans: span {span} takes {length[span]} items from {source_start[span]} of {len(source)} "
        f"to {out_start[span]} of {len(out)}"
    )


def place_rows(
    sources: Sequence[Sequence[Array]], positions: Sequence[IntArray], outs: Sequence[Array], num_rows: int
) -> None:
    """`outs[c][positions[p]] = sources[c][p]` for every column c and part p, along the first axis, of `num_rows` rows.

    Raises ValueError where arrays and positions do not fit; with the C backend nothing is copied then.
    """
    for out, parts in zip(outs, sources, strict=True):
        for rows, places in zip(parts, positions, strict=True):
            if len(out) != num_rows or len(rows) != len(places):
                raise ValueError(f"place_rows: got {len(rows)} rows, {len(places)} positions, {len(out)} of {num_rows} to fill")
            if len(places) and not (0 <= places.min() and places.max() < num_rows):
                raise ValueError(f"place_rows: positions from {places.min()} to {places.max()}, expected 0 to {num_rows - 1}")
            out[places] = rows


def cut_bytes(data: NDArray[np.uint8], length: IntArray) -> list[bytes]:
    """The spans of so many bytes that lie end to end in `data`, one bytes object each.

    Raises ValueError where a length is negative or the data hold fewer bytes.
    """
    ends = np.cumsum(length)
    if len(length) and (length.min() < 0 or length.max() > len(data) or ends.min() < 0 or ends[-1] > len(data)):
        raise ValueError(f"cut_bytes: got lengths from {length.min()} to {length.max()}, of {len(data)} bytes")
    view = data.data
    return [bytes(view[start:stop]) for start, stop in pairwise([0, *ends.tolist()])]


def _merge_neighbours(
    source_start: IntArray, length: IntArray, out_start: IntArray
) -> tuple[IntArray, IntArray, IntArray]:
    """The same copy in fewer spans: empty ones left out, neighbours that touch on both sides made one."""
    if not length.all():
        full = np.flatnonzero(length)
        source_start, length, out_start = source_start[full], length[full], out_start[full]
    if len(length) < 2:
        return source_start, length, out_start
    ends = length[:-1]
    gap = (source_start[:-1] + ends != source_start[1:]) | (out_start[:-1] + ends != out_start[1:])
    first = np.concatenate(([0], np.flatnonzero(gap) + 1))
    if len(first) == len(length):
        return source_start, length, out_start
    return source_start[first], np.add.reduceat(length, first), out_start[first]


def _slice_or_items(start: IntArray, length: IntArray) -> slice | IntArray:
    """An index of the items of all spans, in order: a slice where they lie end to end."""
    if np.array_equal(start[:-1] + length[:-1], start[1:]):
        return slice(int(start[0]), int(start[-1] + length[-1]))
    return expand_spans(start, length)
