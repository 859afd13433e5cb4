"""Slabs: what a worker writes is what the main process reads, whatever grew, moved or came from elsewhere on the way."""

from __future__ import annotations

import os
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from shardmix.format.columns import Column, ColumnSpec
from shardmix.runtime.handoff import (
    ALIGNMENT,
    FIRST_SLAB_BYTES,
    Chunk,
    PrivateBytes,
    SharedBytes,
    SlabWriter,
    StructureReader,
    attach,
    read_chunk,
)
from shardmix.runtime.samples import Structure

DENSE = ColumnSpec("x", "float32", (2,), 0, False)
RAGGED = ColumnSpec("words", "uint8", (), 2, True)
STRUCTURE = Structure((DENSE, RAGGED), ("array", "ragged"), None)
MAKERS = [PrivateBytes, SharedBytes]

Make = Callable[[int], Any]


def ints(*numbers: int) -> Any:
    return np.array(numbers, np.int64)


def chunk_of(rows: int, allocate: Any = None) -> Chunk:
    """Row i: x = (i, i), words = i words of i letters. The columns lie where `allocate` says, else in memory of their own."""
    counts = np.arange(rows, dtype=np.int64)
    lengths = np.repeat(counts, counts)
    shapes = [((rows, 2), "float32"), ((rows,), "int64"), ((len(lengths),), "int64"), ((int(lengths.sum()),), "uint8")]
    arrays = allocate(shapes) if allocate else [np.empty(*shape) for shape in shapes]
    x, outer, inner, letters = arrays
    x[:] = counts[:, None]
    outer[:], inner[:], letters[:] = counts, lengths, np.arange(len(letters)) % 251
    return Chunk(STRUCTURE, [Column(DENSE, x, ()), Column(RAGGED, letters, (outer, inner))], counts, np.empty((0, 4), np.int64))


def through(writer: SlabWriter, chunk: Chunk, memory: Any = None) -> Chunk:
    """The chunk as the main process sees it."""
    packed = writer.finish(chunk, pickle.dumps(chunk.structure))
    memory = writer._memory.array if memory is None else memory
    return read_chunk(memory, packed, StructureReader().read(memory, packed))


def assert_same(got: Chunk, expected: Chunk) -> None:
    assert got.structure == expected.structure
    assert got.kept.tolist() == expected.kept.tolist()
    assert got.source.tolist() == expected.source.tolist()
    for column, right in zip(got.columns, expected.columns, strict=True):
        assert column.spec == right.spec
        assert column.values.tolist() == right.values.tolist()
        assert [level.tolist() for level in column.lengths] == [level.tolist() for level in right.lengths]


@pytest.mark.parametrize("make", MAKERS)
@pytest.mark.parametrize("rows", [0, 1, 7, 60])
def test_a_chunk_written_in_the_slab_is_read_without_a_copy(make: Make, rows: int) -> None:
    writer = SlabWriter(make)
    for _ in range(2):
        writer.begin()
        got = through(writer, chunk_of(rows, writer.allocate))
        assert_same(got, chunk_of(rows))
        assert np.shares_memory(got.columns[0].values, writer._memory.array) == (rows > 0)
    writer.close()


@pytest.mark.parametrize("make", MAKERS)
def test_arrays_from_elsewhere_are_copied_in(make: Make) -> None:
    writer = SlabWriter(make)
    writer.begin()
    strangers = chunk_of(9)
    strided = strangers.columns[0]._replace(values=np.repeat(strangers.columns[0].values, 2, axis=0)[::2])
    got = through(writer, strangers._replace(columns=[strided, strangers.columns[1]]))
    assert_same(got, chunk_of(9))
    writer.close()


@pytest.mark.parametrize("make", MAKERS)
def test_a_slab_that_is_too_small_is_replaced_and_nothing_of_the_chunk_is_lost(make: Make) -> None:
    writer = SlabWriter(make)
    writer.begin()
    small = chunk_of(5, writer.allocate)
    first = writer._memory.array
    (large,) = writer.allocate([((FIRST_SLAB_BYTES,), "uint8")])
    assert writer._memory.array is not first
    large[:] = 0
    assert_same(through(writer, small), chunk_of(5))
    writer.begin()
    kept = writer._memory.array
    assert_same(through(writer, chunk_of(5, writer.allocate)), chunk_of(5))
    assert writer._memory.array is kept  # large enough from now on
    writer.close()


def test_everything_is_aligned() -> None:
    writer = SlabWriter(PrivateBytes)
    writer.begin()
    arrays = writer.allocate([((3,), "uint8"), ((5,), "int64"), ((1, 2), "float32")])
    starts = [array.__array_interface__["data"][0] - writer._memory.array.__array_interface__["data"][0] for array in arrays]
    assert [start % ALIGNMENT for start in starts] == [0, 0, 0]


def test_a_message_says_where_the_chunk_lies_and_no_more_for_many_features() -> None:
    def message_bytes(num_features: int) -> int:
        specs = tuple(ColumnSpec(f"feature {j}", "int64", (), 0, False) for j in range(num_features))
        structure = Structure(specs, ("scalar",) * num_features, None)
        writer = SlabWriter(SharedBytes)
        writer.begin()
        arrays = writer.allocate([((4,), "int64")] * num_features)
        columns = [Column(spec, array, ()) for spec, array in zip(specs, arrays, strict=True)]
        packed = writer.finish(Chunk(structure, columns, np.arange(4), np.empty((0, 4), np.int64)), pickle.dumps(structure))
        writer.close()
        return len(pickle.dumps(packed))

    assert message_bytes(200) <= message_bytes(2) + 8


def test_a_structure_is_unpickled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    writer, reader = SlabWriter(PrivateBytes), StructureReader()
    structures = []
    for _ in range(3):
        writer.begin()
        packed = writer.finish(chunk_of(3, writer.allocate), pickle.dumps(STRUCTURE))
        structures.append(reader.read(writer._memory.array, packed))
    assert structures[0] == STRUCTURE
    assert structures[1] is structures[0]
    assert structures[2] is structures[0]


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous files are Linux's")
def test_another_process_finds_shared_bytes_by_their_address() -> None:
    shared = SharedBytes(100)
    pid = os.fork()
    if pid == 0:
        attach(shared.address)[:5] = [1, 2, 3, 4, 5]
        os._exit(0)
    assert os.waitpid(pid, 0)[1] == 0
    assert shared.array[:5].tolist() == [1, 2, 3, 4, 5]
    view = attach(shared.address)
    shared.close()
    shared.close()
    assert view[:5].tolist() == [1, 2, 3, 4, 5]  # for as long as somebody looks at it
    with pytest.raises(OSError):
        attach(shared.address)


@pytest.mark.skipif(sys.platform != "linux", reason="anonymous files are Linux's")
def test_shared_bytes_have_no_name_and_end_with_their_owner() -> None:
    before = set(os.listdir("/dev/shm"))
    shared = SharedBytes(10)
    descriptor = shared.address[1]
    assert os.readlink(f"/proc/self/fd/{descriptor}").startswith("/memfd:shardmix")
    assert {name for name in set(os.listdir("/dev/shm")) - before if "shardmix" in name} == set()
    with pytest.raises(RuntimeError, match="pickl|inherit"):
        pickle.dumps(shared)  # it travels only to a process that is being started
    del shared
    with pytest.raises(OSError):
        os.fstat(descriptor)


@pytest.mark.parametrize("make", MAKERS)
def test_a_slab_that_cannot_grow_stays_as_it_was(make: Make) -> None:
    def make_or_fail(num_bytes: int) -> Any:
        if num_bytes > 10**6:
            raise OSError("no memory left")
        return make(num_bytes)

    writer = SlabWriter(make_or_fail)
    writer.begin()
    with pytest.raises(OSError, match="no memory left"):
        writer.allocate([((10**6,), "uint8")])
    writer.begin()
    expected = chunk_of(7)
    packed = writer.finish(expected, pickle.dumps(expected.structure))
    memory = writer._memory.array if packed.memory is not None else attach(writer._memory.address)
    assert_same(read_chunk(memory, packed, StructureReader().read(memory, packed)), expected)
    writer.close()
