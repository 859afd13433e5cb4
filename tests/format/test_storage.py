"""Opening shards: compression from the content, access by position, local and remote alike."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
import zlib

import numpy as np
import pytest

from shardmix.format.framing import frame_record
from shardmix.format.storage import detect_compression, is_remote, open_shard, resolve_compression, stat_shard

FRAMES = b"".join(frame_record(bytes([n]) * n) for n in range(50))


def read(shard, offset, num_bytes):
    out = np.zeros(num_bytes, np.uint8)
    return out[: shard.read_into(offset, out)].tobytes()


class TestDetectCompression:
    @pytest.mark.parametrize(
        ("start", "compression"),
        [
            (frame_record(bytes(376)), "none"),  # begins 78 01, like zlib
            (frame_record(bytes(0x8B1F)), "none"),  # begins 1f 8b, like gzip
            (b"\x1f\x8b\x08\x00", "gzip"),
            (b"\x1f\x8b\x07\x00", "none"),
            (b"\x78\x9c\x03\x00", "zlib"),
            (b"\x78\x01", "zlib"),
            (b"\x78\x02", "none"),  # no multiple of 31
            (b"\x88\x1c", "none"),  # a window that zlib does not have
            (b"\xff\xd8\xff\xe0" + bytes(20), "none"),
            (b"<!DOCTYPE html>", "none"),
            (b'{"id": 1, "a": 2}', "none"),
            (b"\x78", "none"),
            (b"", "none"),
        ],
    )
    def test_from_the_first_bytes(self, start, compression):
        assert detect_compression(start) == compression

    def test_gzip_levels_and_zlib_levels(self):
        for level in range(10):
            assert detect_compression(gzip.compress(FRAMES, level)) == "gzip"
            assert detect_compression(zlib.compress(FRAMES, level)) == "zlib"

    def test_what_a_user_may_say(self):
        assert [resolve_compression(name) for name in (None, "", "none", "NONE")] == ["none"] * 4
        assert [resolve_compression(name) for name in ("auto", "gzip", "GZIP", "ZLIB")] == ["auto", "gzip", "gzip", "zlib"]
        for bad in ("gz", "snappy", 3, False):
            with pytest.raises(ValueError, match="compression_type is"):
                resolve_compression(bad)


@pytest.fixture(params=["none", "gzip", "zlib"])
def shard(request, tmp_path):
    """The same bytes, stored in three ways."""
    path = tmp_path / "shard"
    path.write_bytes({"none": bytes, "gzip": gzip.compress, "zlib": zlib.compress}[request.param](FRAMES))
    shard = open_shard(str(path))
    assert shard.compression == request.param
    yield shard
    shard.close()


class TestOpenShard:
    def test_any_place_in_any_order(self, shard):
        size = len(FRAMES)
        for offset in (0, 7, 1000, 500, 499, size - 1, 3, size, size + 100, 0):
            assert read(shard, offset, 60) == FRAMES[offset : offset + 60]

    def test_fewer_bytes_only_at_the_end(self, shard):
        assert read(shard, 0, len(FRAMES) + 1000) == FRAMES
        assert shard.size == len(FRAMES) <= shard.size_limit

    def test_sizes(self, shard):
        assert shard.size_on_disk == os.path.getsize(shard.path)
        assert shard.size_limit >= len(FRAMES)

    def test_closing_twice_is_allowed(self, shard):
        shard.close()
        shard.close()

    def test_an_empty_file_is_an_empty_shard(self, tmp_path):
        path = tmp_path / "empty"
        path.touch()
        for compression in ("auto", "none", "gzip", "zlib"):
            shard = open_shard(str(path), compression)
            assert (read(shard, 0, 10), shard.size) == (b"", 0)
            shard.close()

    def test_what_cannot_be_opened_names_the_path(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for name, error in [("missing", FileNotFoundError), ("", IsADirectoryError), ("pipe", OSError)]:
            with pytest.raises(error) as caught:
                open_shard(str(tmp_path / name))
            assert caught.value.filename == str(tmp_path / name)

    def test_no_descriptor_is_left_when_opening_fails(self, tmp_path):
        before = len(os.listdir("/dev/fd"))
        for _ in range(3):
            with pytest.raises(IsADirectoryError):
                open_shard(str(tmp_path))
        assert len(os.listdir("/dev/fd")) == before


class TestStatShard:
    def test_the_tag_changes_with_the_file(self, tmp_path):
        path = tmp_path / "shard"
        path.write_bytes(FRAMES)
        os.utime(path, ns=(1, 1))
        before = stat_shard(str(path))
        os.utime(path, ns=(2, 2))
        assert before == (len(FRAMES), "1")
        assert stat_shard(str(path)) == (len(FRAMES), "2")


class TestRemote:
    @pytest.fixture
    def url(self):
        fsspec = pytest.importorskip("fsspec")
        memory = fsspec.filesystem("memory")
        memory.pipe("/shardmix-test/shard", gzip.compress(FRAMES))
        yield "memory://shardmix-test/shard"
        memory.rm("/shardmix-test", recursive=True)

    def test_a_url_reads_like_a_file(self, url):
        shard = open_shard(url)
        assert shard.compression == "gzip"
        assert read(shard, 100, 50) == FRAMES[100:150]
        assert read(shard, 10, 50) == FRAMES[10:60]
        shard.close()

    def test_stat(self, url):
        size, tag = stat_shard(url)
        assert size == len(gzip.compress(FRAMES))
        assert tag

    def test_what_is_not_there_names_the_url(self, url):
        for call in (open_shard, stat_shard):
            with pytest.raises(FileNotFoundError) as caught:
                call(f"{url}-absent")
            assert caught.value.filename == f"{url}-absent"

    def test_a_folder_is_no_shard(self, url):
        with pytest.raises(IsADirectoryError, match="memory://shardmix-test"):
            open_shard("memory://shardmix-test")

    def test_what_is_a_url(self):
        assert is_remote("s3://bucket/train")
        assert not is_remote("data/train:00000")
        assert not is_remote("file:///data/train")

    def test_a_file_url_is_a_local_path(self, tmp_path, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        (tmp_path / "shard").write_bytes(FRAMES)
        shard = open_shard(f"file://{tmp_path}/shard")
        assert read(shard, 0, 50) == FRAMES[:50]
        assert stat_shard(f"file://{tmp_path}/shard") == stat_shard(str(tmp_path / "shard"))
        shard.close()

    def test_without_fsspec_the_error_names_the_extra(self, monkeypatch):
        monkeypatch.setitem(sys.modules, "fsspec.core", None)
        monkeypatch.setitem(sys.modules, "fsspec", None)
        with pytest.raises(ImportError, match=r"s3://bucket/train: .*shardmix\[remote\]"):
            open_shard("s3://bucket/train")

    def test_a_local_path_imports_neither_fsspec_nor_torch(self, tmp_path):
        path = tmp_path / "shard"
        path.write_bytes(FRAMES)
        program = (
            "import sys; from shardmix import read_records\n"
            f"n = sum(1 for _ in read_records({str(path)!r}))\n"
            "sys.exit(f'{n} {[m for m in (\"fsspec\", \"torch\", \"tfrecord\") if m in sys.modules]}')"
        )
        done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert done.stderr.strip() == "50 []"
