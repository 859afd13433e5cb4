"""The TFRecord frame: uint64le length, masked crc32c of those 8 bytes, payload, masked crc32c of the payload.

Rule 1: a length is trusted only after its CRC holds (unless verify="off") and its frame fits in the file.
Rule 2: a frame that is longer than the *file* is damage, one that is longer than the *buffer* is "more".
Rule 3: codes and positions come from here or from the C twin, alike; the texts are made here, for both.

The Python twin; positions and codes define what the C twin must give. Source of the format: TensorFlow's
tensorflow/core/lib/io/record_writer.h. Knows nothing of files.
"""

from __future__ import annotations

from enum import IntEnum
from struct import Struct
from typing import NamedTuple

import numpy as np

from ..errors import CorruptShardError
from .crc32c import masked_crc32c
from .records import Bytes, IntArray

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES
LARGEST_FILE = 2**63 - 1  # bytes; the C twin counts in int64
VERIFY_LEVELS = ("full", "length", "off")

_LENGTH = Struct("<Q")
_CRC = Struct("<I")
_HEADER = Struct("<QI")


class Damage(IntEnum):
    """What is wrong with a frame. The texts are made by `describe_damage`, for both backends."""

    NONE = 0
    LENGTH_CRC = 1  # the CRC of the length does not hold
    PAYLOAD_CRC = 2  # the CRC of the payload does not hold
    CUT_HEADER = 3  # the file ends inside the header
    CUT_PAYLOAD = 4  # the length is sound, and the file ends before the payload or its CRC does
    LENGTH_DIFFERS = 5  # the length is sound and is not that of the index


class Scan(NamedTuple):
    """The sound frames at the beginning of a buffer, and what stopped the scan."""

    lengths: IntArray  # payload lengths of the sound frames
    consumed: int  # bytes that they take; the next frame begins here
    damage: Damage  # NONE: the buffer ended between frames, or inside one that may go on ("more")


def scan_frames(data: Bytes, *, remaining: int, verify: str = "full") -> Scan:
    """Walk the frames of a buffer, up to its end or the first damaged one.

    A frame is judged in this order: header cut by the file's end, length CRC ("full", "length"), frame longer than the file,
    payload CRC ("full"). The header is judged as soon as it is in the buffer, the payload when all of the frame is.

        scan = scan_frames(np.frombuffer(frame_record(b"payload"), np.uint8), remaining=23)
        scan.lengths, scan.consumed, scan.damage   # [7], 23, Damage.NONE

    data: one-dimensional, contiguous uint8.
    remaining: bytes of the file from the buffer's beginning on, at least len(data); an upper bound where it is not known.
    verify: "full", "length" (the payload's CRC is not looked at) or "off" (no CRC is; a frame must fit in the file all the same).

    Raises ValueError when `verify` is none of these, or `remaining` is less than the buffer holds.
    """
    check_verify(verify)
    view = data.data
    size = len(view)
    if remaining < size:
        raise ValueError(f"scan_frames: remaining is {remaining}, less than the {size} bytes of the buffer")
    remaining = min(remaining, LARGEST_FILE)
    checks_length, checks_payload = verify != "off", verify == "full"
    lengths: list[int] = []
    offset, damage = 0, Damage.NONE
    while size - offset >= HEADER_BYTES:
        length, stored = _HEADER.unpack_from(view, offset)
        if checks_length and masked_crc32c(view[offset : offset + 8]) != stored:
            damage = Damage.LENGTH_CRC
            break
        if length > remaining - offset - FRAME_BYTES:
            damage = Damage.CUT_PAYLOAD
            break
        if length > size - offset - FRAME_BYTES:
            break
        end = offset + HEADER_BYTES + length
        if checks_payload and masked_crc32c(view[offset + HEADER_BYTES : end]) != _CRC.unpack_from(view, end)[0]:
            damage = Damage.PAYLOAD_CRC
            break
        lengths.append(length)
        offset = end + FOOTER_BYTES
    else:
        if 0 < remaining - offset < HEADER_BYTES:
            damage = Damage.CUT_HEADER
    return Scan(np.array(lengths, np.int64), offset, damage)


def check_frames(data: Bytes, start: IntArray, length: IntArray, *, verify: str = "full") -> IntArray:
    """Judge frames whose place and length are known from an index: one `Damage` each, as int64.

    A frame is judged in this order: header not all in the buffer (CUT_HEADER), length CRC ("full", "length"), length not that of
    the index (LENGTH_DIFFERS, at every level), frame not all in the buffer (CUT_PAYLOAD), payload CRC ("full").

    data: one-dimensional, contiguous uint8. start, length: (rows,) where the payload begins in it, and its bytes.

    Raises ValueError when a header would begin before the buffer, a length is negative, or `verify` is unknown.
    """
    check_verify(verify)
    if len(start) != len(length):
        raise ValueError(f"check_frames: {len(start)} starts and {len(length)} lengths")
    view = data.data
    codes = [_judge(view, *span, verify) for span in zip(start.tolist(), length.tolist(), strict=True)]
    return np.array(codes, np.int64)


def _judge(view: memoryview, start: int, length: int, verify: str) -> Damage:
    """The damage of one frame of known place."""
    if start < HEADER_BYTES or length < 0:
        raise ValueError(f"check_frames: a payload of {length} bytes at {start} has no place in a buffer")
    room = len(view) - start
    if room < 0:
        return Damage.CUT_HEADER
    stored_length, stored = _HEADER.unpack_from(view, start - HEADER_BYTES)
    if verify != "off" and masked_crc32c(view[start - HEADER_BYTES : start - FOOTER_BYTES]) != stored:
        return Damage.LENGTH_CRC
    if stored_length != length:
        return Damage.LENGTH_DIFFERS
    if length > room - FOOTER_BYTES:
        return Damage.CUT_PAYLOAD
    if verify == "full" and masked_crc32c(view[start : start + length]) != _CRC.unpack_from(view, start + length)[0]:
        return Damage.PAYLOAD_CRC
    return Damage.NONE


def describe_damage(damage: Damage, frame: memoryview, remaining: int, expected_length: int | None = None) -> str:
    """The text of one damage: `payload CRC mismatch (stored 0x1f2e3d4c, computed 0x90ab12cd)`.

    frame: the bytes of the frame, from its header on, as far as they are there; longer does no harm.
    remaining: bytes of the file from the frame's beginning on.
    expected_length: what the index says, for LENGTH_DIFFERS.
    """
    if damage == Damage.CUT_HEADER:
        return f"cut: the file ends {remaining} bytes into the frame, inside its header of {HEADER_BYTES} bytes"
    length, stored = _HEADER.unpack_from(frame)
    if damage == Damage.LENGTH_CRC:
        computed = masked_crc32c(frame[:8])
        return f"length CRC mismatch (stored {stored:#010x}, computed {computed:#010x}, header {bytes(frame[:HEADER_BYTES])!r})"
    if damage == Damage.PAYLOAD_CRC:
        end = HEADER_BYTES + length
        stored, computed = _CRC.unpack_from(frame, end)[0], masked_crc32c(frame[HEADER_BYTES:end])
        return f"payload CRC mismatch (stored {stored:#010x}, computed {computed:#010x})"
    if damage == Damage.CUT_PAYLOAD:
        return f"cut: a payload of {length} bytes needs a frame of {length + FRAME_BYTES}, and at most {remaining} are left"
    if damage == Damage.LENGTH_DIFFERS:
        return f"payload of {length} bytes where the index says {expected_length}; the index is of another file, build it again"
    raise ValueError(f"describe_damage: {damage!r} is no damage")


def frame_error(
    damage: Damage,
    frame: memoryview,
    *,
    path: str,
    record: int,
    offset: int,
    remaining: int,
) -> CorruptShardError:
    """The error of one damaged frame. The first of a file also says what the file may be instead."""
    text = describe_damage(damage, frame, remaining)
    if offset == 0 and damage in (Damage.LENGTH_CRC, Damage.CUT_HEADER):
        looks_gzip = bytes(frame[:2]) == b"\x1f\x8b"
        text += "; it begins like gzip, leave compression_type at 'auto'" if looks_gzip else "; is this a TFRecord file?"
    return CorruptShardError(text, path=path, record=record, offset=offset)


def frame_header(length: int) -> bytes:
    """The 12 bytes before a payload of `length` bytes."""
    head = _LENGTH.pack(length)
    return head + _CRC.pack(masked_crc32c(head))


def frame_footer(payload: bytes | bytearray | memoryview) -> bytes:
    """The 4 bytes after a payload."""
    return _CRC.pack(masked_crc32c(payload))


def frame_record(payload: bytes | bytearray | memoryview) -> bytes:
    """The framed bytes of one payload.

    >>> len(frame_record(b"payload"))
    23
    """
    data = as_bytes_view(payload)
    return b"".join((frame_header(len(data)), data, frame_footer(data)))


def as_bytes_view(payload: bytes | bytearray | memoryview) -> memoryview:
    """The bytes of any contiguous buffer, an array of another dtype or shape too. Raises TypeError for anything else."""
    view = memoryview(payload)
    return view.cast("B") if view.nbytes else memoryview(b"")


def check_verify(verify: str) -> None:
    """Raise ValueError unless it is a known level."""
    if verify not in VERIFY_LEVELS:
        raise ValueError(f"verify is {verify!r}; it is one of {', '.join(map(repr, VERIFY_LEVELS))}")
