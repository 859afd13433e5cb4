"""Damage and change while a run goes on: no other batch changes, and what happened is named."""

from __future__ import annotations

import logging
import os
import shutil
import stat
from pathlib import Path
from typing import Any

import pytest

from shardmix import (
    CorruptShardError,
    FixedLenFeature,
    MixLoader,
    ShardDataset,
    ShardMixError,
    ShardWriter,
    StaleIndexError,
    VarLenFeature,
    build_index,
)

FEATURES = {"id": FixedLenFeature((), "int64")}
COUNTS = (30, 0, 25, 9)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Four shards; feature `id` is shard * 1000 + record."""
    for shard, count in enumerate(COUNTS):
        with ShardWriter(tmp_path / "corpus" / f"{shard}-{{}}.tfrecord", num_shards=1) as writer:
            for record in range(count):
                writer.write({"id": shard * 1000 + record, "pad": bytes(400)})
    return tmp_path / "corpus"


def make_loader(folder: Path, num_workers: int = 0, **options: Any) -> MixLoader:
    options = {"features": FEATURES, "lanes": 4, "cycle_length": 2, "shuffle_buffer_size": 16, **options}
    return MixLoader(ShardDataset(str(folder / "*.tfrecord"), **options), batch_size=8, num_workers=num_workers)


def flip(path: Path, record: int) -> None:
    """Change one bit of a payload, and nothing that the file system tells of it: as a failing disk does."""
    data = bytearray(path.read_bytes())
    data[build_index(str(path)).offset(0, record) + 20] ^= 1
    status = path.stat()
    path.write_bytes(data)
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))


def ids(loader: MixLoader) -> list[list[int]]:
    return [batch["id"].tolist() for batch in loader]


class TestSkipping:
    DAMAGED = ((0, 3), (0, 29), (2, 0))  # (shard, record)

    @pytest.fixture
    def damaged(self, folder: Path) -> Path:
        for shard, record in self.DAMAGED:
            flip(folder / f"{shard}-0.tfrecord", record)
        return folder

    @pytest.mark.parametrize("num_workers", [0, 1, 3])
    def test_every_other_row_is_where_it_was(self, folder: Path, num_workers: int) -> None:
        whole = ids(make_loader(folder))
        for shard, record in self.DAMAGED:
            flip(folder / f"{shard}-0.tfrecord", record)
        gone = {shard * 1000 + record for shard, record in self.DAMAGED}
        loader = make_loader(folder, num_workers, on_corrupt="skip")
        assert ids(loader) == [[number for number in batch if number not in gone] for batch in whole]
        assert (loader.stats()["holes"], loader.stats()["damages"]) == (3, 3)

    @pytest.mark.parametrize("num_workers", [0, 3])
    def test_each_damage_is_logged_once_with_its_place(
        self, damaged: Path, num_workers: int, caplog: pytest.LogCaptureFixture
    ) -> None:
        with caplog.at_level(logging.WARNING, "shardmix"):
            loader = make_loader(damaged, num_workers, on_corrupt="skip")
            for _ in range(3):
                ids(loader)
        assert loader.stats()["damages"] == 3 * 3
        assert len(caplog.messages) == 3
        for shard, record in self.DAMAGED:
            place = f"{damaged}/{shard}-0.tfrecord record {record} at byte "
            assert sum(place in message for message in caplog.messages) == 1
        assert {entry.process for entry in caplog.records} == {os.getpid()}

    @pytest.mark.parametrize("num_workers", [0, 3])
    def test_the_budget(self, damaged: Path, num_workers: int) -> None:
        assert sum(map(len, ids(make_loader(damaged, num_workers, on_corrupt="skip", max_corrupt=3)))) == sum(COUNTS) - 3
        with pytest.raises(CorruptShardError, match="payload CRC mismatch"):
            ids(make_loader(damaged, num_workers, on_corrupt="skip", max_corrupt=2))

    @pytest.mark.parametrize("num_workers", [0, 3])
    def test_the_budget_is_of_each_pass_alone(self, damaged: Path, num_workers: int) -> None:
        loader = make_loader(damaged, num_workers, on_corrupt="skip", max_corrupt=3)
        passes = [iter(loader), iter(loader)]
        both = [batch["id"].tolist() for pair in zip(*passes, strict=True) for batch in pair]
        assert sum(map(len, both)) == 2 * (sum(COUNTS) - 3)
        ids(loader)

    def test_filled_rows_are_rows_of_the_same_batch(self, damaged: Path) -> None:
        shrunk = ids(make_loader(damaged, on_corrupt="skip"))
        filled = ids(make_loader(damaged, on_corrupt="skip", on_hole="fill"))
        assert [len(batch) for batch in filled] == [8] * 8
        assert [set(batch) for batch in filled] == [set(batch) for batch in shrunk]


@pytest.mark.parametrize("num_workers", [0, 2])
class TestChangedDuringARun:
    """A file that is not the one that was indexed stops the run, whatever on_corrupt is."""

    @pytest.fixture(params=["raise", "skip"])
    def started(self, folder: Path, num_workers: int, request: pytest.FixtureRequest) -> MixLoader:
        """A loader whose workers have not opened a file yet."""
        loader = make_loader(folder, num_workers, on_corrupt=request.param)
        assert len(loader) == 8
        return loader

    def test_cut(self, folder: Path, started: MixLoader) -> None:
        path = folder / "2-0.tfrecord"
        os.truncate(path, path.stat().st_size // 2)
        with pytest.raises(StaleIndexError, match=r"2-0.tfrecord: it has \d+ bytes, and had \d+ when it was indexed"):
            ids(started)

    def test_replaced(self, folder: Path, started: MixLoader) -> None:
        shutil.copy(folder / "0-0.tfrecord", folder / "new")
        os.replace(folder / "new", folder / "2-0.tfrecord")
        with pytest.raises(StaleIndexError, match="2-0.tfrecord"):
            ids(started)

    def test_grown(self, folder: Path, started: MixLoader) -> None:
        with open(folder / "2-0.tfrecord", "ab") as file:
            file.write((folder / "0-0.tfrecord").read_bytes())
        with pytest.raises(StaleIndexError, match="2-0.tfrecord"):
            ids(started)

    def test_removed(self, folder: Path, started: MixLoader) -> None:
        (folder / "2-0.tfrecord").unlink()
        with pytest.raises(FileNotFoundError, match="2-0.tfrecord"):
            ids(started)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_a_file_that_is_cut_while_it_is_open_is_named(tmp_path: Path, num_workers: int) -> None:
    with ShardWriter(tmp_path / "{}.tfrecord", num_shards=1) as writer:
        for record in range(4000):
            writer.write({"id": record, "pad": bytes(2000)})
    features = {**FEATURES, "pad": VarLenFeature("bytes")}
    loader = make_loader(tmp_path, num_workers, features=features, lanes=2, cycle_length=1, shuffle_buffer_size=0)
    batches = iter(loader)
    first = next(batches)["id"].tolist()
    os.truncate(tmp_path / "0.tfrecord", 5_000_000)
    seen = list(first)
    with pytest.raises(ShardMixError, match="0.tfrecord"):
        for batch in batches:
            seen += batch["id"].tolist()
    assert len(seen) == len(set(seen)) < 4000
    after = make_loader(tmp_path, features=FEATURES, on_corrupt="skip")  # opened anew, what is left is read
    assert sum(map(len, ids(after))) > 2000


def test_the_next_data_set_reads_a_changed_file_as_it_is(folder: Path) -> None:
    make_loader(folder)
    shutil.copy(folder / "3-0.tfrecord", folder / "2-0.tfrecord")
    delivered = [number for batch in ids(make_loader(folder)) for number in batch]
    assert sorted(delivered) == sorted([*range(30), *range(3000, 3009), *range(3000, 3009)])


class TestReadOnlyFolder:
    @pytest.fixture
    def read_only(self, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A folder that nobody can write to, root included: the writing fails as the operating system would have it."""
        for path in folder.glob(".index-*"):
            path.unlink()
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
        if os.access(folder, os.W_OK):  # root writes anywhere
            make_file = os.open

            def refuse(path: Any, flags: int, *rest: Any, **more: Any) -> int:
                if flags & os.O_CREAT and str(path).startswith(str(folder)):
                    raise PermissionError(13, "Permission denied", str(path))
                return make_file(path, flags, *rest, **more)

            monkeypatch.setattr(os, "open", refuse)
            monkeypatch.setattr("shardmix.format.index_build.write_index_file", _refusing(folder))
        yield folder
        folder.chmod(0o755)

    def test_the_index_goes_to_the_cache(self, read_only: Path, tmp_path: Path) -> None:
        assert sum(map(len, ids(make_loader(read_only)))) == sum(COUNTS)
        assert [path.suffix for path in (tmp_path / "cache" / "shardmix").iterdir()] == [".shardmix"]
        assert list(read_only.glob(".index-*")) == []

    def test_shards_cannot_be_written_and_that_is_named(self, read_only: Path) -> None:
        with pytest.raises(PermissionError, match="new"), ShardWriter(read_only / "new", num_shards=1) as writer:
            writer.write(b"record")
        assert list(read_only.glob("*new*")) == []


def _refusing(folder: Path) -> Any:
    from shardmix.format.index_file import write_index_file

    def write(path: str, columns: Any) -> None:
        if path.startswith(str(folder)):
            raise PermissionError(13, "Permission denied", path)
        write_index_file(path, columns)

    return write
