"""Read runs of frames from open local files, and judge every frame as soon as it is there.

Rule 1: where the frames lie is known from an index; all of that is checked before the first byte is read.
Rule 2: runs are read in order, up to the first that fails. What was not read is judged as cut.
Rule 3: a file that ends early, and one that cannot be read, is told, not raised: who knows its path has the text.

The Python twin of csrc/runs.c, which judges bytes while they are in the cache. Knows nothing of paths, tracks or lanes.
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np

from .framing import FOOTER_BYTES, HEADER_BYTES, check_frames, check_verify
from .local import read_at
from .records import Bytes, IntArray


class Runs(NamedTuple):
    """Run r is bytes of an open file, and goes to bounds[r] … bounds[r + 1] of a buffer; rows[r] … rows[r + 1] lie in it."""

    descriptor: IntArray  # (runs,)
    offset: IntArray  # (runs,) where the run begins in its file
    bounds: IntArray  # (runs + 1,) ascending
    rows: IntArray  # (runs + 1,) ascending from 0

    def part(self, first: int, stop: int) -> Runs:
        """The runs first … stop-1, their rows numbered from 0."""
        edges = slice(first, stop + 1)
        return Runs(self.descriptor[first:stop], self.offset[first:stop], self.bounds[edges], self.rows[edges] - self.rows[first])


class RunsRead(NamedTuple):
    """What came of it."""

    got: IntArray  # (runs,) bytes read: fewer where the file ends; none behind a failure
    codes: IntArray  # (rows,) a `framing.Damage` each
    failed: int  # the run that could not be read; the number of runs where all could
    error: int  # its errno, or 0


def read_runs(asked: Runs, start: IntArray, length: IntArray, out: Bytes, *, verify: str = "full") -> RunsRead:
    """Fill a buffer with runs of frames, and judge each as `framing.check_frames` does.

        asked = Runs(np.array([file.descriptor]), np.array([0]), np.array([0, 23]), np.array([0, 1]))
        read_runs(asked, np.array([12]), np.array([7]), np.empty(23, np.uint8)).codes    # [Damage.NONE]

    start, length: (rows,) where each payload is to lie in the buffer, and its bytes, in order.

    Raises ValueError when a run has no place in the buffer, a frame none in its run, or `verify` is unknown, and reads nothing.
    """
    check_verify(verify)
    _check_runs(asked, start, length, len(out))
    got = np.zeros(len(asked.descriptor), np.int64)
    codes = np.zeros(len(start), np.int64)
    failed, error = len(got), 0
    spans = zip(pairwise(asked.bounds.tolist()), pairwise(asked.rows.tolist()), strict=True)
    for run, ((begin, end), (first, stop)) in enumerate(spans):
        if not error:
            got[run], error = read_at(int(asked.descriptor[run]), int(asked.offset[run]), out.data[begin:end])
            failed = run if error else failed
        codes[first:stop] = check_frames(out[: begin + got[run]], start[first:stop], length[first:stop], verify=verify)
    return RunsRead(got, codes, failed, error)


def _check_runs(asked: Runs, start: IntArray, length: IntArray, size: int) -> None:
    """Raise ValueError unless every run lies in the buffer, and every frame in its run, behind the one before."""
    descriptor, offset, bounds, rows = asked
    count = len(descriptor)
    if (len(offset), len(bounds), len(rows), len(length)) != (count, count + 1, count + 1, len(start)):
        raise ValueError(
            f"read_runs: {count} descriptors, {len(offset)} offsets, {len(bounds)} bounds, {len(rows)} numbers of rows, "
            f"{len(start)} starts and {len(length)} lengths"
        )
    num_bytes = np.diff(bounds)
    is_bad = (descriptor < 0) | (descriptor >= 2**31) | (offset < 0) | (num_bytes < 0) | (np.diff(rows) < 0)
    is_bad |= (bounds[:-1] < 0) | (bounds[1:] > size) | (offset > 2**63 - 1 - num_bytes)
    if is_bad.any() or bounds[0] < 0 or bounds[-1] > size or rows[0] != 0 or rows[-1] != len(start):
        raise ValueError(f"read_runs: a run has no place in a buffer of {size} bytes and {len(start)} rows")
    begin, end = (np.repeat(edge, np.diff(rows)) for edge in (bounds[:-1], bounds[1:]))
    is_bad = (start < HEADER_BYTES) | (length < 0) | (start - HEADER_BYTES < begin) | (length > end - start - FOOTER_BYTES)
    frame_end = start + length + FOOTER_BYTES
    is_bad[1:] |= start[1:] - HEADER_BYTES < frame_end[:-1]
    if is_bad.any():
        row = int(is_bad.argmax())
        raise ValueError(f"read_runs: the frame of a payload of {length[row]} bytes at {start[row]} has no place in its run")
