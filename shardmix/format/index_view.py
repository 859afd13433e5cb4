"""An index as the rest of the package holds it: counts, and the places of records.

Rule 1: an index never changes: when its file is replaced, who has it goes on with what it was.
Rule 2: it pickles as the name of its file; in full when the file is gone or another one, or there never was one.
Rule 3: what is asked for once a read block costs a sum of at most 1024 lengths.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import CorruptShardError, StaleIndexError
from .corpus import Corpus
from .index_file import IndexFile, IndexFileError
from .index_table import UNKNOWN_SIZE, IndexColumns, IndexTable, make_columns, make_entry, tag_number
from .records import IntArray
from .storage import COMPRESSIONS, stat_shard


class Index:
    """Counts and places of the records of a corpus. Pickles small: workers map the file again. A `records.Places`."""

    def __init__(self, prefix: str, content: IndexFile | IndexColumns) -> None:
        """`prefix` goes before the names of the shards."""
        self._file = content if isinstance(content, IndexFile) else None
        self._table = content.table if isinstance(content, IndexFile) else IndexTable(content)
        columns = self._table.columns
        self.corpus = Corpus(prefix, columns.names, columns.name_ends)
        self.counts: IntArray = columns.counts  # (shards,) records a shard
        self.compressed: NDArray[np.bool_] = columns.compressions != 0  # (shards,) gzip or zlib

    def __len__(self) -> int:
        return len(self.counts)

    def __repr__(self) -> str:
        cut_off = f", {len(self.damages)} of them cut off," if self.damages else ""
        return f"<Index of {self.num_records} records in {len(self)} shards{cut_off} below {self.corpus.parent!r}>"

    def __reduce__(self) -> tuple[Any, ...]:
        if self._file is not None and self._file.is_current():
            return _map_again, (self.corpus.prefix, self._file.path, self._file.fingerprint)
        return Index, (self.corpus.prefix, IndexColumns(*map(np.array, self._table.columns)))

    @cached_property
    def num_records(self) -> int:
        """Records of the whole corpus."""
        return int(self.counts.sum())

    @property
    def sizes(self) -> IntArray:
        """(shards,) bytes on disk; -1 where there is no file."""
        return self._table.columns.sizes

    @property
    def file_path(self) -> str | None:
        """The file of this index, or None when it is in memory only."""
        return None if self._file is None else self._file.path

    @cached_property
    def damages(self) -> tuple[CorruptShardError, ...]:
        """What cuts shards off (on_corrupt="skip"): the records from there on are not in the index."""
        return tuple(self._damage(shard, *place) for shard, place in sorted(self._table.damages.items()))

    def path(self, shard: int) -> str:
        """The path or URL of a shard."""
        return self.corpus.path(shard)

    def offset(self, shard: int, record: int) -> int:
        """The byte at which the record's frame begins (in the inflated bytes); for `record` == count, where the frames end."""
        return self.spans(shard, record, record)[0]

    def compression(self, shard: int) -> str:
        """"none", "gzip" or "zlib"."""
        return COMPRESSIONS[self._table.columns.compressions[shard]]

    def entries(self, shard: int) -> tuple[tuple[int, int], ...]:
        """(compressed offset, inflated offset) where gzip members begin."""
        return self._table.members(shard)

    def lengths(self, shard: int, first: int, stop: int) -> IntArray:
        """Payload lengths of the records first … stop-1."""
        return self.spans(shard, first, stop)[1]

    def spans(self, shard: int, first: int, stop: int) -> tuple[int, IntArray]:
        """(where the frame of record `first` begins, payload lengths of the records first … stop-1).

        Costs a sum of fewer than 1024 lengths more than what it returns. Raises IndexError beyond the shard's records.
        """
        if not 0 <= first <= stop <= self.counts[shard]:
            raise IndexError(f"{self.path(shard)}: records {first} to {stop} are asked for, and it has {self.counts[shard]}")
        if self._file is not None:
            try:
                self._file.check_records(shard, first, stop)
            except IndexFileError as error:
                raise StaleIndexError(f"{error}; remove this file, and the index is built anew", path=self._file.path) from None
        return self._table.spans(shard, first, stop)

    def spans_of(self, shards: IntArray, first: IntArray, stop: IntArray) -> tuple[IntArray, IntArray]:
        """`spans` of many runs of records at once: where each begins, and the payload lengths of all, end to end."""
        wrong = np.flatnonzero((first < 0) | (first > stop) | (stop > self.counts[shards]))
        if len(wrong) or not (self._file is None or self._file.is_sound):
            for run in zip(shards.tolist(), first.tolist(), stop.tolist(), strict=True):
                self.spans(*run)  # which has the texts, and checks what was not looked at yet
        return self._table.spans_of(shards, first, stop)

    def check(self, shard: int) -> None:
        """Raise StaleIndexError when the file on disk is no longer the one that was indexed (size, mtime).

        Raises FileNotFoundError when it is gone. A shard with no file behind it (`make_index`) is always right.
        """
        columns = self._table.columns
        indexed_size, indexed_tag = int(columns.sizes[shard]), int(columns.tags[shard])
        if indexed_size == UNKNOWN_SIZE:
            return
        size, tag = stat_shard(self.path(shard))
        if (size, tag_number(tag)) != (indexed_size, indexed_tag):
            was = f"had {indexed_size}" if size != indexed_size else "was last changed at another time"
            raise StaleIndexError(
                f"it has {size} bytes, and {was} when it was indexed; open the data set again, and it is indexed anew",
                path=self.path(shard),
            )

    def digest(self) -> str:
        """32 hex digits of (name, count, compressed or not) of every shard: the same wherever the corpus lies."""
        return self._digest

    @cached_property
    def _digest(self) -> str:
        return self._table.digest()

    def _damage(self, shard: int, text: str, record: int | None, offset: int | None) -> CorruptShardError:
        return CorruptShardError(text, path=self.path(shard), record=record, offset=offset)


def make_index(counts: IntArray, lengths: list[IntArray] | int, paths: Corpus | None = None) -> Index:
    """An index of given numbers with no data behind it: for tests and benchmarks of the order. `lengths` may be one number for
    every record, held compactly."""
    counts = np.ascontiguousarray(counts, np.int64)
    corpus = _made_up_corpus(len(counts)) if paths is None else paths
    if not isinstance(lengths, int):
        rows = [make_entry(UNKNOWN_SIZE, 0, "none", np.asarray(shard, np.int64)) for shard in lengths]
        return Index(corpus.prefix, make_columns(corpus.names, corpus.ends, rows))
    nothing = np.zeros(0, np.int64)
    same = np.broadcast_to
    columns = IndexColumns(
        names=corpus.names,
        name_ends=corpus.ends,
        sizes=same(np.int64(UNKNOWN_SIZE), counts.shape),
        tags=same(np.int64(0), counts.shape),
        counts=counts,
        bases=same(np.int64(lengths), counts.shape),
        widths=same(np.uint8(0), counts.shape),
        compressions=same(np.uint8(0), counts.shape),
        deltas=nothing.astype(np.uint8),
        checkpoints=nothing,
        members=nothing,
        damages=nothing.astype(np.uint8),
    )
    return Index(corpus.prefix, columns)


def _made_up_corpus(num_shards: int) -> Corpus:
    """Names shard-0000000 …, made without a million strings."""
    width = max(7, len(str(num_shards)))
    numbers = np.arange(num_shards)
    names = np.empty((num_shards, 6 + width), np.uint8)
    names[:, :6] = np.frombuffer(b"shard-", np.uint8)
    for place in range(width):
        names[:, -1 - place] = numbers // 10**place % 10 + ord("0")
    return Corpus("", names.reshape(-1), np.arange(num_shards + 1, dtype=np.int64) * (6 + width))


def _map_again(prefix: str, path: str, fingerprint: bytes) -> Index:
    """The index in another process."""
    file = IndexFile(path)
    if file.fingerprint != fingerprint:
        raise StaleIndexError("it was replaced while a worker process started; start again", path=path)
    return Index(prefix, file)
