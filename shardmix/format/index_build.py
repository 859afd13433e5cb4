"""From what the index files know and what the shards are now → a whole index: only what is new or changed is scanned.

Rule 1: what a file says of a shard counts only if name, size and tag (time of change, or etag) are those of the shard now.
Rule 2: on a cache hit no shard is opened: one stat each.
Rule 3: whatever was scanned is kept, even when the scan ends with an error or Ctrl-C: the next one goes on from there.
"""

from __future__ import annotations

import errno
import logging
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from .corpus import Corpus
from .index_file import IndexFile, write_index_file
from .index_scan import scan_corpus, stat_corpus
from .index_store import BESIDE_PREFIX, IndexHome, index_paths, read_index_file, remove_replaced
from .index_table import IndexColumns, IndexEntry, IndexTable, make_columns
from .progress import ProgressLike
from .records import IntArray
from .storage import COMPRESSIONS

_READ_ONLY = (errno.EACCES, errno.EPERM, errno.EROFS)

logger = logging.getLogger("shardmix")


class Wanted(NamedTuple):
    """What an index must describe to be of use."""

    corpus: Corpus
    sizes: IntArray  # (shards,) as they are now
    tags: IntArray  # (shards,)
    compression: str  # "auto", or what the shards are to be read as
    on_corrupt: str  # "raise": a shard that is known to be cut off is scanned again, to raise its damage

    @classmethod
    def of(cls, corpus: Corpus, compression: str, on_corrupt: str) -> Wanted:
        """Look at every shard."""
        return cls(corpus, *stat_corpus(corpus), compression, on_corrupt)

    def usable_rows(self, table: IndexTable, rows: IntArray, shards: IntArray) -> NDArray[np.bool_]:
        """For each row of a table whether it describes its shard."""
        columns = table.columns
        is_usable: NDArray[np.bool_] = (columns.sizes[rows] == self.sizes[shards]) & (columns.tags[rows] == self.tags[shards])
        if self.compression != "auto":
            is_usable &= columns.compressions[rows] == COMPRESSIONS.index(self.compression)
        if self.on_corrupt == "raise" and table.damages:
            is_usable &= ~np.isin(rows, list(table.damages))
        return is_usable


def read_whole(home: IndexHome, wanted: Wanted) -> IndexFile | None:
    """The file of this very corpus, if it describes every shard as it is now."""
    file = read_index_file(home.path)
    if file is None or not _has_names_of(file.table, wanted.corpus):
        return None
    every = np.arange(len(wanted.corpus))
    return file if wanted.usable_rows(file.table, every, every).all() else None


def build_columns(
    homes: list[IndexHome], wanted: Wanted, *, executor: Executor | None = None, progress: ProgressLike = None
) -> IndexColumns:
    """Take what the files of `homes` know and scan the rest; the columns of the whole corpus, written nowhere.

    When the scan raises, what is known by then is put into the first of the homes.
    """
    entries = known_entries(homes, wanted)
    num_known = len(entries)
    try:
        scan_corpus(
            wanted.corpus,
            entries,
            compression=wanted.compression,
            on_corrupt=wanted.on_corrupt,
            executor=executor,
            progress=progress,
        )
    except BaseException:
        if homes and len(entries) > num_known:
            _keep_part(homes[0], wanted.corpus, entries)
        raise
    return make_columns(wanted.corpus.names, wanted.corpus.ends, [entries[shard] for shard in range(len(wanted.corpus))])


def known_entries(homes: list[IndexHome], wanted: Wanted) -> dict[int, IndexEntry]:
    """shard → entry, for those shards that any file at hand describes as they are now."""
    entries: dict[int, IndexEntry] = {}
    shard_of: dict[str, int] = {}
    for prefix, path in _files_at_hand(homes, wanted.corpus):
        if len(entries) == len(wanted.corpus):
            break
        file = read_index_file(path)
        if file is None:
            continue
        if prefix == "" and _has_names_of(file.table, wanted.corpus):
            rows = shards = np.arange(len(wanted.corpus))
        else:
            shard_of = shard_of or {wanted.corpus.name(shard): shard for shard in range(len(wanted.corpus))}
            rows, shards = _match_names(file, prefix, shard_of)
        is_usable = wanted.usable_rows(file.table, rows, shards)
        for row, shard in zip(rows[is_usable].tolist(), shards[is_usable].tolist(), strict=True):
            if shard not in entries:
                file.check_records(row, 0, int(file.table.columns.counts[row]))
                entries[shard] = file.table.entry(row)
    return entries


def find_counts(homes: list[IndexHome], corpus: Corpus) -> dict[int, int]:
    """shard → how many records an index at hand says it has, however old that is; of several, the nearest home's, the newest's.

    For who wants to know whether a shard lost records since.
    """
    shard_of = {corpus.name(shard): shard for shard in range(len(corpus))}
    counts: dict[int, int] = {}
    for prefix, path in _files_at_hand(homes, corpus):
        file = read_index_file(path)
        if file is None:
            continue
        rows, shards = _match_names(file, prefix, shard_of)
        cut_off = file.table.damages
        for row, shard in zip(rows.tolist(), shards.tolist(), strict=True):
            if row not in cut_off:
                counts.setdefault(shard, int(file.table.columns.counts[row]))
    return counts


def write_columns(homes: list[IndexHome], columns: IndexColumns) -> IndexHome | None:
    """Put an index into the first of the homes that is not read-only; None when all are.

    Raises OSError that names the file, for a full disk and the like.
    """
    for home in homes:
        try:
            home.make_folder()
            write_index_file(home.path, columns)
        except OSError as error:
            if error.errno not in _READ_ONLY:
                raise OSError(
                    error.errno,
                    f"{error.strerror}; the index could not be written there, and nothing is left of it: "
                    "make room, or give another cache_dir, or index='memory'",
                    home.path,
                ) from error
            logger.info("index %s: cannot be written (%s)", home.path, error.strerror)
        else:
            if home.other_paths():
                remove_replaced(home, frozenset(IndexTable(columns).names()))
            return home
    return None


def _keep_part(home: IndexHome, corpus: Corpus, entries: dict[int, IndexEntry]) -> None:
    """Write what is known of a corpus as the index of those shards; the error under way matters more than one of this."""
    shards = sorted(entries)
    names = [corpus.names[corpus.ends[shard] : corpus.ends[shard + 1]] for shard in shards]
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum([len(name) for name in names], dtype=np.int64)])
    part = Corpus(corpus.prefix, np.concatenate(names), ends)
    try:
        write_columns([home.for_part(part)], make_columns(part.names, part.ends, [entries[shard] for shard in shards]))
    except OSError as error:
        logger.warning("index %s: what was scanned so far could not be kept (%s)", home.path, error)


def _files_at_hand(homes: list[IndexHome], corpus: Corpus) -> Iterator[tuple[str, str]]:
    """(what goes before its names to make them names of the corpus, path) of the files that may know some of its shards."""
    for home in homes:
        yield "", home.path
    for home in homes:
        yield from (("", path) for path in home.other_paths())
    if not corpus.is_remote:
        folders = {corpus.name(shard).rpartition("/")[0] for shard in range(len(corpus))}
        for folder in sorted(folders - {""}):
            yield from ((folder + "/", path) for path in index_paths(corpus.prefix + folder, BESIDE_PREFIX))


def _match_names(file: IndexFile, prefix: str, shard_of: dict[str, int]) -> tuple[IntArray, IntArray]:
    """Rows of a file, and the shards of the corpus that they are about."""
    names = enumerate(file.table.names())
    pairs = [(row, shard_of[prefix + name]) for row, name in names if prefix + name in shard_of]
    matched = np.array(pairs, np.int64).reshape(-1, 2)
    return matched[:, 0], matched[:, 1]


def _has_names_of(table: IndexTable, corpus: Corpus) -> bool:
    return np.array_equal(table.columns.name_ends, corpus.ends) and np.array_equal(table.columns.names, corpus.names)
