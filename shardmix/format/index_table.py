"""What an index holds, as columns: one row a shard, and the lengths of all records, compactly.

Rule 1: the lengths of a shard are one base and one width: length = base + delta, deltas in 0, 1, 2, 4 or 8 bytes each. A shard of
equal records takes no byte a record, one of similar records a single byte.
Rule 2: where the frame of every 1024th record begins is kept, so that any record's place is one sum of fewer than 1024 lengths.
Rule 3: a column is an array; where it lives (a mapped file, memory) is not known here.

Knows nothing of files, paths on disk, or processes.
"""

from __future__ import annotations

import hashlib
import itertools
import json
from collections.abc import Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptShardError, describe_place
from .framing import FRAME_BYTES
from .inflate import MAX_RATIO
from .records import Bytes, IntArray
from .spans import expand_spans, starts_of
from .storage import COMPRESSIONS

STRIDE = 1024  # records from one kept frame offset to the next
_NONE: IntArray = np.empty(0, np.int64)
UNKNOWN_SIZE = -1  # size of a shard with no file behind it
_MOST_BYTES = 1 << 52  # a shard may be said to have
_WIDTHS = (0, 1, 2, 4, 8)  # bytes a delta may take
_ALIGNMENT = 8  # bytes; where the deltas of a shard begin


class IndexEntry(NamedTuple):
    """One shard, as it was scanned."""

    size: int  # bytes on disk
    tag: int  # changes when the file does (`tag_number`)
    compression: str
    num_records: int
    base: int  # the shortest payload
    width: int  # bytes a delta
    deltas: bytes  # num_records * width bytes, little-endian
    checkpoints: bytes  # int64: where the frames of records 1024, 2048 … begin
    members: tuple[tuple[int, int], ...]  # (compressed offset, inflated offset) where gzip members begin
    damage: tuple[str, int | None, int | None] | None  # (text, record, offset) of what cuts the shard off


class IndexColumns(NamedTuple):
    """All shards of an index, in the order of their names. The order of the fields is that of the file."""

    names: Bytes
    name_ends: IntArray  # (shards + 1,)
    sizes: IntArray  # (shards,)
    tags: IntArray  # (shards,)
    counts: IntArray  # (shards,)
    bases: IntArray  # (shards,)
    widths: Bytes  # (shards,)
    compressions: Bytes  # (shards,) place in COMPRESSIONS
    deltas: Bytes  # of all shards of a width above 0, each begun at a multiple of 8
    checkpoints: IntArray  # of all shards of a width above 0, end to end
    members: NDArray[np.int64]  # (3 * members,) shard, compressed offset, inflated offset
    damages: Bytes  # JSON: [[shard, text, record, offset], …]


class IndexTable:
    """The columns, and what is asked of them."""

    def __init__(self, columns: IndexColumns) -> None:
        self.columns = columns

    def __len__(self) -> int:
        return len(self.columns.counts)

    @cached_property
    def delta_ends(self) -> IntArray:
        """(shards + 1,) where the deltas of each shard end in the column, in bytes, padding included."""
        return _ends_of(_padded(self.columns.counts * self.columns.widths))

    @cached_property
    def checkpoint_ends(self) -> IntArray:
        """(shards + 1,) where the checkpoints of each shard end in the column."""
        return _ends_of(np.where(self.columns.widths > 0, self.columns.counts // STRIDE, 0))

    @cached_property
    def damages(self) -> dict[int, tuple[str, int | None, int | None]]:
        """shard → (text, record, offset) of what cuts it off."""
        rows = json.loads(self.columns.damages.tobytes() or b"[]")
        return {shard: (text, record, offset) for shard, text, record, offset in rows}

    def names(self) -> list[str]:
        """The names of all shards."""
        names, ends = self.columns.names.tobytes(), self.columns.name_ends.tolist()
        return [names[start:end].decode("utf-8", "surrogateescape") for start, end in itertools.pairwise(ends)]

    def delta_span(self, shard: int, first: int, stop: int) -> tuple[int, int]:
        """Which bytes of the column of deltas are those of the records first … stop-1."""
        start, width = int(self.delta_ends[shard]), int(self.columns.widths[shard])
        return start + first * width, start + stop * width

    def spans(self, shard: int, first: int, stop: int) -> tuple[int, IntArray]:
        """Where the frame of record `first` begins, and the payload lengths of the records first … stop-1."""
        base, width = int(self.columns.bases[shard]), int(self.columns.widths[shard])
        if width == 0:
            return first * (base + FRAME_BYTES), np.full(stop - first, base, np.int64)
        stride = first // STRIDE
        start, end = self.delta_span(shard, stride * STRIDE, stop)
        lengths = self.columns.deltas[start:end].view(f"<u{width}").astype(np.int64)
        lengths += base
        passed = first - stride * STRIDE
        offset = int(self.columns.checkpoints[self.checkpoint_ends[shard] + stride - 1]) if stride else 0
        return offset + int(lengths[:passed].sum()) + passed * FRAME_BYTES, lengths[passed:]

    def spans_of(self, shards: IntArray, first: IntArray, stop: IntArray) -> tuple[IntArray, IntArray]:
        """`spans` of many runs of records: where each begins, and the payload lengths of all, end to end."""
        width = self.columns.widths[shards]
        if not len(shards) or (width != width[0]).any():
            each = [self.spans(*run) for run in zip(shards.tolist(), first.tolist(), stop.tolist(), strict=True)]
            return np.array([offset for offset, _ in each], np.int64), np.concatenate([_NONE, *(lengths for _, lengths in each)])
        base, count = self.columns.bases[shards], stop - first
        if width[0] == 0:
            return first * (base + FRAME_BYTES), np.repeat(base, count)
        stride, passed = first // STRIDE, first % STRIDE
        begin = self.delta_ends[shards] // width[0] + first
        deltas = self._deltas_of_width(int(width[0]))
        known = [deltas[start:end] for start, end in zip((begin - passed).tolist(), (begin + count).tolist(), strict=True)]
        lengths = np.concatenate(known).astype(np.int64)
        lengths += np.repeat(base, passed + count)
        ends = np.zeros(len(lengths) + 1, np.int64)
        np.cumsum(lengths, out=ends[1:])
        start = starts_of(passed + count)
        offset = ends[start + passed] - ends[start] + passed * FRAME_BYTES
        later = stride > 0
        offset[later] += self.columns.checkpoints[self.checkpoint_ends[shards[later]] + stride[later] - 1]
        return offset, lengths[expand_spans(start + passed, count)]

    def _deltas_of_width(self, width: int) -> NDArray[np.generic]:
        """The column of deltas as numbers of so many bytes."""
        deltas = self.columns.deltas
        return deltas[: len(deltas) // width * width].view(f"<u{width}")

    def members(self, shard: int) -> tuple[tuple[int, int], ...]:
        """(compressed offset, inflated offset) where gzip members begin."""
        rows = self.columns.members.reshape(-1, 3)
        first, stop = np.searchsorted(rows[:, 0], [shard, shard + 1])
        return tuple((int(compressed), int(inflated)) for _, compressed, inflated in rows[first:stop])

    def entry(self, shard: int) -> IndexEntry:
        """One shard by itself."""
        columns = self.columns
        first, stop = self.checkpoint_ends[shard : shard + 2]
        start, end = self.delta_span(shard, 0, int(columns.counts[shard]))
        return IndexEntry(
            size=int(columns.sizes[shard]),
            tag=int(columns.tags[shard]),
            compression=COMPRESSIONS[columns.compressions[shard]],
            num_records=int(columns.counts[shard]),
            base=int(columns.bases[shard]),
            width=int(columns.widths[shard]),
            deltas=columns.deltas[start:end].tobytes(),
            checkpoints=columns.checkpoints[first:stop].astype("<i8").tobytes(),
            members=self.members(shard),
            damage=self.damages.get(shard),
        )

    def describe_mismatch(self) -> str | None:
        """Why the columns cannot be those of one index, or None."""
        columns = self.columns
        num_shards = len(columns.counts)
        if any(len(column) != num_shards for column in columns[2:8]) or len(columns.name_ends) != num_shards + 1:
            return "its columns differ in length"
        if columns.name_ends[0] != 0 or columns.name_ends[-1] != len(columns.names) or (np.diff(columns.name_ends) < 0).any():
            return "its names do not fill their place"
        if not np.isin(columns.widths, _WIDTHS).all() or (columns.compressions >= len(COMPRESSIONS)).any():
            return "a width or a compression is unknown"
        if self._are_lengths_impossible():
            return "a count or a length is impossible"
        if self.delta_ends[-1] != len(columns.deltas) or self.checkpoint_ends[-1] != len(columns.checkpoints):
            return "its lengths do not fill their place"
        if len(columns.members) % 3 or (np.diff(columns.members[::3]) < 0).any():
            return "its gzip members are of no shard"
        return self._describe_bad_damages()

    def _are_lengths_impossible(self) -> bool:
        """Whether a shard has more records, or larger ones, than its bytes can hold, were they deflated zeros."""
        columns = self.columns
        room = np.where(columns.sizes == UNKNOWN_SIZE, _MOST_BYTES, columns.sizes)
        if ((room < 0) | (room > _MOST_BYTES) | (columns.bases < 0) | (columns.bases > _MOST_BYTES)).any():
            return True
        room = np.where(columns.compressions == 0, room, room * MAX_RATIO)
        return bool(((columns.counts < 0) | (columns.counts > room // (columns.bases + FRAME_BYTES))).any())

    def _describe_bad_damages(self) -> str | None:
        try:
            is_sound = all(
                isinstance(shard, int) and 0 <= shard < len(self) and isinstance(text, str)
                for shard, (text, _, _) in self.damages.items()
            )
        except (ValueError, TypeError, RecursionError):
            is_sound = False
        return None if is_sound else "its damages cannot be read"

    def digest(self) -> str:
        """32 hex digits of (name, count, compressed or not) of every shard, wherever the corpus lies.

        blake2b with 16 bytes over the name ends, counts (int64, little-endian), compressed (uint8), and the names, end to end.
        """
        digest = hashlib.blake2b(digest_size=16)
        for column in (self.columns.name_ends, self.columns.counts):
            digest.update(np.ascontiguousarray(column, "<i8").data)
        digest.update((self.columns.compressions != 0).astype(np.uint8).data)
        digest.update(np.ascontiguousarray(self.columns.names).data)
        return digest.hexdigest()


def make_entry(
    size: int,
    tag: int,
    compression: str,
    lengths: IntArray,
    members: Sequence[tuple[int, int]] = (),
    damage: CorruptShardError | None = None,
) -> IndexEntry:
    """One shard, from what a scan found; packed at once, so that a million shards are not held as int64."""
    base, width, deltas = pack_lengths(lengths)
    starts = np.cumsum(lengths + FRAME_BYTES)[STRIDE - 1 :: STRIDE] if width else lengths[:0]
    place = None if damage is None else (_text_of(damage), damage.record, damage.offset)
    return IndexEntry(
        size, tag, compression, len(lengths), base, width, deltas, starts.astype("<i8").tobytes(), tuple(members), place
    )


def pack_lengths(lengths: IntArray) -> tuple[int, int, bytes]:
    """(base, width, deltas): the fewest bytes a record that hold every length of a shard.

    >>> pack_lengths(np.array([784, 784, 786]))
    (784, 1, b'\\x00\\x00\\x02')
    >>> pack_lengths(np.array([784, 784]))
    (784, 0, b'')
    """
    if not len(lengths):
        return 0, 0, b""
    base = int(lengths.min())
    spread = int(lengths.max()) - base
    width = next(width for width in _WIDTHS if spread < 1 << 8 * width)
    return base, width, (lengths - base).astype(f"<u{width}").tobytes() if width else b""


def make_columns(names: Bytes, name_ends: IntArray, entries: Sequence[IndexEntry]) -> IndexColumns:
    """The columns of some shards."""
    members = [(shard, *member) for shard, entry in enumerate(entries) for member in entry.members]
    damages = [(shard, *entry.damage) for shard, entry in enumerate(entries) if entry.damage is not None]
    deltas = b"".join(entry.deltas + bytes(-len(entry.deltas) % _ALIGNMENT) for entry in entries)

    def column(field: str) -> IntArray:
        return np.array([getattr(entry, field) for entry in entries], np.int64)

    return IndexColumns(
        names=names,
        name_ends=name_ends,
        sizes=column("size"),
        tags=column("tag"),
        counts=column("num_records"),
        bases=column("base"),
        widths=column("width").astype(np.uint8),
        compressions=np.array([COMPRESSIONS.index(entry.compression) for entry in entries], np.uint8),
        deltas=np.frombuffer(deltas, np.uint8),
        checkpoints=np.frombuffer(b"".join(entry.checkpoints for entry in entries), "<i8").astype(np.int64),
        members=np.array(members, np.int64).reshape(-1),
        damages=np.frombuffer(json.dumps(damages).encode() if damages else b"", np.uint8),
    )


def tag_number(tag: str) -> int:
    """A tag of `stat_shard` as one int64: a time in nanoseconds stands for itself, an etag is hashed."""
    if tag.isdecimal() and int(tag) < 2**62:
        return int(tag)
    return -1 - (int.from_bytes(hashlib.blake2b(tag.encode(), digest_size=8).digest(), "little") >> 1)


def _text_of(damage: CorruptShardError) -> str:
    """What it says, without the place: the corpus may move."""
    return str(damage).removeprefix(describe_place(damage.path, damage.record, damage.offset) + ": ")


def _padded(num_bytes: IntArray) -> IntArray:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _ends_of(sizes: IntArray) -> IntArray:
    ends = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=ends[1:])
    return ends
