"""Writing shards, the end: all of them or nothing, whatever comes between, and an index that is right."""

from __future__ import annotations

import errno
import os
import resource
import signal
import stat

import pytest

from shardmix import ShardWriter
from shardmix.format import output as output_module
from shardmix.format.framing import frame_record
from shardmix.format.index import open_index
from tests.format.test_writer import PAYLOADS, hidden_shards, read_all, visible, write_all


class TestWhole:
    """A file gets its final name only when whole, and nothing is left of what failed."""

    def test_inside_with_there_are_only_hidden_files(self, tmp_path):
        with ShardWriter(tmp_path / "train", max_shard_records=2) as writer:
            for payload in PAYLOADS:
                writer.write(payload)
                assert visible(tmp_path) == []
        assert len(visible(tmp_path)) == 4
        assert hidden_shards(tmp_path) == []

    @pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
    @pytest.mark.parametrize("limit", ["num_shards", "max_shard_records"])
    def test_an_exception_leaves_nothing(self, tmp_path, error, limit):
        with pytest.raises(error), ShardWriter(tmp_path / "train", **{limit: 2}) as writer:
            for payload in PAYLOADS:
                writer.write(payload)
            raise error
        assert os.listdir(tmp_path) == []

    def test_an_exception_leaves_older_shards_as_they_were(self, tmp_path):
        paths = write_all(tmp_path / "train", num_shards=2)
        before = read_all(paths)
        with pytest.raises(RuntimeError), ShardWriter(tmp_path / "train", num_shards=2) as writer:
            writer.write(b"new")
            raise RuntimeError
        assert read_all(paths) == before
        assert hidden_shards(tmp_path) == []

    @pytest.mark.parametrize("compression", [None, "gzip"])
    def test_a_full_disk_names_the_file_and_leaves_nothing(self, tmp_path, compression):
        block = os.urandom(100_000)
        with limited_file_size(1_500_000), pytest.raises(OSError, match="writing record") as caught:
            write_all(tmp_path / "train", [block] * 30, num_shards=1, compression_type=compression)
        assert caught.value.filename.startswith(str(tmp_path / ".train-00000"))
        assert os.listdir(tmp_path) == []

    @pytest.mark.parametrize("call", ["fsync", "replace"])
    def test_a_failure_at_the_very_end_leaves_nothing(self, tmp_path, monkeypatch, call):
        writer = ShardWriter(tmp_path / "train", num_shards=3)
        writer.write(b"a")
        calls, real = [], getattr(os, call)

        def fail_second(*arguments):
            calls.append(arguments)
            if len(calls) == 2:
                raise OSError(28, "No space left on device")
            return real(*arguments)

        monkeypatch.setattr(output_module.os, call, fail_second)
        with pytest.raises(OSError, match="No space left"):
            writer.close()
        monkeypatch.undo()
        assert os.listdir(tmp_path) == []
        with pytest.raises(ValueError, match="closed"):
            writer.write(b"late")

    @pytest.mark.parametrize("call", ["open", "write", "fsync", "replace"])
    @pytest.mark.parametrize("number", [1, 2, 3])
    def test_an_interrupt_right_behind_a_system_call_leaves_nothing(self, tmp_path, monkeypatch, call, number):
        calls, real = [], getattr(os, call)

        def interrupt(*arguments):
            result = real(*arguments)
            calls.append(arguments)
            if len(calls) == number:
                raise KeyboardInterrupt
            return result

        monkeypatch.setattr(output_module.os, call, interrupt)
        with pytest.raises(KeyboardInterrupt):
            write_all(tmp_path / "train", [bytes(2_000_000)] * 3, num_shards=3)
        monkeypatch.undo()
        assert os.listdir(tmp_path) == []

    def test_a_folder_of_the_name_of_a_shard_costs_no_older_shard(self, tmp_path):
        paths = write_all(tmp_path / "train", num_shards=3)
        before = read_all(paths[:2])
        os.unlink(paths[2])
        os.mkdir(paths[2])
        with pytest.raises(IsADirectoryError, match="a folder has the name of a shard"):
            write_all(tmp_path / "train", [b"new"], num_shards=3)
        assert read_all(paths[:2]) == before
        assert hidden_shards(tmp_path) == []

    def test_what_is_taken_back_is_our_own(self, tmp_path, monkeypatch):
        """Another writer took the name in between: its shard stays."""
        real = os.replace

        def replace(source, target):
            if target.endswith("1-of-00002"):
                (tmp_path / "other").write_bytes(b"of another")
                real(tmp_path / "other", tmp_path / "train-00000-of-00002")
                raise OSError(28, "No space left on device")
            real(source, target)

        monkeypatch.setattr(output_module.os, "replace", replace)
        with pytest.raises(OSError, match="No space left"):
            write_all(tmp_path / "train", num_shards=2)
        monkeypatch.undo()
        assert os.listdir(tmp_path) == ["train-00000-of-00002"]
        assert (tmp_path / "train-00000-of-00002").read_bytes() == b"of another"

    @pytest.mark.parametrize("code", [errno.EINVAL, errno.ENOTSUP])
    def test_a_file_system_that_cannot_sync_folders_will_do(self, tmp_path, monkeypatch, code):
        monkeypatch.setattr(output_module.os, "fsync", fail_for_folders(code))
        assert len(write_all(tmp_path / "train", num_shards=2)) == 2

    def test_a_folder_that_cannot_be_synced_for_another_reason_is_an_error(self, tmp_path, monkeypatch):
        monkeypatch.setattr(output_module.os, "fsync", fail_for_folders(errno.EIO))
        with pytest.raises(OSError, match="Input/output error"):
            write_all(tmp_path / "train", num_shards=2)
        assert os.listdir(tmp_path) == []

    def test_a_folder_that_may_not_be_listed_will_do(self, tmp_path, monkeypatch):
        real = os.open

        def open_no_folder(path, *arguments):
            if os.path.isdir(path):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return real(path, *arguments)

        monkeypatch.setattr(output_module.os, "open", open_no_folder)
        assert len(write_all(tmp_path / "train", num_shards=2)) == 2

    def test_abort_gives_up(self, tmp_path):
        writer = ShardWriter(tmp_path / "train", num_shards=2)
        writer.write(b"a")
        writer.abort()
        writer.close()
        assert (writer.paths, os.listdir(tmp_path)) == ((), [])


class TestIndex:
    @pytest.mark.parametrize("limit", [{"num_shards": 3}, {"max_shard_records": 3}])
    def test_nobody_scans_what_was_just_written(self, tmp_path, monkeypatch, limit):
        paths = write_all(tmp_path / "train-{:03d}", compression_type="gzip", **limit)
        monkeypatch.setattr("shardmix.format.storage.LocalFile", None)  # opening a shard would fail
        index = open_index(str(tmp_path / "train-*"))
        assert [index.path(shard) for shard in range(3)] == list(paths)
        assert index.counts.tolist() == [3, 2, 2] if "num_shards" in limit else [3, 3, 1]
        assert [index.compression(shard) for shard in range(3)] == ["gzip"] * 3
        assert index.lengths(1, 0, 2).tolist() == ([1, 4] if "num_shards" in limit else [3, 4])


    def test_a_shard_that_another_writer_replaced_meanwhile_is_scanned(self, tmp_path, monkeypatch):
        """Else the lengths of one writer would be believed of the other's shard."""
        real = ShardWriter._write_index

        def write_index_late(writer):
            with open(writer.paths[0], "wb") as file:
                file.write(frame_record(b"of another writer"))
            real(writer)

        monkeypatch.setattr(ShardWriter, "_write_index", write_index_late)
        write_all(tmp_path / "train-{}", num_shards=2)
        assert open_index(str(tmp_path / "train-*")).counts.tolist() == [1, 3]

    def test_a_shard_that_was_removed_meanwhile_is_no_error_of_the_writer(self, tmp_path, monkeypatch):
        real = ShardWriter._write_index

        def write_index_late(writer):
            os.unlink(writer.paths[0])
            real(writer)

        monkeypatch.setattr(ShardWriter, "_write_index", write_index_late)
        write_all(tmp_path / "train-{}", num_shards=2)
        assert visible(tmp_path) == ["train-1"]


def fail_for_folders(code):
    """An fsync that fails so for folders."""
    real = os.fsync

    def fsync(descriptor):
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            raise OSError(code, os.strerror(code))
        real(descriptor)

    return fsync


class limited_file_size:
    """No file of this process can grow beyond so many bytes; inside, a disk that is full at that size."""

    def __init__(self, num_bytes):
        self.num_bytes = num_bytes

    def __enter__(self):
        self.handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        self.before = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (self.num_bytes, self.before[1]))

    def __exit__(self, *error):
        resource.setrlimit(resource.RLIMIT_FSIZE, self.before)
        signal.signal(signal.SIGXFSZ, self.handler)
