"""Shard patterns → a Corpus: the sorted list of the files, held as arrays.

A path, glob, brace range `{00000..00127}`, directory, `name@128`, a list of those, fsspec URLs. Sorted, so listing order never
matters; a duplicate, or no match, is an error.
"""

from __future__ import annotations

from collections.abc import Sequence
from os import PathLike

ShardsLike = str | PathLike[str] | Sequence[str | PathLike[str]]


class Corpus:
    """The shards of a data set, in listing order. A million paths are one bytes object and one array, not a million strings."""

    def __len__(self) -> int:
        raise NotImplementedError

    def path(self, shard: int) -> str:
        """The path or URL of one shard."""
        raise NotImplementedError

    def name(self, shard: int) -> str:
        """Its name below the common parent of all shards, with forward slashes: what the state's digest is made of."""
        raise NotImplementedError

    @property
    def parent(self) -> str:
        """The common parent folder (or URL) of all shards."""
        raise NotImplementedError


def find_shards(shards: ShardsLike) -> Corpus:
    """Resolve what the user gave."""
    raise NotImplementedError
