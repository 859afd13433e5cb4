"""Find the next sound record behind a place where the frames are lost.

Rule 1: a record is believed where the CRC of its length holds, its frame fits in the file, and the CRC of its payload holds:
bytes that are none pass with a chance of 2**-64. (Where the frame around a payload is lost, TFRecord frames inside it are taken.)
Rule 2: every offset is tried, a block at a time, in arrays: first whether the length fits, which leaves few, then its CRC.
"""

from __future__ import annotations

from functools import cache

import numpy as np
from numpy.typing import NDArray

from ..format import backend
from ..format.framing import FRAME_BYTES, HEADER_BYTES
from ..format.records import Bytes, IntArray
from ..format.storage import ShardFile

BLOCK_BYTES = 1 << 20
LENGTH_BYTES = 8
_MASK_DELTA = np.uint32(0xA282EAD8)


def find_record(file: ShardFile, offset: int) -> int | None:
    """The first offset from `offset` on where a sound record begins, or None where there is none."""
    limit = file.size_limit if file.size is None else file.size
    data = np.empty(BLOCK_BYTES, np.uint8)
    while True:
        num_bytes, break_text = file.read_sound(offset, data)
        places: list[int] = find_headers(data[:num_bytes], limit - offset).tolist()
        for place in places:
            if is_sound_record(file, offset + place, limit):
                return offset + place
        if num_bytes < len(data) or break_text is not None:
            return None
        offset += num_bytes - HEADER_BYTES + 1


def find_headers(data: Bytes, remaining: int) -> IntArray:
    """Where in a buffer headers of frames lie, by their lengths' CRC; `remaining`: bytes of the file from the buffer on.

    >>> from shardmix.format.framing import frame_record
    >>> find_headers(np.frombuffer(b"..." + frame_record(b"payload"), np.uint8), 26)
    array([3])
    """
    count = len(data) - HEADER_BYTES + 1
    if count <= 0:
        return np.empty(0, np.int64)
    lengths = np.ndarray((count,), "<u8", data.data, strides=(1,))
    room = np.maximum(remaining - FRAME_BYTES - np.arange(count), -1)
    places = np.flatnonzero((lengths <= room.astype(np.uint64)) & (room >= 0))
    stored = np.ndarray((count,), "<u4", data.data, offset=LENGTH_BYTES, strides=(1,))[places]
    found: IntArray = places[masked_crcs(data, places) == stored]
    return found


def masked_crcs(data: Bytes, places: IntArray) -> NDArray[np.uint32]:
    """The masked CRC of the 8 bytes at each of the places."""
    tables, of_zeros = _tables()
    crcs = np.full(len(places), of_zeros, np.uint32)
    for byte in range(LENGTH_BYTES):
        crcs ^= tables[byte][data[places + byte]]
    return ((crcs >> np.uint32(15)) | (crcs << np.uint32(17))) + _MASK_DELTA


def is_sound_record(file: ShardFile, offset: int, limit: int) -> bool:
    """Whether a whole record with both CRCs lies there."""
    header = np.empty(HEADER_BYTES, np.uint8)
    if file.read_sound(offset, header)[0] < HEADER_BYTES:
        return False
    length = int.from_bytes(header[:LENGTH_BYTES].tobytes(), "little")
    if length > limit - offset - FRAME_BYTES:
        return False
    frame = np.empty(length + FRAME_BYTES, np.uint8)
    if file.read_sound(offset, frame)[0] < len(frame):
        return False
    return len(backend.scan_frames(frame, remaining=len(frame), verify="full").lengths) == 1


@cache
def _tables() -> tuple[list[NDArray[np.uint32]], np.uint32]:
    """A CRC is linear: what each value of each of the 8 bytes adds to that of 8 zeros."""
    of_zeros = backend.crc32c(bytes(LENGTH_BYTES))
    tables = []
    for place in range(LENGTH_BYTES):
        messages = [bytes(place) + bytes([value]) + bytes(LENGTH_BYTES - 1 - place) for value in range(256)]
        tables.append(np.array([backend.crc32c(message) ^ of_zeros for message in messages], np.uint32))
    return tables, np.uint32(of_zeros)
