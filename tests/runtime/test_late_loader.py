"""A loader gives the same batches whether large records are read as they leave the shuffle buffer or as they arrive."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from shardmix import CorruptShardError, FixedLenFeature, MixLoader, ShardDataset, ShardWriter
from shardmix.runtime import reads
from tests.runtime.fetching import read_always

pytestmark = pytest.mark.usefixtures("nothing_left")

FEATURES = {"id": FixedLenFeature((), "int64"), "image": FixedLenFeature((), "bytes")}


@pytest.fixture(scope="module")
def images(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Seventy records, half of them large; the `id` is shard · 1000 + record."""
    folder = tmp_path_factory.mktemp("images")
    for shard, count in enumerate([31, 0, 20, 19]):
        with ShardWriter(folder / f"{shard}-{{}}.tfrecord", num_shards=1, features=FEATURES) as writer:
            for record in range(count):
                size = 2 * reads.LATE_BYTES + 1000 * record if record % 2 else record
                writer.write({"id": shard * 1000 + record, "image": bytes([record]) * size})
    return str(folder / "*.tfrecord")


def open_images(pattern: str, **settings: Any) -> ShardDataset:
    return ShardDataset(pattern, features=FEATURES, **{"shuffle_buffer_size": 48, **settings})


def run(dataset: ShardDataset, num_workers: int = 0, rows: int = 0) -> list[Any]:
    """Two epochs, from a row on."""
    loader = MixLoader(dataset, 6, num_workers=num_workers, repeat=2)
    loader.load_state_dict({**loader.state_dict(), "rows": rows})
    return [
        (batch["id"].tolist(), [bytes(image) for image in batch["image"]], batch["source"].is_pad.tolist()) for batch in loader
    ]


@pytest.mark.parametrize("settings", [{}, {"shuffle": False}, {"lanes": 4, "cycle_length": 1}, {"rank": 1, "world_size": 4}])
@pytest.mark.parametrize("choose", [lambda d: d, lambda d: d.take(50), lambda d: d.split({"a": 0.7, "b": 0.3})["a"]])
def test_batches_are_those_of_early_reading(
    images: str, settings: dict[str, Any], choose: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_set() -> ShardDataset:
        return choose(open_images(images, with_source=True, **settings))

    read_always(monkeypatch, "early")
    expected, resumed = run(open_set()), run(open_set(), rows=24)
    read_always(monkeypatch, "late")
    assert run(open_set()) == expected
    assert run(open_set(), rows=24) == resumed
    assert run(open_set(), num_workers=2, rows=24) == resumed


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_damaged_record_is_a_hole_in_the_same_place(
    images: str, num_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def load(**settings: Any) -> list[list[int]]:
        loader = MixLoader(open_images(images, **settings), 6, num_workers=num_workers)
        return [batch["id"].tolist() for batch in loader]

    index = ShardDataset(images)._index
    path, place = Path(index.path(2)), index.offset(2, 5) + 500
    data, status = path.read_bytes(), path.stat()
    try:
        path.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
        outcomes = []
        for how in ("early", "late"):
            read_always(monkeypatch, how)
            outcomes.append(load(on_corrupt="skip"))
            with pytest.raises(CorruptShardError, match="payload CRC mismatch") as caught:
                load()
            assert (caught.value.path, caught.value.record) == (str(path), 5)
    finally:
        path.write_bytes(data)
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert outcomes[0] == outcomes[1]
    assert sum(map(len, outcomes[0])) == 69


def test_a_loader_says_that_the_buffer_takes_no_memory(images: str) -> None:
    text = repr(MixLoader(open_images(images, lanes=4), 6, num_workers=2))
    assert "at most 6 open files, shuffle buffer of 48 records (0 B)" in text
