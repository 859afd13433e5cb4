"""Shard patterns → a Corpus: the sorted list of the files, held as arrays.

    find_shards("corpus/train-*.tfrecord")              a glob, ** included
    find_shards("corpus/train-{00000..00127}.tfrecord") braces: a range, or alternatives
    find_shards("corpus/train@128")                     train-00000-of-00128 … train-00127-of-00128
    find_shards("corpus")                               a folder: its visible files with .tfrecord or .tfrec in their names
    find_shards(["corpus/a.tfrecord", Path("b")])       a list of those
    find_shards("s3://bucket/corpus/*.tfrecord")        anything of fsspec

Rule 1: sorted by the bytes of the full path, so that the order of a listing never matters.
Rule 2: what exists under the very name that was given is taken as it stands, whatever characters the name has.
Rule 3: a duplicate, a pattern without a match, a listed file that is missing are errors that say what there is instead.
Rule 4: a name is a path below the common parent, with forward slashes: a corpus that moves keeps its names.
"""

from __future__ import annotations

import hashlib
import itertools
import os
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike

import numpy as np

from .patterns import describe_near, expand_pattern, folder_shards, has_wildcards, match_files, suggest_glob
from .records import Bytes, IntArray
from .storage import is_remote, local_path

ShardsLike = str | PathLike[str] | Sequence[str | PathLike[str]]

INDEX_ENDING = ".shardmix"


class Corpus:
    """The shards of a data set, in listing order. A million paths are one buffer and one array, not a million strings.

    >>> corpus = Corpus.of_paths(["/data/b.tfrecord", "/data/a.tfrecord"])
    >>> len(corpus), corpus.parent, corpus.name(0), corpus.path(1)
    (2, '/data', 'a.tfrecord', '/data/b.tfrecord')
    """

    __slots__ = ("_ends", "_names", "_prefix")

    def __init__(self, prefix: str, names: Bytes, ends: IntArray) -> None:
        """`prefix` goes before every name (the parent with its slash); name i is the bytes names[ends[i]:ends[i+1]], UTF-8."""
        self._prefix = prefix
        self._names = names
        self._ends = ends

    @classmethod
    def of_paths(cls, paths: Iterable[str]) -> Corpus:
        """The corpus of some paths, in any order. Raises ValueError when one is there twice."""
        encoded = sorted(_encode(path) for path in paths)
        for one, next_one in itertools.pairwise(encoded):
            if one == next_one:
                raise ValueError(f"shard {_decode(one)!r} is there twice: list every shard once, or let its patterns not overlap")
        prefix = encoded[0][: _common_bytes(encoded[0], encoded[-1])] if encoded else b""
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded)) - len(prefix)
        names = np.frombuffer(b"".join(path[len(prefix) :] for path in encoded), np.uint8)
        return cls(_decode(prefix), names, np.concatenate([np.zeros(1, np.int64), np.cumsum(lengths)]))

    def __len__(self) -> int:
        return len(self._ends) - 1

    def __iter__(self) -> Iterator[str]:
        return (self.path(shard) for shard in range(len(self)))

    def __repr__(self) -> str:
        return f"<Corpus of {len(self)} shards below {self.parent!r}>"

    def __reduce__(self) -> tuple[type[Corpus], tuple[str, Bytes, IntArray]]:
        return Corpus, (self._prefix, np.array(self._names), np.array(self._ends))

    def path(self, shard: int) -> str:
        """The path or URL of one shard."""
        return self._prefix + self.name(shard)

    def name(self, shard: int) -> str:
        """Its name below the common parent of all shards, with forward slashes: what the state's digest is made of."""
        if not 0 <= shard < len(self):
            raise IndexError(f"shard {shard}: the corpus has shards 0 to {len(self) - 1}")
        return _decode(self._names[self._ends[shard] : self._ends[shard + 1]].tobytes())

    @property
    def parent(self) -> str:
        """The common parent folder (or URL) of all shards; empty when they have none."""
        is_root = self._prefix == "/" or self._prefix.endswith("://")
        return self._prefix if is_root else self._prefix[:-1]

    @property
    def prefix(self) -> str:
        """What goes before every name: the parent and its slash."""
        return self._prefix

    @property
    def names(self) -> Bytes:
        """The names end to end, as UTF-8."""
        return self._names

    @property
    def ends(self) -> IntArray:
        """(shards + 1,) where each name ends; the first is 0."""
        return self._ends

    @property
    def is_remote(self) -> bool:
        """Whether any shard is a URL."""
        return is_remote(self._prefix) or (not self._prefix and any(map(is_remote, self)))

    def key(self) -> str:
        """16 hex digits that tell sets of names apart, wherever the corpus lies."""
        digest = hashlib.blake2b(self._ends.astype("<i8").tobytes(), digest_size=8)
        digest.update(np.ascontiguousarray(self._names).data)
        return digest.hexdigest()


def find_shards(shards: ShardsLike | Corpus) -> Corpus:
    """Resolve what the user gave: a path, glob, brace range, folder, `name@128`, URL, or a list of those.

    Raises FileNotFoundError (what was looked for, and what there is) when a pattern has no match or a listed file is missing,
    ValueError when a shard is there twice or nothing was given, TypeError for anything but text and paths.

    >>> find_shards("no/such/corpus-*.tfrecord")    # doctest: +ELLIPSIS
    Traceback (most recent call last):
    FileNotFoundError: 'no/such/corpus-*.tfrecord': no shard matches; folder ... holds ...
    """
    if isinstance(shards, Corpus):
        return shards
    patterns = _as_patterns(shards)
    if not patterns:
        raise ValueError("shards: an empty list; give a path, a glob, a folder, or a list of those")
    urls = [pattern for pattern in patterns if is_remote(pattern)]
    found = [path for pattern in patterns if not is_remote(pattern) for path in _find_local(pattern)]
    if urls:
        from .listing import find_remote

        found += find_remote(urls)
    return Corpus.of_paths(found)


def is_index_name(path: str) -> bool:
    """Whether a path names an index of ours."""
    return path.endswith(INDEX_ENDING)


def _as_patterns(shards: ShardsLike) -> list[str]:
    items = [shards] if isinstance(shards, str | PathLike) else shards
    if isinstance(items, bytes) or not isinstance(items, Iterable):
        raise TypeError(f"shards: a path, a pattern or a list of those is needed, got {type(items).__name__}")
    patterns = [os.fspath(item) if isinstance(item, str | PathLike) else item for item in items]
    for pattern in patterns:
        if not isinstance(pattern, str):
            raise TypeError(f"shards: every entry must be text or a path, got {type(pattern).__name__} {pattern!r:.60}")
        if not pattern:
            raise ValueError("shards: an entry is empty text; give a path, a glob or a folder")
        if "\0" in pattern or not _is_encodable(pattern):
            raise ValueError(f"shards: {pattern!r:.60} holds a character that no path has; give a path, a glob or a folder")
    return list(map(local_path, patterns))


def _is_encodable(path: str) -> bool:
    try:
        _encode(path)
    except UnicodeEncodeError:
        return False
    return True


def _find_local(pattern: str) -> list[str]:
    """The absolute paths of the shards that one entry of the user's stands for."""
    path = os.path.expanduser(pattern)
    if os.path.lexists(path):
        return _take_path(path)
    paths = expand_pattern(path)
    found: list[str] = []
    missing: list[str] = []
    for one in paths:
        if has_wildcards(one):
            matched = match_files(one)
            if not matched:
                raise FileNotFoundError(f"{one!r}: no shard matches; {describe_near(one)}")
            found += matched
        elif os.path.lexists(one):
            found += _take_path(one)
        else:
            missing.append(one)
    if missing:
        raise FileNotFoundError(_describe_missing(pattern, missing, len(paths)))
    return [os.path.abspath(one) for one in found]


def _take_path(path: str) -> list[str]:
    """A path that exists: a shard, or the shards of a folder."""
    path = os.path.abspath(path)
    if os.path.isdir(path):
        shards = folder_shards(path)
        if not shards:
            raise FileNotFoundError(
                f"{path!r}: no visible file of this folder has .tfrecord, .tfrecords or .tfrec in its name; "
                f"{describe_near(os.path.join(path, '*'))}; give a glob, such as {os.path.join(path, suggest_glob(path))!r}"
            )
        return shards
    os.stat(path)  # a dangling link, a folder that may not be entered: the operating system's own error
    if is_index_name(path):
        raise ValueError(f"{path!r}: an index of shardmix, not a shard; it is given as index=")
    if not os.path.isfile(path):
        raise ValueError(f"{path!r}: neither a file nor a folder; a shard must be read more than once and from any place")
    return [path]


def _describe_missing(pattern: str, missing: list[str], number: int) -> str:
    which = f"{len(missing)} of its {number} shards are missing, the first is {missing[0]!r}" if number > 1 else "no such shard"
    return f"{pattern!r}: {which}; {describe_near(missing[0])}"


def _common_bytes(first: bytes, last: bytes) -> int:
    """How many bytes the folders of the first and the last of sorted paths have in common, and so those of all between."""
    common = next((place for place, (a, b) in enumerate(zip(first, last, strict=False)) if a != b), min(len(first), len(last)))
    return first.rfind(b"/", 0, common) + 1


def _encode(path: str) -> bytes:
    return path.replace(os.sep, "/").encode("utf-8", "surrogateescape")


def _decode(path: bytes) -> str:
    return path.decode("utf-8", "surrogateescape")
