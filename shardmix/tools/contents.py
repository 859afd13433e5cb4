"""What some bytes are: told from the bytes alone, and only where they say it plainly.

Rule 1: an image or sound format by its first bytes; text where all of it is UTF-8 without control characters.
Rule 2: a serialised message (protocol buffers) where all of it reads as fields, to the last byte. Short bytes do so by chance, so
that of several values all must.
Rule 3: a payload is an Example or SequenceExample where all of it is one, with at least one feature. One without any (no bytes at
all, too) may be one among others that are; by itself that is not claimed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..format.messages import load_messages

# (where, first bytes, what)
_MAGIC = (
    (0, b"\xff\xd8\xff", "JPEG"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG"),
    (0, b"GIF8", "GIF"),
    (8, b"WEBP", "WebP"),
    (8, b"WAVE", "WAV"),
    (0, b"fLaC", "FLAC"),
    (0, b"\x93NUMPY", "NumPy array"),
    (0, b"\x1f\x8b\x08", "gzip"),
)
_TEXT_CONTROLS = frozenset("\t\n\r\f")
_MIN_MESSAGE_BYTES = 8  # of all values together, below which reading as fields says nothing
_MAX_FIELD = 1 << 16  # of a message that somebody wrote
_VARINT_BYTES = 10


def describe_bytes(values: Iterable[bytes]) -> str | None:
    """What all of the values are: "JPEG", "PNG", "UTF-8 text", "serialised message" …, or None where nothing is plain.

    >>> describe_bytes([b"caf\\xc3\\xa9", b""]), describe_bytes([b"\\x00\\x01"])
    ('UTF-8 text', None)
    """
    filled = [bytes(value) for value in values if len(value)]
    if not filled:
        return None
    kinds = {_find_format(value) for value in filled}
    if len(kinds) == 1 and None not in kinds:
        return kinds.pop()
    if all(map(is_text, filled)):
        return "UTF-8 text"
    if sum(map(len, filled)) >= _MIN_MESSAGE_BYTES and all(map(is_message, filled)):
        return "serialised message"
    return None


def is_text(value: bytes) -> bool:
    """Whether all of it is UTF-8 that can be shown."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        return False
    return all(character.isprintable() or character in _TEXT_CONTROLS for character in text)


def is_message(value: bytes) -> bool:
    """Whether all of it reads as the fields of a protocol buffer, to the last byte."""
    offset = 0
    while offset < len(value):
        tag, offset = _read_varint(value, offset)
        field, wire_type = tag >> 3, tag & 7
        if not 0 < field < _MAX_FIELD:
            return False
        if wire_type == 0:
            number, offset = _read_varint(value, offset)
            offset = offset if number >= 0 else len(value) + 1
        elif wire_type == 2:
            length, offset = _read_varint(value, offset)
            offset = offset + length if length >= 0 else len(value) + 1
        elif wire_type in (1, 5):
            offset += 8 if wire_type == 1 else 4
        else:  # groups are not written any more, and random bytes are full of them
            return False
    return offset == len(value) and bool(value)


def parse_example(payload: bytes | memoryview) -> Any:
    """The message of an Example or SequenceExample (the class of the latter reads both), or None where it is neither.

    It may be without features: `has_features` tells.
    """
    messages = load_messages()
    try:
        message = messages.SequenceExample.FromString(bytes(payload))
    except messages.DecodeError:
        return None
    size = message.ByteSize()
    message.DiscardUnknownFields()
    return message if message.ByteSize() == size else None


def has_features(message: Any) -> bool:
    """Whether a message of `parse_example` has any feature."""
    return bool(message.context.feature or message.feature_lists.feature_list)


def _find_format(value: bytes) -> str | None:
    return next((name for place, magic, name in _MAGIC if value[place : place + len(magic)] == magic), None)


def _read_varint(value: bytes, offset: int) -> tuple[int, int]:
    """(number, offset behind it); (-1, …) where there is none."""
    number = 0
    for place in range(_VARINT_BYTES):
        if offset + place >= len(value):
            break
        byte = value[offset + place]
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return number, offset + place + 1
    return -1, len(value) + 1
