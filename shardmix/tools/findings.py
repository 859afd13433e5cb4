"""What is wrong with a shard, as data: where, of which kind, in words.

    unreadable  the operating system does not let us read it
    no shard    no record from the first byte on: another kind of file, or damaged there
    payload     the CRC of one payload does not hold; the records around it are sound
    framing     the CRC of a length does not hold, so that the place of the next record is lost
    cut         the file ends inside a record
    stream      the compressed stream is damaged
    count       sound in itself, but not of as many records as the index says
    content     sound, and not what the other records are
"""

from __future__ import annotations

from typing import NamedTuple

from ..errors import CorruptShardError, describe_place

KINDS = ("unreadable", "no shard", "payload", "framing", "cut", "stream", "count", "content")

# How the texts of framing.py begin; any other damage is one of the compressed stream.
_BEGINNINGS = {"payload CRC": "payload", "length CRC": "framing", "cut": "cut"}


class Finding(NamedTuple):
    """One thing that is wrong. `record`, `offset` (in the inflated bytes): where, as far as known."""

    path: str
    kind: str  # one of KINDS
    text: str
    record: int | None = None
    offset: int | None = None

    def __str__(self) -> str:
        kind = "" if self.text.startswith(self.kind) else f"{self.kind}: "
        return f"{describe_place(self.path, self.record, self.offset)}: {kind}{self.text}"

    @classmethod
    def of_damage(cls, damage: CorruptShardError, *, more: str = "") -> Finding:
        """What an error about a shard says. `more` goes behind its text."""
        text = str(damage).removeprefix(describe_place(damage.path, damage.record, damage.offset) + ": ")
        kind = next((kind for beginning, kind in _BEGINNINGS.items() if text.startswith(beginning)), "stream")
        if damage.offset == 0 and "is this a TFRecord file?" in text:
            kind = "no shard"
        return cls(damage.path, kind, text + more, damage.record, damage.offset)

    @classmethod
    def of_os_error(cls, path: str, error: OSError) -> Finding:
        """A shard that cannot be read."""
        return cls(path, "unreadable", error.strerror or str(error))
