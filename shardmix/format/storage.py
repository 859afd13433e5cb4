"""Open a shard as random access to its (inflated) bytes: plain, gzip, zlib; local or through fsspec.

Rule 1: compression is told from the content, not from the name: plain if the masked CRC of the first 8 bytes holds; else gzip if
they begin 1f 8b 08; else zlib if its header check holds; else plain, and damaged. (A sound plain shard may begin like zlib, with
78 01, when its first record has 376 bytes.)
Rule 2: reading forward is a stream; reading backward in a compressed shard inflates again from the nearest entry point
(inflate.py).
Rule 3: a local path never imports fsspec (remote.py).
"""

from __future__ import annotations

import os
from typing import Protocol

import numpy as np

from . import backend
from .framing import HEADER_BYTES, Damage
from .inflate import InflatedShard
from .local import LocalFile, RawFile
from .records import Bytes

COMPRESSIONS = ("none", "gzip", "zlib")
_LOCAL_SCHEME = "file://"


class ShardFile(Protocol):
    """The bytes of one open shard, inflated. Not thread-safe: one user each."""

    path: str
    compression: str  # one of COMPRESSIONS
    size_on_disk: int  # bytes as stored
    size: int | None  # inflated bytes; None where only reading to the end would tell
    size_limit: int  # never less than the inflated bytes: what a frame may claim at most

    @property
    def descriptor(self) -> int:
        """Of the open local file that holds just these bytes; -1 where there is none (compressed, remote, closed)."""
        ...

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end. Raises CorruptShardError when the
        compressed stream is damaged."""
        ...

    def read_sound(self, offset: int, out: Bytes) -> tuple[int, str | None]:
        """Like `read_into`, but returns the bytes before a damage of the compressed stream, and its text."""
        ...

    def entries(self) -> tuple[tuple[int, int], ...]:
        """(compressed offset, inflated offset) where inflating can begin, as far as known. None in a plain shard."""
        ...

    def close(self) -> None:
        """Give back the descriptor. Closing twice is allowed."""
        ...


def open_shard(path: str, compression: str | None = "auto", *, entries: tuple[tuple[int, int], ...] = ()) -> ShardFile:
    """Open a shard.

        shard = open_shard("train-00000.tfrecord")
        num_bytes = shard.read_into(0, np.empty(1024, np.uint8))

    compression: "auto" tells it from the content; "none" (also None, ""), "gzip", "zlib", in any case.
    entries: (compressed offset, inflated offset) where gzip members begin, from the index.

    Raises OSError when the file cannot be read, ImportError when a URL needs fsspec, ValueError for another `compression`.
    """
    compression = resolve_compression(compression)
    raw = _open_raw(path)
    try:
        if compression == "auto":
            compression = detect_compression(_read_start(raw))
        if compression == "none":
            return PlainShard(path, raw)
        return InflatedShard(path, raw, compression, entries)
    except BaseException:
        raw.close()
        raise


def resolve_compression(compression: str | None) -> str:
    """"auto", "none", "gzip" or "zlib", from what a user may give: these in any case, None and "" for "none"."""
    name = (compression or "none").lower() if compression is None or isinstance(compression, str) else None
    if name not in ("auto", *COMPRESSIONS):
        raise ValueError(f"compression_type is {compression!r}; it is 'auto', 'none' (or None), 'gzip' or 'zlib'")
    return name


def detect_compression(start: bytes) -> str:
    """Rule 1, from the first 12 bytes of a file, or all of a shorter one.

    >>> detect_compression(bytes.fromhex("1f8b0800"))
    'gzip'
    """
    if len(start) >= HEADER_BYTES:
        header = np.frombuffer(start[:HEADER_BYTES], np.uint8)
        scan = backend.scan_frames(header, remaining=2**62, verify="length")
        if scan.damage != Damage.LENGTH_CRC:
            return "none"
    if start[:3] == b"\x1f\x8b\x08":
        return "gzip"
    if len(start) >= 2 and start[0] & 0x0F == 8 and start[0] >> 4 <= 7 and (start[0] << 8 | start[1]) % 31 == 0:
        return "zlib"
    return "none"


def is_remote(path: str) -> bool:
    """Whether fsspec opens a path rather than the operating system: `s3://bucket/train.tfrecord`; a `file://` URL is local."""
    return "://" in path and not path.startswith(_LOCAL_SCHEME)


def local_path(path: str) -> str:
    """A path without the `file://` that it may begin with."""
    return path.removeprefix(_LOCAL_SCHEME)


def stat_shard(path: str) -> tuple[int, str]:
    """(size in bytes on disk, a tag that changes when the file does: mtime in ns, or etag)."""
    if is_remote(path):
        from .remote import stat_remote

        return stat_remote(path)
    status = os.stat(local_path(path))
    return status.st_size, str(status.st_mtime_ns)


class PlainShard:
    """A shard that is stored as it is."""

    compression = "none"

    def __init__(self, path: str, raw: RawFile) -> None:
        self.path = path
        self._raw = raw
        self.size_on_disk = raw.size
        self.size: int | None = raw.size
        self.size_limit = raw.size

    @property
    def descriptor(self) -> int:
        """That of a local file; -1 for a remote one."""
        return self._raw.descriptor if isinstance(self._raw, LocalFile) else -1

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end."""
        return self._raw.read_into(offset, out)

    def read_sound(self, offset: int, out: Bytes) -> tuple[int, str | None]:
        """`read_into`: a plain shard has no stream to be damaged."""
        return self._raw.read_into(offset, out), None

    def entries(self) -> tuple[tuple[int, int], ...]:
        """None are needed."""
        return ()

    def close(self) -> None:
        """Give back the descriptor. Closing twice is allowed."""
        self._raw.close()


def _open_raw(path: str) -> RawFile:
    """The stored bytes of a local path or a URL."""
    if is_remote(path):
        from .remote import RemoteFile

        return RemoteFile(path)
    return LocalFile(local_path(path))


def _read_start(raw: RawFile) -> bytes:
    """The first 12 bytes, or all of a shorter file."""
    start = np.empty(HEADER_BYTES, np.uint8)
    return start[: raw.read_into(0, start)].tobytes()
