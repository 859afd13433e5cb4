"""Where the index is kept, and how processes share it."""

from __future__ import annotations

import errno
import multiprocessing
import os
import shutil
import time
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from shardmix.errors import CorruptShardError
from shardmix.format import index_build, index_file, index_scan, index_store
from shardmix.format.index import open_index
from tests.format.small_shards import COUNTS, fail_with_a_full_disk, index_files, write_shard


class TestHome:
    def test_cache_directory(self, four_shards, tmp_path, scanned):
        index = open_index(four_shards, index="cache")
        assert os.path.dirname(index.file_path) == str(tmp_path / "cache" / "shardmix")
        assert index_files(four_shards) == []
        open_index(four_shards)
        assert len(scanned) == 4

    def test_given_cache_directory(self, four_shards, tmp_path, scanned):
        index = open_index(four_shards, cache_dir=tmp_path / "mine")
        assert os.path.dirname(index.file_path) == str(tmp_path / "mine")
        assert index_files(four_shards) == []
        open_index(four_shards, cache_dir=tmp_path / "mine", index="cache")
        assert len(scanned) == 4

    def test_corpora_of_the_same_names_do_not_meet_in_the_cache(self, four_shards, tmp_path):
        shutil.copytree(four_shards, tmp_path / "other")
        write_shard(tmp_path / "other" / "0.tfrecord", [1])
        for _ in range(2):
            assert open_index(four_shards, index="cache").counts[0] == 3
            assert open_index(tmp_path / "other", index="cache").counts[0] == 1

    def test_memory_reads_and_writes_nothing(self, four_shards, scanned):
        open_index(four_shards)
        scanned.clear()
        (four_shards / index_files(four_shards)[0]).unlink()
        index = open_index(four_shards, index="memory")
        assert index.file_path is None
        assert (len(scanned), index_files(four_shards)) == (4, [])

    def test_named_file(self, four_shards, tmp_path, scanned):
        path = tmp_path / "indexes" / "mine.shardmix"
        for _ in range(2):
            assert open_index(four_shards, index=path).file_path == str(path)
        assert (len(scanned), index_files(four_shards)) == (4, [])

    def test_named_files_beside_each_other_are_left_alone(self, four_shards, tmp_path):
        (tmp_path / "x").mkdir()
        open_index(f"{four_shards}/0.*", index=tmp_path / "x" / "mine-1.shardmix")
        open_index(four_shards, index=tmp_path / "x" / "mine.shardmix")
        assert index_files(tmp_path / "x") == ["mine-1.shardmix", "mine.shardmix"]

    def test_named_file_of_another_corpus_is_replaced_and_told_of(self, four_shards, tmp_path, caplog):
        file = tmp_path / "one.shardmix"
        open_index(four_shards / "0.tfrecord", index=file)
        assert open_index([four_shards / "0.tfrecord", four_shards / "2.tfrecord"], index=file).counts.tolist() == [3, 5]
        assert caplog.text == ""  # a grown corpus
        (four_shards / "other").write_bytes(b"")
        assert open_index(four_shards / "other", index=file).counts.tolist() == [0]
        assert "one.shardmix: it is about other shards ('0.tfrecord' …), and is replaced; give each corpus its own" in caplog.text

    def test_what_cannot_be_meant(self, four_shards):
        with pytest.raises(ValueError, match="index='.*mine.idx': 'auto', 'cache', 'memory', or a file"):
            open_index(four_shards, index="mine.idx")
        with pytest.raises(ValueError, match="cache_dir='x': not used with index='memory'"):
            open_index(four_shards, index="memory", cache_dir="x")

    def test_full_disk_is_an_error_that_names_the_file(self, four_shards, monkeypatch):
        monkeypatch.setattr(index_file.os, "fsync", fail_with_a_full_disk)
        with pytest.raises(OSError, match=r"No space left on device; the index could not be written there.*\.index-") as caught:
            open_index(four_shards)
        assert caught.value.errno == errno.ENOSPC
        assert sorted(os.listdir(four_shards)) == [f"{shard}.tfrecord" for shard in range(4)]

    def test_neither_place_can_be_written(self, four_shards, tmp_path, monkeypatch, caplog):
        def refuse(path, columns):
            raise OSError(errno.EROFS, "Read-only file system")

        monkeypatch.setattr(index_build, "write_index_file", refuse)
        index = open_index(four_shards)
        assert (index.file_path, index.num_records) == (None, 9)
        assert f"{four_shards}/.index-" in caplog.text
        assert f" and {tmp_path}/cache/" in caplog.text
        assert "it is kept in memory and built again by every run: give cache_dir" in caplog.text

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
    def test_read_only_folder_has_its_index_in_the_cache(self, four_shards, tmp_path):
        os.chmod(four_shards, 0o755)
        (tmp_path / "cache").mkdir(mode=0o777)
        os.chmod(tmp_path / "cache", 0o777)
        paths = run_as_nobody(open_twice, tmp_path, four_shards)
        assert os.path.dirname(paths[0]) == str(tmp_path / "cache" / "shardmix")
        assert paths[0] == paths[1]
        assert index_files(four_shards) == []

    @pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
    def test_read_only_folder_with_a_valid_index_uses_it(self, four_shards, tmp_path, scanned):
        path = open_index(four_shards).file_path
        assert run_as_nobody(open_twice, tmp_path, four_shards) == [path, path]


def run_as_nobody(function, tmp_path, *arguments):
    """The result of a function in a process of a user who owns nothing."""
    for folder in (tmp_path, tmp_path.parent, tmp_path.parent.parent):
        os.chmod(folder, 0o755)
    context = multiprocessing.get_context("fork")
    results = context.SimpleQueue()

    def run():
        os.setgid(65534)
        os.setuid(65534)
        results.put(function(*arguments))

    process = context.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == 0
    return results.get()


def open_twice(folder):
    return [open_index(folder).file_path for _ in range(2)]


class TestProcesses:
    """Real processes; the slow scan of each writes its shard and process into a log."""

    def test_one_scans_and_the_others_wait(self, four_shards, tmp_path, nothing_left):
        with start_builders(four_shards, tmp_path / "log", 4) as builders:
            counts = [results.get() for results in builders.results]
        assert counts == [list(COUNTS)] * 4
        lines = (tmp_path / "log").read_text().split()
        assert sorted(line.split(":")[0] for line in lines) == [f"{shard}.tfrecord" for shard in range(4)]
        assert len({line.split(":")[1] for line in lines}) == 1

    def test_two_sets_of_a_folder_are_built_at_once(self, four_shards, tmp_path, nothing_left):
        patterns = [four_shards / "[01].tfrecord", four_shards / "[23].tfrecord"]
        with start_builders(patterns[0], tmp_path / "log", 2) as one, start_builders(patterns[1], tmp_path / "log", 2) as other:
            counts = [results.get() for results in one.results + other.results]
        assert counts == [[3, 0]] * 2 + [[5, 1]] * 2
        assert len((tmp_path / "log").read_text().split()) == 4
        assert len(index_files(four_shards)) == 2

    def test_killed_builder_leaves_the_old_index_and_no_lock(self, four_shards, tmp_path, nothing_left):
        path = open_index(four_shards).file_path
        with open(path, "rb") as file:
            before = file.read()
        write_shard(four_shards / "2.tfrecord", [1])
        with start_builders(four_shards, tmp_path / "log", 1) as builders:
            while not (tmp_path / "log").exists():
                time.sleep(0.01)
            builders.processes[0].kill()
            builders.processes[0].join()
        with open(path, "rb") as file:
            assert file.read() == before
        assert open_index(four_shards).counts.tolist() == [3, 0, 1, 1]
        assert index_files(four_shards) == [os.path.basename(path)]

    def test_builder_that_fails_lets_the_next_one_try(self, four_shards, tmp_path, nothing_left):
        (four_shards / "2.tfrecord").write_bytes(b"damaged")
        with start_builders(four_shards, tmp_path / "log", 2) as builders:
            errors = [results.get() for results in builders.results]
        assert [type(error) for error in errors] == [CorruptShardError] * 2

    def test_waiting_is_told(self, four_shards, tmp_path, caplog, monkeypatch):
        caplog.set_level("INFO", "shardmix")
        monkeypatch.setattr(index_store, "LOCK_MESSAGE_SECONDS", 0.01)
        with start_builders(four_shards, tmp_path / "log", 1) as builders:
            while not (tmp_path / "log").exists():
                time.sleep(0.01)
            assert open_index(four_shards).counts.tolist() == list(COUNTS)
            assert builders.results[0].get() == list(COUNTS)
        assert "another process builds it; waiting" in caplog.text

    def test_lock_folder_of_another_user_is_refused(self, four_shards, tmp_path, monkeypatch):
        monkeypatch.setattr(index_store.tempfile, "gettempdir", lambda: str(tmp_path))
        (tmp_path / f"shardmix-{os.getuid()}").symlink_to(tmp_path)
        with pytest.raises(PermissionError, match="belongs to another user"):
            open_index(four_shards)


class Builders(NamedTuple):
    processes: list
    results: list


@contextmanager
def start_builders(shards, log, number):
    """Processes that open the same index at the same time."""
    context = multiprocessing.get_context("fork")
    barrier = context.Barrier(number)
    results = [context.SimpleQueue() for _ in range(number)]
    processes = [context.Process(target=build_slowly, args=(str(shards), log, barrier, result)) for result in results]
    for process in processes:
        process.start()
    try:
        yield Builders(processes, results)
    finally:
        for process in processes:
            process.join()
            process.close()
        for result in results:
            result.close()


def build_slowly(shards, log, barrier, results):
    scan = index_scan.scan_shard

    def slow_scan(path, **settings):
        with open(log, "a") as file:
            file.write(f"{os.path.basename(path)}:{os.getpid()}\n")
        time.sleep(0.15)
        return scan(path, **settings)

    index_scan.scan_shard = slow_scan
    barrier.wait()
    try:
        results.put(open_index(shards).counts.tolist())
    except CorruptShardError as error:
        results.put(error)
