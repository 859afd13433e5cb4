"""The index of a corpus: record counts and lengths, so that the order is known before the first payload byte is read.

    index = open_index("corpus/train-*.tfrecord")
    index.counts, index.lengths(shard, first, stop), index.offset(shard, record)

Per shard: name, size, mtime (or etag), compression, count, record lengths, every 1024th offset, gzip member starts. One hidden
file a corpus, memory-mapped, written atomically under a lock; beside the data, or in the user's cache directory when that folder
is read-only or index="cache". Changed shards alone are scanned again.

    index_view.py    Index, what the rest of the package holds       index_file.py    the bytes of the file
    index_table.py   what it knows, as columns                       index_store.py   where the file lives, and the lock
    index_scan.py    shards scanned in parallel                      index_build.py   old knowledge and scans, put together
"""

from __future__ import annotations

import os
import shlex
from concurrent.futures import Executor

from .corpus import Corpus, ShardsLike, find_shards
from .index_build import Wanted, build_columns, read_whole, write_columns
from .index_scan import logger
from .index_store import IndexHome, find_homes, home_beside, lock_index, read_index_file
from .index_table import make_columns, make_entry, tag_number
from .index_view import Index, make_index
from .progress import ProgressLike
from .records import IntArray
from .scan import check_on_corrupt
from .storage import resolve_compression, stat_shard

__all__ = ["Index", "build_index", "make_index", "open_index", "write_index"]


def open_index(
    shards: ShardsLike | Corpus,
    *,
    compression_type: str | None = "auto",
    on_corrupt: str = "raise",
    index: str | os.PathLike[str] = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> Index:
    """The index of a corpus: read when it is there and describes the shards, else built (only what changed is scanned).

    Takes what `build_index` takes. Shards behind URLs are not scanned here: FileNotFoundError gives the command that does it.
    """
    wanted, homes = _look(shards, compression_type, on_corrupt, index, cache_dir)
    found = _read_any(homes, wanted)
    if found is None and wanted.corpus.is_remote:
        raise FileNotFoundError(_describe_remote(shards, wanted.corpus, index, cache_dir))
    return _tell_damages(found or _build(homes, wanted, executor, progress))


def build_index(
    shards: ShardsLike | Corpus,
    *,
    compression_type: str | None = "auto",
    on_corrupt: str = "raise",
    index: str | os.PathLike[str] = "auto",
    cache_dir: str | os.PathLike[str] | None = None,
    executor: Executor | None = None,
    progress: ProgressLike = None,
) -> Index:
    """Index a corpus, local or remote; what an index knows already, and is unchanged, is not scanned again.

        index = build_index("corpus/train-*.tfrecord")
        index.counts.sum()

    on_corrupt: "raise" stops at damaged framing, "skip" indexes the intact records before it and logs what is cut off.
    index: where it is kept. "auto": in a hidden file beside the data, or in the user's cache directory when that folder is
        read-only. "cache": there in any case. "memory": nothing is read or written. Else the path of a file, name.shardmix.
    cache_dir: use this directory, and nothing beside the data.
    executor: any concurrent.futures.Executor; None is a pool of threads, one a CPU.
    progress: progress(shards done, shards to scan); True, False or None (a bar on a terminal, after two seconds).

    Raises CorruptShardError, StaleIndexError for a shard that changes meanwhile, FileNotFoundError, OSError, ValueError.
    """
    wanted, homes = _look(shards, compression_type, on_corrupt, index, cache_dir)
    return _tell_damages(_read_any(homes, wanted) or _build(homes, wanted, executor, progress))


def write_index(
    paths: list[str] | tuple[str, ...],
    lengths: list[IntArray],
    *,
    compression: str = "none",
    entries: list[tuple[tuple[int, int], ...]] | None = None,
    stamps: list[tuple[int, str]] | None = None,
) -> None:
    """Leave the index of shards that were just written beside them, from the payload lengths of each, so that nobody scans them.

    entries: per shard (compressed offset, inflated offset) where gzip members begin.
    stamps: per shard what `stat_shard` said of it when it was written, as another writer may replace it. None: as it is now.

    A failure (a full disk) is logged and no more: the shards are whole, and their first reader scans them.
    """
    written = {os.path.abspath(path): place for place, path in enumerate(paths)}
    corpus = Corpus.of_paths(written)
    home = home_beside(corpus)
    if home is None:
        return
    rows = []
    try:
        for path in corpus:
            place = written[path]
            size, tag = stamps[place] if stamps else stat_shard(path)
            rows.append(make_entry(size, tag_number(tag), compression, lengths[place], entries[place] if entries else ()))
        with lock_index(home.path):
            write_columns([home], make_columns(corpus.names, corpus.ends, rows))
    except OSError as error:
        logger.warning("the shards are whole, but their index could not be written; their first reader scans them: %s", error)


def _look(
    shards: ShardsLike | Corpus,
    compression_type: str | None,
    on_corrupt: str,
    index: str | os.PathLike[str],
    cache_dir: str | os.PathLike[str] | None,
) -> tuple[Wanted, list[IndexHome]]:
    """What is asked for, and where an index of it may live."""
    check_on_corrupt(on_corrupt)
    compression = resolve_compression(compression_type)
    corpus = find_shards(shards)
    homes = find_homes(corpus, index, cache_dir)
    return Wanted.of(corpus, compression, on_corrupt), homes


def _read_any(homes: list[IndexHome], wanted: Wanted) -> Index | None:
    files = (read_whole(home, wanted) for home in homes)
    file = next((file for file in files if file is not None), None)
    return None if file is None else Index(wanted.corpus.prefix, file)


def _build(homes: list[IndexHome], wanted: Wanted, executor: Executor | None, progress: ProgressLike) -> Index:
    """Build under the lock, unless another process did while this one waited for it."""
    if not homes:
        return Index(wanted.corpus.prefix, build_columns([], wanted, executor=executor, progress=progress))
    with lock_index(homes[0].path):
        found = _read_any(homes, wanted)
        if found is not None:
            return found
        _tell_other_corpus(homes[0], wanted.corpus)
        columns = build_columns(homes, wanted, executor=executor, progress=progress)
        home = write_columns(homes, columns)
        if home is None:
            logger.warning(
                "index %s: cannot be written; it is kept in memory and built again by every run: give cache_dir",
                " and ".join(home.path for home in homes),
            )
        file = None if home is None else read_whole(home, wanted)
        return Index(wanted.corpus.prefix, columns if file is None else file)


def _tell_other_corpus(home: IndexHome, corpus: Corpus) -> None:
    """Warn where a file that the user named is about other shards: two corpora would take it from each other, again and again."""
    file = None if home.key else read_index_file(home.path)
    names = [] if file is None else file.table.names()
    if names and set(names).isdisjoint(corpus.name(shard) for shard in range(len(corpus))):
        logger.warning(
            "index %s: it is about other shards (%r …), and is replaced; give each corpus its own", home.path, names[0]
        )


def _tell_damages(index: Index) -> Index:
    for damage in index.damages:
        logger.warning("%s; this and what follows in the shard is left out (on_corrupt='skip')", damage)
    return index


def _describe_remote(
    shards: ShardsLike | Corpus, corpus: Corpus, index: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None
) -> str:
    given = [shards] if isinstance(shards, str | os.PathLike) else list(shards)
    words = [os.fspath(item) for item in given[:3]]
    if index not in ("auto", "cache", "memory"):
        words += ["--out", os.fspath(index)]
    return (
        f"{corpus.parent}: no index describes its {len(corpus)} shards as they are now, and to scan them is to read them whole; "
        f"do it once: shardmix index {shlex.join(words)}{' …' if len(given) > 3 else ''}"
    )
