"""One shard while it is written: a hidden file that appears under its final name when it is whole, or not at all.

Rule 1: the hidden file lies in the folder of the final one, so that taking the final name is one atomic step.
Rule 2: the file is open only while bytes go out, so any number of shards can be written side by side.
Rule 3: the same records give the same bytes (gzip with a time stamp of 0).
"""

from __future__ import annotations

import errno
import os
import secrets
import zlib
from array import array
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import numpy as np

from .framing import FRAME_BYTES, frame_footer, frame_header, frame_record
from .records import Bytes, IntArray

_WBITS = {"gzip": 31, "zlib": 15}
_SMALL_PAYLOAD_BYTES = 1 << 16  # up to here one joined frame costs less than three pieces


class ShardOutput:
    """The frames of one shard on their way to disk.

    output = ShardOutput("out", "train-00000", "none", buffer_bytes=1 << 20)
    output.append(memoryview(b"payload"))
    output.finish()
    output.publish("out/train-00000-of-00001")
    """

    def __init__(self, folder: str, name: str, compression: str, *, buffer_bytes: int) -> None:
        self.lengths = array("q")  # payload bytes of each record
        self.num_bytes = 0  # of the frames, before compression
        self.stamp = (0, "")  # what `stat_shard` says of the file that was published, whatever has its name by now
        self._buffer = bytearray()
        self._buffer_bytes = buffer_bytes
        self._compressor = None if compression == "none" else zlib.compressobj(wbits=_WBITS[compression])
        self._hidden_path = os.path.join(folder, f".{name}.{secrets.token_hex(4)}.tmp")
        self._creating = os.O_CREAT | os.O_EXCL  # until there is a file
        self._status: os.stat_result | None = None  # of the finished file

    def create(self) -> None:
        """Make the hidden file now, so that a folder that cannot be written is told of before the first record."""
        with self._appending():
            pass

    def append(self, payload: memoryview) -> None:
        """Write one record. Raises OSError naming the file when the disk is full."""
        num_bytes = len(payload)
        if num_bytes <= _SMALL_PAYLOAD_BYTES:
            self._put(frame_record(payload))
        else:
            self._put(frame_header(num_bytes))
            self._put(payload)
            self._put(frame_footer(payload))
        self.lengths.append(num_bytes)
        self.num_bytes += num_bytes + FRAME_BYTES

    def append_frames(self, frames: Bytes, lengths: IntArray) -> None:
        """Write records that are framed already, end to end; `lengths` are the bytes of their payloads."""
        self._put(frames.data)
        self.lengths.frombytes(np.ascontiguousarray(lengths, np.int64).tobytes())
        self.num_bytes += len(frames)

    def finish(self) -> None:
        """Everything to disk; nothing can be appended any more."""
        if self._compressor is not None:
            self._buffer += self._compressor.flush()
            self._compressor = None
        with self._appending() as descriptor:
            _write_all(descriptor, self._buffer)
            os.fsync(descriptor)
        self._buffer = bytearray()

    def publish(self, path: str) -> None:
        """Give the finished file its final name, in place of a file that has it."""
        self._status = os.stat(self._hidden_path)
        self.stamp = self._status.st_size, str(self._status.st_mtime_ns)
        os.replace(self._hidden_path, path)

    def take_back(self, path: str) -> None:
        """Remove the file from its final name, if it came so far. A file of others is left alone."""
        with suppress(FileNotFoundError):
            if self._status is not None and os.path.samestat(self._status, os.lstat(path)):
                os.unlink(path)

    def discard(self) -> None:
        """Remove what was written under the hidden name, if it is still there."""
        with suppress(FileNotFoundError):
            os.unlink(self._hidden_path)

    def _put(self, piece: bytes | memoryview) -> None:
        """Compress a piece, and let the buffer out when it is full."""
        data = piece if self._compressor is None else self._compressor.compress(piece)
        if len(self._buffer) + len(data) < self._buffer_bytes:
            self._buffer += data
            return
        with self._appending() as descriptor:
            _write_all(descriptor, self._buffer)
            _write_all(descriptor, data)
        self._buffer = bytearray()

    @contextmanager
    def _appending(self) -> Iterator[int]:
        """The hidden file's descriptor; an OSError inside names the file and the record."""
        flags = os.O_WRONLY | os.O_APPEND | getattr(os, "O_CLOEXEC", 0) | self._creating
        try:
            descriptor = os.open(self._hidden_path, flags, 0o666)
            self._creating = 0
            try:
                yield descriptor
            finally:
                os.close(descriptor)
        except OSError as error:
            raise OSError(error.errno, f"{error.strerror} (writing record {len(self.lengths)})", self._hidden_path) from error


def sync_folder(folder: str) -> None:
    """Make the names in a folder outlive a power cut, where that can be done."""
    try:
        descriptor = os.open(folder or ".", os.O_RDONLY)
    except PermissionError:  # a folder that may be written and not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):  # a file system that cannot do this for folders
            raise
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of the data; one call may take only a part of it."""
    view = memoryview(data)
    while len(view):
        view = view[os.write(descriptor, view) :]
