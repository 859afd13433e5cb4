"""Shards behind a URL, through fsspec: the same interface as a local file.

Imported only for a path that is a URL. Knows nothing of compression or frames.
"""

from __future__ import annotations

import errno
import os
from typing import Any

from .records import Bytes

# What file systems call what changes with the content, the best first.
_TAGS = ("ETag", "etag", "md5Hash", "mtime", "LastModified", "last_modified", "updated", "created")


class RemoteFile:
    """The stored bytes of one URL (a `local.RawFile`)."""

    def __init__(self, url: str) -> None:
        filesystem, path = resolve_url(url)
        size = _info(filesystem, path, url)["size"]
        if size is None:
            raise OSError(errno.ESPIPE, "the server does not tell the size; copy the shard to a file first", url)
        self.size = int(size)
        self._handle: Any = filesystem.open(path, "rb")

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end."""
        view = out.data
        done = 0
        self._handle.seek(offset)
        while done < len(view):
            num_bytes = self._handle.readinto(view[done:])
            if not num_bytes:
                break
            done += num_bytes
        return done

    def close(self) -> None:
        """Give back the handle. Closing twice is allowed."""
        self._handle.close()


def stat_remote(url: str) -> tuple[int, str]:
    """(size in bytes as stored, etag, or else time of the last change, or else "")."""
    facts = _info(*resolve_url(url), url)
    tags = (facts.get(name) for name in _TAGS)
    return int(facts["size"]), str(next((tag for tag in tags if tag), ""))


def resolve_url(url: str) -> tuple[Any, str]:
    """The file system of a URL, and the path in it. Raises ImportError without fsspec."""
    try:
        from fsspec.core import url_to_fs
    except ImportError as error:
        raise ImportError(f"{url}: reading URLs needs fsspec; pip install 'shardmix[remote]'") from error
    filesystem, path = url_to_fs(url)
    return filesystem, str(path)


def _info(filesystem: Any, path: str, url: str) -> Any:
    """What the file system says of a shard; an OSError names the URL, as no file system does."""
    try:
        facts = filesystem.info(path)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), url) from None
    if facts.get("type") == "directory":
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), url)
    return facts
