"""Open a shard as random access to its (inflated) bytes: plain, gzip, zlib; local or through fsspec.

Rule 1: compression is told from the content, not from the name (docs/format.md).
Rule 2: reading forward is a stream; reading backward in a compressed shard inflates again from the nearest entry point.
Rule 3: a local path never imports fsspec.
"""

from __future__ import annotations

from typing import Protocol

from .records import Bytes

COMPRESSIONS = ("none", "gzip", "zlib")


class ShardFile(Protocol):
    """The bytes of one open shard, inflated. Not thread-safe: one user each."""

    path: str
    compression: str  # one of COMPRESSIONS
    size: int | None  # inflated bytes; None where only reading to the end would tell

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end. Raises CorruptShardError when the
        compressed stream is damaged."""
        ...

    def close(self) -> None:
        """Give back the descriptor. Closing twice is allowed."""
        ...


def open_shard(path: str, compression: str = "auto", *, entries: tuple[tuple[int, int], ...] = ()) -> ShardFile:
    """Open a shard. `entries`: (compressed offset, inflated offset) where gzip members begin, from the index."""
    raise NotImplementedError


def stat_shard(path: str) -> tuple[int, str]:
    """(size in bytes on disk, a tag that changes when the file does: mtime in ns, or etag)."""
    raise NotImplementedError
