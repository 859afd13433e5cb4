"""The stored bytes of a local file, read by position.

Rule 1: a file is read, never mapped: one that is cut while it is open gives fewer bytes, not a signal.
Rule 2: no seek, so no state that a forked process would share.
"""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from typing import Protocol

from .records import Bytes

ADVICE_BYTES = 1 << 17  # Linux reads no more ahead for one piece of advice, where a disk has its default settings


class RawFile(Protocol):
    """The bytes of a file as they are stored."""

    size: int

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end."""
        ...

    def close(self) -> None:
        """Give back what was opened. Closing twice is allowed."""
        ...


class LocalFile:
    """The stored bytes of one path (a `RawFile`)."""

    descriptor: int  # -1 when it is closed

    def __init__(self, path: str) -> None:
        self.descriptor = -1
        self._path = path
        self.descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
        status = os.fstat(self.descriptor)
        if not stat.S_ISREG(status.st_mode):
            self.close()
            if stat.S_ISDIR(status.st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise OSError(errno.ESPIPE, "not a regular file; a shard is read by position, copy it to a file first", path)
        self.size = status.st_size

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end."""
        done, error = read_at(self.descriptor, offset, out.data)
        if error:
            raise read_error(error, offset + done, self._path)
        return done

    def close(self) -> None:
        """Give back the descriptor. Closing twice is allowed."""
        descriptor, self.descriptor = self.descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)


def read_at(descriptor: int, offset: int, out: memoryview) -> tuple[int, int]:
    """Fill `out` from `offset` on; returns (the bytes read, errno or 0): fewer at the end of the file, or at an error."""
    done = 0
    try:
        while done < len(out):
            num_bytes = os.preadv(descriptor, [out[done:]], offset + done)
            if num_bytes == 0:
                break
            done += num_bytes
    except OSError as error:
        return done, error.errno or errno.EIO
    return done, 0


def read_error(number: int, place: int, path: str) -> OSError:
    """The error of a read that failed at byte `place`."""
    return OSError(number, f"{os.strerror(number)} (reading at byte {place})", path)


def advise(descriptor: int, offset: int, num_bytes: int) -> None:
    """Tell the system that bytes of a file will be read, where it listens: it begins to read them, and nobody waits."""
    if not hasattr(os, "posix_fadvise"):
        return
    with suppress(OSError):  # a file system that takes no advice; the read that follows has the error
        for done in range(0, num_bytes, ADVICE_BYTES):
            os.posix_fadvise(descriptor, offset + done, min(ADVICE_BYTES, num_bytes - done), os.POSIX_FADV_WILLNEED)
