"""The text index of the tfrecord package and DALI: a line a record, "offset size", the place and bytes of its whole frame.

Rule 1: only plain shards have one: there are no offsets in a compressed file.
Rule 2: one that is found beside a shard is a claim, and is believed only when it is not older than the shard, its frames lie end
to end from 0 to the end of the file, and the headers that are looked at (up to 256, spread evenly) hold, CRC included.
"""

from __future__ import annotations

import os
import secrets

import numpy as np

from . import backend
from .framing import FRAME_BYTES, HEADER_BYTES, Damage
from .records import IntArray

CHECKED_HEADERS = 256
MAX_NUMBER_BYTES = 19  # digits of the largest int64
MAX_LINE_BYTES = 2 * MAX_NUMBER_BYTES + 3  # two numbers, a space, and at most CR LF


def read_idx(path: str) -> IntArray:
    """(records, 2): where each frame begins, and its bytes, from a text index.

    Raises ValueError when it is not one, OSError when it cannot be read.
    """
    with open(path, "rb") as file:
        words = file.read().split()
    try:
        if max(map(len, words), default=0) > MAX_NUMBER_BYTES:
            raise OverflowError
        numbers = np.array(words or [b"0"][:0], "S").astype(np.int64)
        return numbers.reshape(-1, 2)
    except (ValueError, OverflowError):
        raise ValueError(f"{path}: a line of a text index is 'offset size', got {b' '.join(words[:4])!r:.60}") from None


def write_idx(path: str, lengths: IntArray) -> None:
    """Write the text index of a plain shard from its payload lengths, whole or not at all.

        write_idx("train-00000.tfrecord.idx", index.lengths(0, 0, index.counts[0]))
    """
    sizes = np.asarray(lengths, np.int64) + FRAME_BYTES
    rows = np.stack([np.cumsum(sizes) - sizes, sizes], axis=1)
    folder, name = os.path.split(path)
    unfinished = os.path.join(folder, f".{name}.{secrets.token_hex(8)}.unfinished")
    try:
        with open(unfinished, "x", encoding="ascii", newline="\n") as file:
            file.writelines(f"{offset} {size}\n" for offset, size in rows.tolist())
        os.replace(unfinished, path)
    except BaseException:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
        raise


def find_idx(shard: str) -> str | None:
    """The text index beside a shard: its name with .idx after it, or .idx or .tfindex instead of its ending."""
    stem = os.path.splitext(shard)[0]
    candidates = (shard + ".idx", stem + ".idx", stem + ".tfindex")
    return next((path for path in candidates if path != shard and os.path.isfile(path)), None)


def lengths_from_idx(shard: str) -> IntArray | None:
    """The payload lengths of a local shard from the text index beside it, or None where there is none to be believed (rule 2)."""
    path = find_idx(shard)
    if path is None:
        return None
    index, data = os.stat(path), os.stat(shard)
    if index.st_mtime_ns < data.st_mtime_ns or index.st_size > data.st_size // FRAME_BYTES * MAX_LINE_BYTES:
        return None  # older, or more lines than the shard has room for: files of other formats are called .idx, too
    try:
        rows = read_idx(path)
    except ValueError:
        return None
    offsets, sizes = rows[:, 0], rows[:, 1]
    if not len(rows) or (sizes < FRAME_BYTES).any() or (sizes > data.st_size).any():
        return None
    ends = np.cumsum(sizes)
    is_whole = offsets[0] == 0 and np.array_equal(offsets[1:], ends[:-1]) and ends[-1] == data.st_size
    return sizes - FRAME_BYTES if is_whole and _headers_hold(shard, offsets, sizes) else None


def _headers_hold(shard: str, offsets: IntArray, sizes: IntArray) -> bool:
    """Whether the frames that are looked at have the claimed lengths."""
    looked_at = np.unique(np.linspace(0, len(offsets) - 1, min(len(offsets), CHECKED_HEADERS)).astype(np.int64))
    with open(shard, "rb", buffering=0) as file:
        for offset, size in zip(offsets[looked_at].tolist(), sizes[looked_at].tolist(), strict=True):
            header = np.frombuffer(os.pread(file.fileno(), HEADER_BYTES, offset), np.uint8)
            scan = backend.scan_frames(header, remaining=size, verify="length")
            if scan.damage != Damage.NONE or int.from_bytes(header[:8].tobytes(), "little") != size - FRAME_BYTES:
                return False
    return True
