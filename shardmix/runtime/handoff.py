"""How a chunk comes back: reused shared memory, written by one worker, read by the main process.

Rule 1: a chunk is one span of one slab, however many features it has; nothing of it is pickled but its structure, once.
Rule 2: a slab is anonymous: it has no name in any folder, so nothing is left of it whatever dies first.
Rule 3: a worker keeps `num_slabs` slabs and reuses them in turn. A slab that is too small is replaced by a larger one; the main
process is told where the new one is only when the request shows that it does not know it.

The layout of a chunk: the arrays; the table, two int64 an array (offset in bytes, items along the first axis); the pickled
structure. Each is aligned to 64 bytes.

Note "Descriptors through /proc". The main process opens /proc/<worker>/fd/<descriptor> instead of having the descriptor sent.
multiprocessing's DupFd does the same by a thread, a listening socket and a temporary folder in every worker, and the folder stays
when the worker is killed.
"""

from __future__ import annotations

import math
import mmap
import os
import pickle
import sys
import weakref
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.context import assert_spawning
from multiprocessing.reduction import DupFd
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray

from ..format.columns import Column, IntArray, Shape
from .samples import Structure

ALIGNMENT = 64
FIRST_SLAB_BYTES = 1 << 16
HAS_ANONYMOUS_FILES = sys.platform == "linux"

Bytes = NDArray[np.uint8]
Address = tuple[int, int, int] | torch.Tensor  # (process, descriptor, bytes) where there are anonymous files


class SharedBytes:
    """Anonymous shared memory of `num_bytes` bytes; `array` is a view of it. Reaches other processes by its `address`."""

    def __init__(self, num_bytes: int) -> None:
        if HAS_ANONYMOUS_FILES:
            self._own(os.memfd_create("shardmix"))
            # allocated now: a full memory is an error here, not a bus error at the first write
            os.posix_fallocate(self._descriptor, 0, num_bytes)
            self.array: Bytes = np.frombuffer(mmap.mmap(self._descriptor, num_bytes), np.uint8)
        else:
            self._tensor = torch.empty(num_bytes, dtype=torch.uint8).share_memory_()  # type: ignore[no-untyped-call]
            self.array = self._tensor.numpy()

    def _own(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._close = weakref.finalize(self, os.close, descriptor)

    @property
    def address(self) -> Address:
        """Where another process of this user finds it, for as long as this process keeps it open."""
        if HAS_ANONYMOUS_FILES:
            return os.getpid(), self._descriptor, self.array.size
        tensor: torch.Tensor = self._tensor
        return tensor

    def close(self) -> None:
        """Close the descriptor; the memory stays for as long as a view of it lives."""
        if HAS_ANONYMOUS_FILES:
            self._close()

    def __reduce__(self) -> tuple[Any, ...]:
        if not HAS_ANONYMOUS_FILES:
            return _rebuild_tensor, (self._tensor,)
        assert_spawning(self)  # only as an argument of a process that is being started
        return _rebuild_anonymous, (DupFd(self._descriptor), self.array.size)


def attach(address: Address) -> Bytes:
    """A view of shared memory that another process made."""
    if isinstance(address, torch.Tensor):
        tensor_view: Bytes = address.numpy()
        return tensor_view
    process, descriptor, num_bytes = address
    opened = os.open(f"/proc/{process}/fd/{descriptor}", os.O_RDWR | os.O_CLOEXEC)
    try:
        return np.frombuffer(mmap.mmap(opened, num_bytes), np.uint8)
    finally:
        os.close(opened)


def _rebuild_anonymous(duplicate: Any, num_bytes: int) -> SharedBytes:
    shared = SharedBytes.__new__(SharedBytes)
    shared._own(duplicate.detach())
    shared.array = np.frombuffer(mmap.mmap(shared._descriptor, num_bytes), np.uint8)
    return shared


def _rebuild_tensor(tensor: torch.Tensor) -> SharedBytes:
    shared = SharedBytes.__new__(SharedBytes)
    shared._tensor, shared.array = tensor, tensor.numpy()
    return shared


class PrivateBytes:
    """Ordinary memory with the face of SharedBytes, for num_workers=0."""

    def __init__(self, num_bytes: int) -> None:
        self.array: Bytes = np.empty(num_bytes, np.uint8)
        self.address: Address = (os.getpid(), -1, num_bytes)

    def close(self) -> None:
        """Nothing to give back."""


Memory = SharedBytes | PrivateBytes


class Chunk(NamedTuple):
    """What one worker contributes to a few consecutive batches: rows of columns, over the slab's memory."""

    structure: Structure
    columns: Sequence[Column]
    kept: IntArray  # (rows,) which of the asked-for rows they are, ascending
    source: IntArray  # (rows, 4) shard, record, lane, is_pad of each; (0, 4) where nobody asked for it

    @property
    def num_rows(self) -> int:
        """Rows that are there: the asked-for ones less the holes."""
        return len(self.kept)


class Packed(NamedTuple):
    """Where a chunk lies in its slab; all that a message says of it."""

    address: Address | None  # None: the request showed that the main process knows the slab
    slab_bytes: int
    table: int  # offset of the table in bytes; the structure follows it
    num_numbers: int
    num_structure_bytes: int
    memory: Bytes | None = None  # the slab itself, where worker and main process are one


class SlabWriter:
    """One slab of a worker: gives out arrays inside it, and closes the chunk with its table and structure."""

    def __init__(self, make_memory: Callable[[int], Memory]) -> None:
        self._make_memory = make_memory
        self._memory = make_memory(FIRST_SLAB_BYTES)
        self._replaced: list[Bytes] = []  # memory of the chunk at hand that became too small
        self._used = 0

    def begin(self) -> None:
        """Forget the chunk before; its memory is used again."""
        self._replaced.clear()
        self._used = 0

    @property
    def num_bytes(self) -> int:
        """Bytes of the chunk at hand."""
        return self._used

    def allocate(self, requests: Sequence[tuple[Shape, DTypeLike]]) -> list[NDArray[np.generic]]:
        """Arrays inside the slab: an `Allocate`."""
        places, end = [], self._used
        for shape, dtype in requests:
            kind = np.dtype(dtype)
            start = align(end)
            end = start + math.prod(shape) * kind.itemsize
            places.append((shape, kind, start))
        if end > self._memory.array.size:
            larger = self._make_memory(round_to_pages(end + end // 4))  # where there is no memory, what there was stays
            self._replaced.append(self._memory.array)
            self._memory.close()
            self._memory = larger
        self._used = end
        memory = self._memory.array
        return [np.ndarray(shape, kind, memory, start) for shape, kind, start in places]

    def finish(self, chunk: Chunk, structure_bytes: bytes) -> Packed:
        """Append what is not in the slab yet, the table and the structure."""
        arrays = [*_arrays_of(chunk)]
        found = [self._find(array) for array in arrays]
        strangers = [array for array, place in zip(arrays, found, strict=True) if place is None]
        ends: list[tuple[Shape, DTypeLike]] = [((2 * len(arrays),), np.int64), ((len(structure_bytes),), np.uint8)]
        *homes, table, text = self.allocate([*((array.shape, array.dtype) for array in strangers), *ends])
        memory, moved = self._memory.array, iter(homes)
        numbers: list[int] = []
        for array, place in zip(arrays, found, strict=True):
            if place is None:
                home = next(moved)
                home[...] = array
                start = _offset_in(memory, home)
            else:
                start, inside = place
                if inside is not memory and array.nbytes:
                    memory[start : start + array.nbytes] = array.reshape(-1).view(np.uint8)
            numbers += (start, len(array))
        table[:] = numbers
        text[:] = np.frombuffer(structure_bytes, np.uint8)
        start_of_table = _offset_in(memory, table)
        here = memory if isinstance(self._memory, PrivateBytes) else None
        return Packed(self._memory.address, memory.size, start_of_table, len(numbers), len(structure_bytes), here)

    def close(self) -> None:
        """Give the memory back as soon as no view of it is left."""
        self._replaced.clear()
        self._memory.close()

    def _find(self, array: NDArray[np.generic]) -> tuple[int, Bytes] | None:
        """Where in this slab, or in one that it replaced, an array lies."""
        if not array.flags.c_contiguous:
            return None
        for memory in (self._memory.array, *self._replaced):
            start = _offset_in(memory, array)
            if 0 <= start <= memory.size - array.nbytes:
                return start, memory
        return None


def read_chunk(memory: Bytes, packed: Packed, structure: Structure) -> Chunk:
    """The chunk that lies in a slab, as views of it."""
    end = packed.table + 8 * packed.num_numbers
    numbers = iter(memory[packed.table : end].view(np.int64).tolist())

    def view(dtype: DTypeLike, tail: Shape) -> NDArray[Any]:
        start, items = next(numbers), next(numbers)
        return np.ndarray((items, *tail), dtype, memory, start)

    kept, source = view(np.int64, ()), view(np.int64, (4,))
    columns = [
        Column(spec, view(spec.dtype, spec.item_shape), tuple([view(np.int64, ()) for _ in range(spec.levels)]))
        for spec in structure.specs
    ]
    return Chunk(structure, columns, kept, source)


class StructureReader:
    """Structures by their pickled bytes: a chunk's structure is unpickled only when it is another than before."""

    def __init__(self) -> None:
        self._bytes = b""
        self._structure: Structure | None = None

    def read(self, memory: Bytes, packed: Packed) -> Structure:
        """The structure of the chunk in a slab."""
        start = align(packed.table + 8 * packed.num_numbers)
        text = memory[start : start + packed.num_structure_bytes].tobytes()
        if self._structure is None or text != self._bytes:
            self._bytes, self._structure = text, pickle.loads(text)
        return self._structure


def align(offset: int) -> int:
    """The next multiple of ALIGNMENT."""
    return -(-offset // ALIGNMENT) * ALIGNMENT


def round_to_pages(num_bytes: int) -> int:
    """The next multiple of the page size."""
    return -(-num_bytes // mmap.PAGESIZE) * mmap.PAGESIZE


def _arrays_of(chunk: Chunk) -> Iterator[NDArray[np.generic]]:
    yield from (chunk.kept, chunk.source)
    for column in chunk.columns:
        yield column.values
        yield from column.lengths


def _offset_in(memory: Bytes, array: NDArray[np.generic]) -> int:
    return int(array.__array_interface__["data"][0] - memory.__array_interface__["data"][0])
