"""Where the index of a corpus lives, and who may write it.

    <parent of the corpus>/.index-<names>.shardmix         beside the data: hidden, matched by no pattern
    <cache>/<parent>-<names>.shardmix                      in the user's cache directory, or cache_dir

<names> and <parent> are 16 hex digits of a hash: two subsets of one folder each have a file, and neither undoes the other's.
A grown corpus takes what the files of its parts know, and removes those that it replaces.

Rule 1: one process of a node builds at a time; the lock is a file in the node's temporary directory, so that no data folder is
littered, no network file system has to know locks, and the lock of a process that was killed is free.
Rule 2: a file that is not sound is as good as none, and is told of.
"""

from __future__ import annotations

import hashlib
import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple

import filelock
import platformdirs

from .corpus import INDEX_ENDING, Corpus
from .index_file import IndexFile, IndexFileError

BESIDE_PREFIX = ".index-"
LOCK_MESSAGE_SECONDS = 2.0

logger = logging.getLogger("shardmix")


class IndexHome(NamedTuple):
    """One place for the index of a corpus."""

    folder: str
    prefix: str  # of the names of the files that are about the same folder of data
    key: str  # of the set of names; empty for a file that the user names

    @property
    def path(self) -> str:
        """The file for exactly this corpus."""
        return os.path.join(self.folder, self.prefix + self.key + INDEX_ENDING)

    def other_paths(self) -> list[str]:
        """The files of other sets of shards of the same folder."""
        return [path for path in index_paths(self.folder, self.prefix) if path != self.path] if self.key else []

    def for_part(self, part: Corpus) -> IndexHome:
        """The place for some of the shards."""
        return self._replace(key=part.key()) if self.key else self

    def make_folder(self) -> None:
        """Make the folder if need be (never one of data: that is there)."""
        os.makedirs(self.folder, exist_ok=True)


def find_homes(corpus: Corpus, index: str | os.PathLike[str], cache_dir: str | os.PathLike[str] | None) -> list[IndexHome]:
    """The places where the index is looked for, and written to, in this order; none for index="memory".

    Raises ValueError for an `index` that is none of "auto", "cache", "memory" and a path that ends in .shardmix, and for a
    cache_dir that would not be used.
    """
    if index not in ("auto", "cache", "memory"):
        homes = [_home_at(index)]
    elif index == "memory":
        homes = []
    else:
        beside = home_beside(corpus) if index == "auto" and cache_dir is None else None
        return [home for home in (beside, _home_in_cache(corpus, cache_dir)) if home is not None]
    if cache_dir is not None:
        raise ValueError(f"cache_dir={cache_dir!r}: not used with index={index!r}; leave one of them out")
    return homes


def home_beside(corpus: Corpus) -> IndexHome | None:
    """The place beside the data; None for URLs, and for shards whose only common parent is the root."""
    if corpus.is_remote or corpus.prefix in ("", "/"):
        return None
    return IndexHome(corpus.parent, BESIDE_PREFIX, corpus.key())


def _home_in_cache(corpus: Corpus, cache_dir: str | os.PathLike[str] | None) -> IndexHome:
    folder = platformdirs.user_cache_dir("shardmix") if cache_dir is None else os.path.abspath(os.path.expanduser(cache_dir))
    return IndexHome(folder, _hash(corpus.prefix) + "-", corpus.key())


def _home_at(path: str | os.PathLike[str]) -> IndexHome:
    path = os.path.abspath(os.path.expanduser(path))
    if not path.endswith(INDEX_ENDING):
        raise ValueError(f"index={path!r}: 'auto', 'cache', 'memory', or a file whose name ends in {INDEX_ENDING}")
    folder, name = os.path.split(path.removesuffix(INDEX_ENDING))
    return IndexHome(folder, name, "")


def index_paths(folder: str, prefix: str) -> list[str]:
    """The index files of a folder whose names begin so, the newest first."""
    try:
        names = [name for name in os.listdir(folder) if name.startswith(prefix) and name.endswith(INDEX_ENDING)]
    except OSError:  # no such folder, or one that may not be listed: nothing is known there
        return []
    return sorted((os.path.join(folder, name) for name in names), key=_change_time, reverse=True)


def remove_replaced(home: IndexHome, names: frozenset[str]) -> None:
    """Remove the files of `home` that are about nothing but some of these shards: all they know stands in its own file."""
    for path in home.other_paths():
        file = read_index_file(path)
        if file is not None and names.issuperset(file.table.names()):
            with suppress(OSError):  # gone, or not ours: it only takes up room
                os.unlink(path)


def read_index_file(path: str) -> IndexFile | None:
    """A file, or None when it is not there, or is not sound (and then a message says so)."""
    try:
        return IndexFile(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError as error:
        logger.warning("index %s: cannot be read (%s); it is left alone", path, error.strerror)
    except IndexFileError as error:
        logger.warning("index %s: %s; the shards are scanned again", path, error)
    return None


@contextmanager
def lock_index(path: str) -> Iterator[None]:
    """Hold the lock of one index file among the processes of this node."""
    lock = filelock.FileLock(os.path.join(_lock_folder(), _hash(os.path.realpath(path)) + ".lock"))
    try:
        lock.acquire(timeout=LOCK_MESSAGE_SECONDS)
    except filelock.Timeout:
        logger.info("index %s: another process builds it; waiting", path)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _lock_folder() -> str:
    """A folder of this user alone, on this node."""
    folder = os.path.join(tempfile.gettempdir(), f"shardmix-{os.getuid()}")
    os.makedirs(folder, mode=0o700, exist_ok=True)
    status = os.lstat(folder)
    if status.st_uid != os.getuid() or not os.path.isdir(folder) or os.path.islink(folder):
        raise PermissionError(f"{folder}: belongs to another user, and locks are kept there; remove it or set TMPDIR")
    return folder


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=8).hexdigest()


def _change_time(path: str) -> int:
    try:
        return os.stat(path).st_mtime_ns
    except FileNotFoundError:
        return 0
