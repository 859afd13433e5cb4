"""Slots: what the workers write is the batch itself, nobody else writes there while the user has it, and memory comes back."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shardmix import FixedLenFeature, MixLoader, ShardDataset, ShardWriter, build_index
from shardmix.format.columns import ColumnSpec
from shardmix.format.targets import ALIGNMENT, DenseLayout
from shardmix.runtime import assemble
from shardmix.runtime.assemble import Assembler
from shardmix.runtime.handoff import HAS_ANONYMOUS_FILES
from shardmix.runtime.rows import RowSource
from shardmix.runtime.shared_rows import Slot, SlotPool
from tests.runtime.loading import FEATURES, plain, write_corpus

pytestmark = pytest.mark.usefixtures("nothing_left")

PAGE = os.sysconf("SC_PAGE_SIZE")
KINDS = [pytest.param(True, marks=pytest.mark.skipif(not HAS_ANONYMOUS_FILES, reason="no memory without a name")), False]


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    return write_corpus(tmp_path / "corpus")


def make_loader(pattern: str, num_workers: int = 2, batch_size: int = 6, **options: Any) -> MixLoader:
    settings = {name: options.pop(name) for name in ("persistent_workers", "repeat", "drop_last") if name in options}
    options = {"features": FEATURES, "shuffle_buffer_size": 32, **options}
    return MixLoader(ShardDataset(pattern, **options), batch_size, num_workers=num_workers, **settings)


def through_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on no loader uses slots."""
    monkeypatch.setattr(Assembler, "takes_slots", False)


def pool_of(loader: MixLoader) -> SlotPool:
    pool = loader._keeper.slots.pool
    assert pool is not None
    return pool


def memories_of(loader: MixLoader) -> list[Any]:
    return [segment._memory for segment in pool_of(loader)._segments]


# --- Layout


def test_columns_lie_one_after_another_and_are_aligned() -> None:
    specs = [
        ColumnSpec("id", "int64", (), 0, False),
        ColumnSpec("name", "uint8", (), 1, True),
        ColumnSpec("point", "float32", (3,), 0, False),
    ]
    layout = DenseLayout(specs, 5)
    assert layout.offsets.tolist() == [0, 0, ALIGNMENT]
    assert (layout.num_bytes, layout.row_bytes) == (ALIGNMENT + 5 * 12, 8 + 12)
    ids, names, points = layout.arrays(np.zeros(layout.num_bytes, np.uint8), 4)
    assert ids is not None
    assert points is not None
    assert (ids.shape, names, points.shape) == ((4,), None, (4, 3))


# --- The pool


@pytest.mark.parametrize("is_shared", KINDS)
def test_slots_do_not_overlap_and_come_back(is_shared: bool) -> None:
    pool = SlotPool(100, is_shared)
    slots = pool.lease(3)
    for number, slot in enumerate(slots):
        slot.memory[:] = number
    assert [set(slot.memory.tolist()) for slot in slots] == [{0}, {1}, {2}]
    assert [slot.memory.size for slot in slots] == [PAGE] * 3
    del slot
    for _ in range(10):
        slots.clear()
        slots = pool.lease(3)
    assert pool.num_allocated == 1
    more = pool.lease(2)
    assert len({(slot.segment, slot.offset) for slot in slots + more}) == 5


def test_the_smallest_view_keeps_its_slot() -> None:
    pool = SlotPool(PAGE, is_shared=False)
    (slot,) = pool.lease(1)
    slot.memory[:] = 1
    view = torch.from_numpy(slot.memory.view(np.int64))[100:].view(4, -1)[1:, ::3]
    del slot
    (other,) = pool.lease(1)
    other.memory[:] = 9
    assert (view == 0x0101010101010101).all()
    del view, other
    pool.lease(2)
    assert pool.num_allocated == 2


def test_a_slot_that_is_dropped_in_another_thread_comes_back() -> None:
    pool = SlotPool(PAGE, is_shared=False)
    held = pool.lease(4)
    thread = threading.Thread(target=held.clear)
    thread.start()
    thread.join()
    pool.lease(4)
    assert pool.num_allocated == 1


@pytest.mark.parametrize("is_shared", KINDS)
def test_many_slots_lie_in_few_segments_and_go_when_they_are_free(is_shared: bool) -> None:
    pool = SlotPool(PAGE, is_shared)
    held: list[Slot] = []
    for _ in range(500):
        held += pool.lease(2)
    most = len(pool.segments())
    assert most < 40  # each is a descriptor where they are shared
    assert len({(slot.segment, slot.offset) for slot in held}) == 1000
    held.clear()
    pool.lease(2)
    assert sum(segment.num_slots for segment in pool._segments) < 20


# --- Loaders


@pytest.mark.parametrize("num_workers", [0, 1, 2, 3])
@pytest.mark.parametrize("group_bytes", [1, 200, assemble.GROUP_BYTES])
def test_batches_are_those_that_come_through_slabs(
    pattern: str, num_workers: int, group_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dense columns beside bytes and ragged ones; groups of one batch and of several."""
    options: dict[str, Any] = {"repeat": 2, "with_source": True}
    with monkeypatch.context() as patch:
        through_slabs(patch)
        expected = [plain(batch) for batch in make_loader(pattern, num_workers, **options)]
    monkeypatch.setattr("shardmix.runtime.shared_rows.GROUP_BYTES", group_bytes)
    loader = make_loader(pattern, num_workers, **options)
    assert [plain(batch) for batch in loader] == expected
    assert pool_of(loader).num_allocated > 0


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_batch_is_the_memory_that_the_workers_wrote(pattern: str, num_workers: int) -> None:
    loader = make_loader(pattern, num_workers)
    seen = []
    for batch in loader:
        lies = [any(np.shares_memory(batch[name].numpy(), memory) for memory in memories_of(loader)) for name in ("id", "point")]
        seen.append(lies)
    assert seen == [[True, True]] * len(loader)


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_batches_that_the_user_keeps_never_change(pattern: str, num_workers: int, persistent: bool) -> None:
    loader = make_loader(pattern, num_workers, persistent_workers=persistent and num_workers > 0)
    kept = []
    for epoch in range(3):
        for number, batch in enumerate(loader):
            if (number + epoch) % 3 == 0:
                kept.append((batch, plain(batch)))
    gc.collect()
    for batch, as_received in kept:
        assert plain(batch) == as_received


def test_batches_outlive_their_loader_and_its_workers(pattern: str) -> None:
    loader = make_loader(pattern)
    batches = list(loader)
    expected = [plain(batch) for batch in batches]
    del loader
    gc.collect()
    assert [plain(batch) for batch in batches] == expected
    batches[0]["id"] += 1  # it is the user's own
    assert [plain(batch) for batch in batches[1:]] == expected[1:]


def write_late(source: RowSource, epoch: int, rows: Any, allocate: Any, targets: Any = None) -> Any:
    """A worker that is slow in epoch 0, and writes once more before it answers."""
    filled = fill(source, epoch, rows, allocate, targets)
    if epoch == 0 and targets is not None:
        time.sleep(late_seconds)
        for buffer in set(targets.buffer.tolist()):
            targets.buffers[buffer][:] = 0xEE
    return filled


fill = RowSource.fill
late_seconds = 0.03


@pytest.fixture
def expected(pattern: str, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Batches of epoch 1. From now on workers write late."""
    with monkeypatch.context() as patch:
        through_slabs(patch)
        loader = make_loader(pattern, 0)
        loader.set_epoch(1)
        batches = [plain(batch) for batch in loader]
    monkeypatch.setattr(RowSource, "fill", write_late)
    return batches


@pytest.mark.parametrize("persistent", [False, True])
def test_what_a_given_up_pass_still_writes_is_not_of_the_next(pattern: str, expected: list[Any], persistent: bool) -> None:
    loader = make_loader(pattern, persistent_workers=persistent)
    for early in range(4):
        loader.set_epoch(0)
        iterator: Any = iter(loader)
        list(islice(iterator, early))
        iterator.close()
        loader.set_epoch(1)
        assert [plain(batch) for batch in loader] == expected
    del loader, iterator


def test_what_a_given_up_pass_still_writes_is_not_of_another_that_goes_on(
    pattern: str, expected: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its workers serve the first pass alone, so nobody drains what is asked of them before the other pass goes on."""
    monkeypatch.setattr("shardmix.runtime.requests.CHUNK_SECONDS", 0)  # many requests
    monkeypatch.setitem(globals(), "late_seconds", 0.3)
    for _ in range(3):
        loader = make_loader(pattern, persistent_workers=True)
        loader.set_epoch(0)
        given_up: Any = iter(loader)
        next(given_up)
        loader.set_epoch(1)
        iterator = iter(loader)
        got = [next(iterator)]
        given_up.close()
        del given_up
        got += iterator
        time.sleep(0.5)
        assert [plain(batch) for batch in got] == expected
        del loader, iterator


def test_slots_of_a_given_up_pass_come_back(pattern: str) -> None:
    for persistent in (False, True):
        loader = make_loader(pattern, persistent_workers=persistent)
        for _ in range(4):
            next(iter(loader))
        before = pool_of(loader).num_allocated
        for _ in range(20):
            next(iter(loader))
        assert pool_of(loader).num_allocated - before <= 2
        del loader


def test_two_passes_at_once_share_no_slot(pattern: str) -> None:
    loader = make_loader(pattern, persistent_workers=True)
    expected = []
    for epoch in (0, 1):
        loader.set_epoch(epoch)
        expected.append([plain(batch) for batch in loader])
    loader.set_epoch(0)
    iterators: list[Iterator[Any]] = [iter(loader), iter(loader)]
    got: list[list[Any]] = [[], []]
    for pair in zip(*iterators, strict=True):
        for batches, batch in zip(got, pair, strict=True):
            batches.append(batch)
    assert [[plain(batch) for batch in batches] for batches in got] == expected
    del loader, iterators


# --- Where they are not used, and holes


@pytest.fixture
def damaged(tmp_path: Path) -> str:
    """Three shards of 20 records, with a flipped bit in the payload of four."""
    with ShardWriter(tmp_path / "{}.tfrecord", num_shards=3) as writer:
        for number in range(60):
            writer.write({"id": number, "point": [number + 0.25] * 300})
    pattern = str(tmp_path / "*.tfrecord")
    index = build_index(pattern)
    for shard, record in ((0, 0), (0, 1), (1, 7), (2, 19)):
        path = Path(index.path(shard))
        data = bytearray(path.read_bytes())
        data[index.offset(shard, record) + 20] ^= 1
        status = path.stat()
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    return pattern


DAMAGED_FEATURES = {"id": FixedLenFeature((), "int64"), "point": FixedLenFeature((300,), "float32")}


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("batch_size", [1, 4, 60])
@pytest.mark.parametrize("with_source", [False, True])
def test_holes_shrink_their_batch_and_move_no_other_row(
    damaged: str, num_workers: int, batch_size: int, with_source: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def batches() -> list[Any]:
        loader = make_loader(
            damaged, num_workers, batch_size, features=DAMAGED_FEATURES, on_corrupt="skip", with_source=with_source
        )
        got = []
        iterator = iter(loader)
        while True:
            try:
                got.append(plain(next(iterator)))
            except StopIteration:
                return got
            except Exception as error:  # a batch of holes alone
                got.append(str(error))

    with monkeypatch.context() as patch:
        through_slabs(patch)
        expected = batches()
    assert batches() == expected
    assert batch_size == 1 or sum(len(batch["id"][1]) for batch in expected) == 56


def test_a_batch_with_a_hole_is_memory_of_its_own(damaged: str) -> None:
    loader = make_loader(damaged, batch_size=60, features=DAMAGED_FEATURES, on_corrupt="skip")
    (batch,) = loader
    assert not any(np.shares_memory(batch["id"].numpy(), memory) for memory in memories_of(loader))


@pytest.mark.parametrize(
    "options",
    [{"features": {"name": FEATURES["name"]}}, {"transform": dict}, {"on_corrupt": "skip", "on_hole": "fill"}],
    ids=["nothing dense", "transform", "fill"],
)
def test_slots_are_used_only_where_the_workers_know_what_a_batch_will_be(pattern: str, options: Any) -> None:
    loader = make_loader(pattern, 0, **options)
    list(loader)
    assert loader._keeper.slots.pool is None


def test_collate_fn_gets_samples_that_own_their_values(pattern: str) -> None:
    loader = MixLoader(ShardDataset(pattern, features=FEATURES), 6, collate_fn=list)
    list(loader)
    assert loader._keeper.slots.pool is None
