"""A disk that is full: a small file system of its own. A named error, nothing lost, and no half file under a final name."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shardmix import ShardWriter, build_index, read_records
from shardmix.format.framing import frame_record

pytestmark = pytest.mark.once

DISK_BYTES = 256 << 10


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 256 KiB."""
    if os.getuid() != 0:
        pytest.skip("only root can mount a small disk")
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", f"size={DISK_BYTES}", "tmpfs", str(folder)]
    mounted = subprocess.run(command, capture_output=True, text=True)
    if mounted.returncode:
        pytest.skip(f"a small disk cannot be mounted here: {mounted.stderr.strip()}")
    yield folder
    subprocess.run(["umount", folder], check=True)


def fill(folder: Path, leave: int = 0) -> None:
    """Take up all room but `leave` bytes, in pages."""
    with open(folder / "ballast", "wb", buffering=0) as file:
        try:
            while True:
                file.write(bytes(4096))
        except OSError:
            pass
    os.truncate(folder / "ballast", max(0, (folder / "ballast").stat().st_size - leave) // 4096 * 4096)


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file() and path.name != "ballast")


class TestShards:
    @pytest.mark.parametrize("limit", [{"num_shards": 2}, {"max_shard_records": 3}])
    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_a_writer_names_the_file_and_leaves_nothing(self, small_disk, limit, compression):
        with pytest.raises(OSError, match="No space left on device") as caught:
            with ShardWriter(small_disk / "train-{}", compression_type=compression, **limit) as writer:
                for _ in range(20):
                    writer.write(os.urandom(40_000))
        assert "train-" in str(caught.value.filename)
        assert files(small_disk) == []

    def test_what_was_there_stays(self, small_disk):
        with ShardWriter(small_disk / "{}", num_shards=1) as writer:
            writer.write(b"precious")
        before = files(small_disk)
        with pytest.raises(OSError, match="No space"), ShardWriter(small_disk / "{}", num_shards=1) as writer:
            for _ in range(20):
                writer.write(os.urandom(40_000))
        assert files(small_disk) == before
        assert list(read_records(small_disk / "0")) == [b"precious"]

    def test_shards_that_fit_are_whole_though_their_index_does_not(self, small_disk, caplog):
        fill(small_disk, leave=8192)
        with ShardWriter(small_disk / "{}", num_shards=1) as writer:
            for _ in range(400):
                writer.write(os.urandom(4))
        assert [name for name in files(small_disk) if not name.startswith(".")] == ["0"]
        assert len(list(read_records(small_disk / "0"))) == 400


class TestIndex:
    @pytest.fixture
    def shards(self, small_disk):
        """Shards without an index, on a disk without room for one."""
        for shard in range(3):
            frames = [frame_record(bytes(length % 50)) for length in range(1000)]
            (small_disk / f"{shard}.tfrecord").write_bytes(b"".join(frames))
        fill(small_disk)
        return small_disk

    def test_a_named_error_and_no_half_index(self, shards):
        before = files(shards)
        with pytest.raises(OSError, match="index could not be written there, and nothing is left of it: make room") as caught:
            build_index(str(shards))
        assert ".index-" in str(caught.value.filename)
        assert files(shards) == before
        assert build_index(str(shards), index="memory").num_records == 3000
        os.truncate(shards / "ballast", 0)
        assert build_index(str(shards)).num_records == 3000

    def test_the_command(self, shards, shardmix):
        ran = shardmix("index", shards)
        assert ran.code == 1
        assert "No space left" in ran.err
        assert ".index-" in ran.err

    def test_a_text_index(self, shards, tmp_path, shardmix):
        before = files(shards)
        ran = shardmix("index", shards, "--idx", "--out", tmp_path / "x.shardmix")
        assert (ran.code, "No space left" in ran.err) == (1, True)
        assert files(shards) == before


class TestTools:
    @pytest.fixture
    def pattern(self, tmp_path):
        with ShardWriter(tmp_path / "in" / "{}", num_shards=3) as writer:
            for _ in range(30):
                writer.write(os.urandom(20_000))
        return tmp_path / "in" / "[0-9]"

    @pytest.mark.parametrize("options", [(), ("--shuffle",), ("--shuffle", "--workers", "2", "--memory", "40MB")])
    def test_reshard(self, pattern, small_disk, shardmix, options):
        ran = shardmix("reshard", pattern, small_disk / "new" / "{}", *options)
        assert ran.code == 1
        assert "No space left" in ran.err
        assert str(small_disk) in ran.err
        assert os.listdir(small_disk) == []

    @pytest.mark.parametrize("workers", ["1", "2"])
    def test_repair(self, pattern, small_disk, shardmix, workers):
        ran = shardmix("verify", pattern, "--repair", small_disk / "sound", "--workers", workers)
        assert ran.code == 1
        assert "No space left" in ran.err
        assert os.listdir(small_disk) == []
