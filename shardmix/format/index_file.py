"""The file of an index: a header, the checksums of its pages, and the columns, each begun at a multiple of 8.

    bytes 0-7    "shmix" 0x00 CR LF: a transfer as text breaks it
    8-11         version of the layout, uint32; all numbers are little-endian
    12-15        number of columns, uint32
    16-31        fingerprint: blake2b with 16 bytes over everything from byte 32 to the end of the checksums
    32-39        bytes of the whole file, uint64
    40-…         (offset, bytes) of every column, uint64 each
    then         CRC-32 of every page of 16 KiB of every column, uint32; the last page of a column is shorter

Rule 1: a file that is cut, damaged or of another version is refused with the reason; nothing of it is believed.
Rule 2: all columns are checked when the file is opened, but for the deltas of a large index: a page of those when first used.
Rule 3: a file is replaced as a whole (`os.replace`), never changed, so that who has mapped it goes on with what it was.
Rule 4: a file has its fingerprint for a name: of equal fingerprints one is as good as the other.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import secrets
import stat
import struct
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from .index_table import STRIDE, IndexColumns, IndexTable
from .records import Bytes

MAGIC = b"shmix\0\r\n"
VERSION = 1
PAGE_BYTES = 1 << 14
CHECKED_AT_ONCE_BYTES = 1 << 26  # of deltas; more are checked page by page
ABANDONED_SECONDS = 24 * 3600  # age of an unfinished file that nobody can still be writing

_HEADER = struct.Struct("<8sII16sQ")
_FINGERPRINTED = 32
_BYTES = ("names", "widths", "compressions", "deltas", "damages")
_DTYPES = {name: "u1" if name in _BYTES else "<i8" for name in IndexColumns._fields}
_DELTAS = IndexColumns._fields.index("deltas")


class IndexFileError(Exception):
    """The file is not an index that can be used; the message says why. Never leaves the package: the index is built anew."""


class IndexFile:
    """An index file that is mapped."""

    def __init__(self, path: str) -> None:
        """Map and check a file. Raises IndexFileError when it is not a sound index, OSError when it cannot be read."""
        self.path = path
        self._data = _map_file(path)
        self.fingerprint, sections, checksums = _read_header(self._data)
        self._checksums = _split_checksums(checksums, sections)
        self._columns = [
            _view_column(self._data, name, *section) for name, section in zip(IndexColumns._fields, sections, strict=True)
        ]
        self._sound_pages = np.zeros(len(self._checksums[_DELTAS]), np.bool_)
        for column, array in enumerate(self._columns):
            if column != _DELTAS or array.nbytes <= CHECKED_AT_ONCE_BYTES:
                self._check_pages(column, 0, len(self._checksums[column]))
        self.table = IndexTable(IndexColumns(*self._columns))
        mismatch = self.table.describe_mismatch()
        if mismatch is not None:
            raise IndexFileError(mismatch)

    @property
    def is_sound(self) -> bool:
        """Whether all of it was checked."""
        return bool(self._sound_pages.all())

    def check_records(self, shard: int, first: int, stop: int) -> None:
        """Raise IndexFileError unless what is kept of these records, and of those before in their stride, is sound."""
        start, end = self.table.delta_span(shard, first // STRIDE * STRIDE, stop)
        pages = slice(start // PAGE_BYTES, _num_pages(end))
        if not self._sound_pages[pages].all():
            self._check_pages(_DELTAS, pages.start, pages.stop)

    def is_current(self) -> bool:
        """Whether the path still leads to the same content."""
        try:
            return read_fingerprint(self.path) == self.fingerprint
        except (OSError, IndexFileError):
            return False

    def _check_pages(self, column: int, first: int, stop: int) -> None:
        data = _view_bytes(self._columns[column])
        for page in range(first, stop):
            if zlib.crc32(data[page * PAGE_BYTES : (page + 1) * PAGE_BYTES]) != self._checksums[column][page]:
                raise IndexFileError(f"page {page} of its {IndexColumns._fields[column]} is damaged")
        if column == _DELTAS:
            self._sound_pages[first:stop] = True


def read_fingerprint(path: str) -> bytes:
    """The fingerprint that a file claims; empty when it is no index."""
    with _open_file(path) as file:
        header = file.read(_HEADER.size)
    return _HEADER.unpack(header)[3] if len(header) == _HEADER.size and header.startswith(MAGIC) else b""


def index_bytes(columns: IndexColumns) -> Iterator[bytes | memoryview]:
    """The pieces of the file of an index, in order."""
    arrays = [np.ascontiguousarray(column, _DTYPES[name]) for name, column in columns._asdict().items()]
    views = [_view_bytes(array) for array in arrays]
    checksums = np.concatenate([_checksums_of(view) for view in views])
    offset = _aligned(_HEADER.size + 16 * len(views) + checksums.nbytes)
    sections = b""
    for view in views:
        sections += struct.pack("<QQ", offset, view.nbytes)
        offset = _aligned(offset + view.nbytes)
    checked = struct.pack("<Q", offset) + sections + checksums.tobytes()
    fingerprint = hashlib.blake2b(checked, digest_size=16).digest()
    head = _HEADER.pack(MAGIC, VERSION, len(views), fingerprint, offset)[:_FINGERPRINTED] + checked
    yield head + _padding(len(head))
    for view in views:
        yield view
        yield _padding(view.nbytes)


def write_index_file(path: str, columns: IndexColumns) -> None:
    """Put an index under its name, whole or not at all.

    Raises OSError, with nothing left behind; a crash leaves a hidden file that the next writer removes a day later.
    """
    folder, name = os.path.split(path)
    _remove_abandoned(folder, name)
    unfinished = os.path.join(folder, f".{name.lstrip('.')}.{secrets.token_hex(8)}.unfinished")
    try:
        with open(unfinished, "xb") as file:
            for piece in index_bytes(columns):
                file.write(piece)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(unfinished)
        raise


def _remove_abandoned(folder: str, name: str) -> None:
    prefix = f".{name.lstrip('.')}."
    with os.scandir(folder) as entries:
        for entry in entries:
            if not (entry.name.startswith(prefix) and entry.name.endswith(".unfinished")):
                continue
            with suppress(FileNotFoundError):  # its writer, on another node, was faster
                if entry.stat(follow_symlinks=False).st_mtime < time.time() - ABANDONED_SECONDS:
                    os.unlink(entry.path)


def _open_file(path: str) -> BinaryIO:
    """Open an index to read. Anything else of its name is refused: a folder, and a pipe, which would make us wait for ever."""
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NONBLOCK", 0))
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return open(descriptor, "rb")
    os.close(descriptor)
    raise IndexFileError("it is no regular file")


def _map_file(path: str) -> Bytes:
    with _open_file(path) as file:
        if os.fstat(file.fileno()).st_size < _HEADER.size:
            raise IndexFileError("it is too short for a header")
        return np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)


def _read_header(data: Bytes) -> tuple[bytes, list[tuple[int, int]], Bytes]:
    """(fingerprint, (offset, bytes) of each column, the bytes of the checksums)."""
    magic, version, num_columns, fingerprint, file_bytes = _HEADER.unpack(data[: _HEADER.size].tobytes())
    if magic != MAGIC:
        raise IndexFileError("it is not an index of shardmix")
    if version != VERSION or num_columns != len(IndexColumns._fields):
        raise IndexFileError(f"it is of version {version}, and this shardmix reads version {VERSION}")
    if file_bytes != len(data):
        raise IndexFileError(f"it has {len(data)} bytes, and was written with {file_bytes}")
    end = _HEADER.size + 16 * num_columns
    numbers = data[_HEADER.size : end].view("<u8").tolist() if len(data) >= end else []
    sections = list(zip(numbers[::2], numbers[1::2], strict=True))
    checksum_bytes = 4 * sum(_num_pages(num_bytes) for _, num_bytes in sections)
    checksums = data[end : end + checksum_bytes]
    if not sections or len(checksums) != checksum_bytes:
        raise IndexFileError("its header is damaged")
    if hashlib.blake2b(data[_FINGERPRINTED : end + len(checksums)].data, digest_size=16).digest() != fingerprint:
        raise IndexFileError("its header is damaged")
    return fingerprint, sections, checksums


def _view_column(data: Bytes, name: str, offset: int, num_bytes: int) -> NDArray[Any]:
    dtype = np.dtype(_DTYPES[name])
    if num_bytes % dtype.itemsize or num_bytes > len(data) or offset > len(data) - num_bytes:
        raise IndexFileError(f"its {name} have no place in it")
    return data[offset : offset + num_bytes].view(dtype)


def _split_checksums(checksums: Bytes, sections: list[tuple[int, int]]) -> list[NDArray[np.uint32]]:
    ends = np.cumsum([_num_pages(num_bytes) for _, num_bytes in sections])
    return np.split(checksums.view("<u4"), ends[:-1])


def _checksums_of(data: memoryview) -> NDArray[np.uint32]:
    pages = range(0, len(data), PAGE_BYTES)
    return np.array([zlib.crc32(data[start : start + PAGE_BYTES]) for start in pages], "<u4")


def _view_bytes(array: NDArray[Any]) -> memoryview:
    return array.data.cast("B") if len(array) else memoryview(b"")


def _num_pages(num_bytes: int) -> int:
    return -(-num_bytes // PAGE_BYTES)


def _aligned(num_bytes: int) -> int:
    return num_bytes + -num_bytes % 8


def _padding(num_bytes: int) -> bytes:
    return bytes(-num_bytes % 8)
