"""Walk the frames of one shard from its beginning to its end, block by block.

Rule 1: blocks of about BLOCK_BYTES; a larger record gets a larger block, but never one beyond the file's size, and from a
compressed stream only as bytes truly come.
Rule 2: every block is fresh memory, never used again: what was cut from it stays as it is.
Rule 3: payload damage is passed over if the caller goes on; framing damage (the place of the next frame is lost) is the end.
Rule 4: a plain shard of large records is scanned by its headers alone when no payload is looked at, and a record that is larger
than a block is never read for it.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError
from . import backend
from .framing import FRAME_BYTES, HEADER_BYTES, Damage, frame_error
from .records import Bytes, IntArray
from .storage import ShardFile, is_remote, open_shard

BLOCK_BYTES = 1 << 20
LARGE_FRAME_BYTES = 1 << 16  # mean frame from which on reading headers alone is faster than reading everything
HEADERS_AT_A_TIME = 256


class ShardScan(NamedTuple):
    """What a scan found."""

    compression: str  # "none", "gzip" or "zlib"
    size: int  # bytes on disk
    lengths: IntArray  # (records,) payload bytes of each record
    entries: tuple[tuple[int, int], ...]  # (compressed offset, inflated offset) where gzip members begin
    damage: CorruptShardError | None  # framing damage behind the records; None when the shard is whole


class FrameBlock(NamedTuple):
    """Sound frames end to end, and what comes behind them."""

    data: Bytes  # the frames; fresh memory (empty where only headers were read)
    first: int  # number of the first record
    offset: int  # byte at which its frame begins, in the inflated bytes
    lengths: IntArray  # (records,) payload bytes
    damage: CorruptShardError | None  # what is wrong with the frame behind them
    passed_length: int | None  # payload damage: bytes of that payload; the walk can go on behind it. None: it cannot

    def starts(self) -> IntArray:
        """(records,) where each payload begins in `data`."""
        return frame_offsets(self.lengths)[:-1] + HEADER_BYTES


def frame_offsets(lengths: IntArray) -> IntArray:
    """(records + 1,) where frames of these payloads begin when they lie end to end, and where the last one ends."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths + FRAME_BYTES, out=offsets[1:])
    return offsets


def scan_shard(path: str, *, compression: str = "auto", verify: str = "length", on_corrupt: str = "raise") -> ShardScan:
    """Count and measure the records of one shard.

        scan = scan_shard("train-00000.tfrecord")
        len(scan.lengths), scan.lengths.sum()

    verify: "length" checks the CRC of every length, "full" of every payload too, "off" none.
    on_corrupt: "raise"; or "skip": the intact prefix, and in `damage` what cuts it off. A record with a damaged
        payload keeps its place.

    Raises CorruptShardError (for "raise"), OSError, ValueError.
    """
    check_on_corrupt(on_corrupt)
    file = open_shard(path, compression)
    damage: CorruptShardError | None = None
    pieces: list[IntArray] = [np.zeros(0, np.int64)]
    try:
        for block in walk_lengths(file, verify=verify):
            pieces.append(block.lengths)
            if block.damage is not None and on_corrupt == "raise":
                raise block.damage
            if block.passed_length is not None:
                pieces.append(np.array([block.passed_length], np.int64))
            else:
                damage = block.damage
        return ShardScan(file.compression, file.size_on_disk, np.concatenate(pieces), file.entries(), damage)
    finally:
        file.close()


def check_on_corrupt(on_corrupt: str) -> None:
    """Raise ValueError unless it is a known policy."""
    if on_corrupt not in ("raise", "skip"):
        raise ValueError(f"on_corrupt is {on_corrupt!r}; it is 'raise' or 'skip'")


def walk_frames(file: ShardFile, *, verify: str = "full", record: int = 0, offset: int = 0) -> Iterator[FrameBlock]:
    """The frames of a shard from a place on, a block at a time.

    Asking for the next block after one with payload damage goes on behind the damaged record; framing damage ends the walk.
    """
    carry = np.zeros(0, np.uint8)  # read, not yet walked; begins at `offset`
    while True:
        data, is_end, break_text = _read_on(file, offset, carry)
        remaining = len(data) if is_end else max(len(data), _size_limit(file) - offset)
        record, consumed, is_broken = yield from _walk_buffer(data, file.path, record, offset, remaining, verify)
        offset += consumed
        carry = data[consumed:]
        if is_broken or is_end:
            return
        if break_text is not None:
            damage = CorruptShardError(break_text, path=file.path, record=record, offset=offset)
            yield FrameBlock(data[:0], record, offset, np.zeros(0, np.int64), damage, None)
            return


def walk_lengths(file: ShardFile, *, verify: str = "length") -> Iterator[FrameBlock]:
    """Like `walk_frames`, for a caller that wants the lengths only: of large records the headers alone are read (rule 4)."""
    may_read_headers = verify != "full" and file.compression == "none" and not is_remote(file.path)
    record, offset = 0, 0
    reads_headers = may_read_headers and _is_huge(file, offset)
    while True:
        walk = _walk_headers if reads_headers else walk_frames
        for block in walk(file, verify=verify, record=record, offset=offset):
            yield block
            num_bytes = int(frame_offsets(block.lengths)[-1])
            record, offset = block.first + len(block.lengths), block.offset + num_bytes
            if not may_read_headers or block.damage is not None:
                continue
            is_large = num_bytes >= LARGE_FRAME_BYTES * len(block.lengths) or _is_huge(file, offset)
            if is_large != reads_headers:
                break
        else:
            return
        reads_headers = not reads_headers


def _is_huge(file: ShardFile, offset: int) -> bool:
    """Whether the next frame claims to be larger than a block."""
    header = np.empty(HEADER_BYTES, np.uint8)
    return file.read_into(offset, header) == HEADER_BYTES and _payload_length(header) > BLOCK_BYTES


def _walk_headers(file: ShardFile, *, verify: str, record: int, offset: int) -> Iterator[FrameBlock]:
    """The frames of a plain shard from a place on, by their headers; blocks without data."""
    header = np.empty(HEADER_BYTES, np.uint8)
    num_bytes, damage = HEADER_BYTES, None
    while num_bytes and damage is None:
        first, begin = record, offset
        lengths: list[int] = []
        while len(lengths) < HEADERS_AT_A_TIME and damage is None:
            num_bytes = file.read_into(offset, header)
            remaining = _size_limit(file) - offset if num_bytes == HEADER_BYTES else num_bytes
            scan = backend.scan_frames(header[:num_bytes], remaining=remaining, verify=verify)
            if scan.damage != Damage.NONE:
                damage = _frame_error(scan.damage, header[:num_bytes], file.path, record, offset, remaining)
            elif num_bytes:
                lengths.append(_payload_length(header))
                record, offset = record + 1, offset + lengths[-1] + FRAME_BYTES
            else:
                break
        if lengths or damage is not None:
            yield FrameBlock(header[:0], first, begin, np.array(lengths, np.int64), damage, None)


def _walk_buffer(
    data: Bytes, path: str, record: int, offset: int, remaining: int, verify: str
) -> Generator[FrameBlock, None, tuple[int, int, bool]]:
    """The frames of one buffer; returns (number of the next record, bytes walked, whether framing damage ends the walk)."""
    walked = 0
    while True:
        scan = backend.scan_frames(data[walked:], remaining=remaining - walked, verify=verify)
        begin, first = walked, record
        walked, record = walked + scan.consumed, record + len(scan.lengths)
        damage, passed = None, None
        if scan.damage != Damage.NONE:
            damage = _frame_error(scan.damage, data[walked:], path, record, offset + walked, remaining - walked)
            passed = _payload_length(data[walked:]) if scan.damage == Damage.PAYLOAD_CRC else None
        if len(scan.lengths) or damage is not None:
            yield FrameBlock(data[begin:walked], first, offset + begin, scan.lengths, damage, passed)
        if passed is None:
            return record, walked, damage is not None
        walked, record = walked + passed + FRAME_BYTES, record + 1


def _read_on(file: ShardFile, offset: int, carry: Bytes) -> tuple[Bytes, bool, str | None]:
    """Fresh memory that begins with `carry`, the bytes at `offset`, and goes on in the file; whether that is its end; and why
    the compressed stream breaks behind it."""
    frame_bytes = _payload_length(carry) + FRAME_BYTES if len(carry) >= HEADER_BYTES else 0
    if file.size is None:  # a claim of a compressed stream: no more than twice what came
        frame_bytes = min(frame_bytes, 2 * len(carry))
    capacity = max(len(carry), min(max(BLOCK_BYTES, frame_bytes), _size_limit(file) - offset))
    data = np.empty(capacity, np.uint8)
    data[: len(carry)] = carry
    num_bytes, break_text = file.read_sound(offset + len(carry), data[len(carry) :])
    end = len(carry) + num_bytes
    is_end = break_text is None and (end < capacity or num_bytes == 0 or offset + end == file.size)
    return data[:end], is_end, break_text


def _frame_error(damage: int, frame: Bytes, path: str, record: int, offset: int, remaining: int) -> CorruptShardError:
    return frame_error(Damage(damage), frame.data, path=path, record=record, offset=offset, remaining=remaining)


def _payload_length(frame: Bytes) -> int:
    """The length in a frame's header."""
    return int.from_bytes(frame[:8].tobytes(), "little")


def _size_limit(file: ShardFile) -> int:
    """The size of the inflated bytes, or what they cannot exceed."""
    return file.size_limit if file.size is None else file.size
