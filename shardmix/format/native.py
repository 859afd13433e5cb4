"""The C twins of crc32c, frames, runs and spans: signatures, checks and texts are those of the Python twins.

Rule 1: C gets arrays of the type that it expects, and never a wrong call: that goes to the Python twin, which has the text.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import _core, framing, runs, spans
from .framing import Damage, Scan
from .records import Bytes, IntArray
from .runs import Runs, RunsRead

_VERIFY = {"off": 0, "length": 1, "full": 2}  # enum verify in csrc/frames.h


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC-32C of some bytes; see `crc32c.crc32c`."""
    return _core.crc32c(data, value)


def scan_frames(data: Bytes, *, remaining: int, verify: str = "full") -> Scan:
    """Walk the frames of a buffer; see `framing.scan_frames`."""
    size = len(data)
    if verify not in _VERIFY or remaining < size:
        return framing.scan_frames(data, remaining=remaining, verify=verify)
    lengths = np.empty(size // framing.FRAME_BYTES, np.int64)
    count, consumed, damage = _core.scan_frames(data, min(remaining, framing.LARGEST_FILE), _VERIFY[verify], lengths)
    return Scan(lengths[:count].copy(), consumed, Damage(damage))


def check_frames(data: Bytes, start: IntArray, length: IntArray, *, verify: str = "full") -> IntArray:
    """Judge frames of known place; see `framing.check_frames`."""
    start, length = as_ints(start), as_ints(length)
    if verify not in _VERIFY or len(start) != len(length) or (start < framing.HEADER_BYTES).any() or (length < 0).any():
        return framing.check_frames(data, start, length, verify=verify)
    codes = np.empty(len(start), np.int64)
    _core.check_frames(data, start, length, _VERIFY[verify], codes)
    return codes


def read_runs(asked: Runs, start: IntArray, length: IntArray, out: Bytes, *, verify: str = "full") -> RunsRead:
    """Read runs of frames and judge them; see `runs.read_runs`."""
    got, codes = np.zeros(len(asked.descriptor), np.int64), np.zeros(len(start), np.int64)
    try:
        descriptor, offset, bounds, rows, at, size = map(as_ints, (*asked, start, length))
        failed, error = _core.read_runs(descriptor, offset, bounds, rows, at, size, out, _VERIFY[verify], got, codes)
    except (KeyError, ValueError, BufferError):  # a wrong call: for the Python twin, which has the text
        return runs.read_runs(asked, start, length, out, verify=verify)
    return RunsRead(got, codes, failed, error)


if not hasattr(_core, "read_runs"):  # Windows has no pread
    read_runs = runs.read_runs


def copy_spans(
    source: NDArray[Any], source_start: IntArray, length: IntArray, out: NDArray[Any], out_start: IntArray
) -> None:
    """Copy spans of items from one array to another; see `spans.copy_spans`."""
    if not _are_alike(source, out):
        return spans.copy_spans(source, source_start, length, out, out_start)
    source_start, length, out_start = as_ints(source_start), as_ints(length), as_ints(out_start)
    item_bytes = source.itemsize * int(np.prod(source.shape[1:], dtype=np.int64))
    bad = _core.copy_spans(_as_bytes(source), source_start, length, _as_bytes(out), out_start, item_bytes)
    if bad >= 0:
        raise spans.span_error(bad, source, source_start, length, out, out_start)
    return None


def place_rows(
    sources: Sequence[Sequence[NDArray[Any]]], positions: Sequence[IntArray], outs: Sequence[NDArray[Any]], num_rows: int
) -> None:
    """Put the rows of dense columns in their places; see `spans.place_rows`."""
    flat = tuple([rows for parts in sources for rows in parts])
    try:
        if _core.place_rows(flat, tuple(positions), tuple(outs), num_rows):
            return
    except (ValueError, TypeError, BufferError):
        pass  # arrays that are no plain memory, overlap, or do not fit: for the Python twin, which has the text
    spans.place_rows(sources, positions, outs, num_rows)


def cut_bytes(data: Bytes, length: IntArray) -> list[bytes]:
    """The spans of some bytes as objects; see `spans.cut_bytes`."""
    try:
        return _core.cut_bytes(data, as_ints(length))
    except (ValueError, BufferError):  # a wrong call, or no plain memory: for the Python twin
        return spans.cut_bytes(data, length)


def as_ints(numbers: IntArray) -> IntArray:
    """Numbers as the int64 array that C reads; the same array where it is one."""
    ints = np.ascontiguousarray(numbers, np.int64)
    return ints if ints.flags.aligned else ints.copy()


def _are_alike(source: NDArray[Any], out: NDArray[Any]) -> bool:
    """Whether items can be copied as bytes, from one piece of memory to another."""
    return (
        source.dtype == out.dtype
        and source.shape[1:] == out.shape[1:]
        and 0 not in source.shape
        and 0 not in out.shape
        and source.flags.c_contiguous
        and out.flags.c_contiguous
        and not source.dtype.hasobject
        and not np.may_share_memory(source, out)
    )


def _as_bytes(array: NDArray[Any]) -> NDArray[np.uint8]:
    """The memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8)
