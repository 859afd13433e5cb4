"""The TFRecord frame: uint64le length, masked crc32c of those 8 bytes, payload, masked crc32c of the payload.

The Python twin; positions and codes define what the C twin must give. Source of the format: TensorFlow's
tensorflow/core/lib/io/record_writer.h.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .records import Bytes, IntArray

HEADER_BYTES = 12
FOOTER_BYTES = 4
FRAME_BYTES = HEADER_BYTES + FOOTER_BYTES


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
    """Walk the frames of a buffer. `remaining`: bytes of the file from the buffer's beginning on: a frame that needs more than
    the buffer is "more", one that needs more than the file is damage. `verify`: "full", "length" or "off"."""
    raise NotImplementedError


def check_frames(data: Bytes, start: IntArray, length: IntArray, *, verify: str = "full") -> IntArray:
    """One `Damage` a frame whose place and length are known from an index; `start` is where the payload begins."""
    raise NotImplementedError


def describe_damage(damage: Damage, frame: memoryview, remaining: int, expected_length: int | None = None) -> str:
    """The text of one damage, from the bytes of the frame: `payload CRC mismatch (stored 0x1f2e3d4c, computed 0x90ab12cd)`."""
    raise NotImplementedError


def frame_record(payload: bytes | memoryview) -> bytes:
    """The framed bytes of one payload."""
    raise NotImplementedError
