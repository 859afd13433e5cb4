"""Opening an index: what is scanned, what is believed, what is told."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from shardmix.errors import CorruptShardError, StaleIndexError
from shardmix.format import index_file, index_scan
from shardmix.format.index import build_index, make_index, open_index
from tests.format.small_shards import COUNTS, index_files, touch_later, write_shard


class TestCache:
    def test_second_open_reads_no_shard(self, four_shards, scanned, monkeypatch):
        first = open_index(four_shards)
        scanned.clear()

        def refuse(*arguments, **settings):
            raise AssertionError("a shard was opened")

        monkeypatch.setattr("shardmix.format.storage.open_shard", refuse)
        monkeypatch.setattr("shardmix.format.scan.open_shard", refuse)
        second = open_index(four_shards)
        assert scanned == []
        assert second.counts.tolist() == first.counts.tolist()

    def test_is_one_hidden_file_that_no_pattern_matches(self, four_shards):
        index = open_index(four_shards)
        assert len(index_files(four_shards)) == 1
        assert index_files(four_shards)[0].startswith(".index-")
        assert len(open_index(f"{four_shards}/*").corpus) == len(index)

    @pytest.mark.parametrize("change", ["resized", "same size, other time", "replaced by an older file"])
    def test_changed_shard_alone_is_scanned_again(self, four_shards, scanned, change):
        open_index(four_shards)
        scanned.clear()
        path = four_shards / "2.tfrecord"
        if change == "resized":
            write_shard(path, [9] * 7)
        else:
            write_shard(path, [2] * 5)
            if change.startswith("replaced"):
                os.utime(path, ns=(5, 5))
        assert open_index(four_shards).lengths(2, 0, 5).tolist() == ([9] * 5 if change == "resized" else [2] * 5)
        assert scanned == ["2.tfrecord"]
        open_index(four_shards)
        assert scanned == ["2.tfrecord"]

    def test_new_shard_alone_is_scanned_and_the_old_file_goes(self, four_shards, scanned):
        open_index(four_shards)
        write_shard(four_shards / "10.tfrecord", [4, 4])
        scanned.clear()
        assert open_index(four_shards).counts.tolist() == [3, 0, 2, 5, 1]
        assert scanned == ["10.tfrecord"]
        assert len(index_files(four_shards)) == 1

    def test_subset_of_an_indexed_folder_is_not_scanned(self, four_shards, scanned):
        open_index(four_shards)
        scanned.clear()
        assert open_index(f"{four_shards}/[02].tfrecord").counts.tolist() == [3, 5]
        assert open_index(four_shards).counts.tolist() == list(COUNTS)
        assert scanned == []
        assert len(index_files(four_shards)) == 2

    def test_parts_indexed_in_their_folders_make_the_whole(self, four_shards, tmp_path, scanned):
        shutil.copytree(four_shards, tmp_path / "other")
        open_index(four_shards)
        open_index(tmp_path / "other")
        scanned.clear()
        index = open_index([four_shards, tmp_path / "other"])
        assert (index.corpus.name(0), index.corpus.name(4)) == ("corpus/0.tfrecord", "other/0.tfrecord")
        assert index.counts.tolist() == list(COUNTS) * 2
        assert scanned == []

    def test_moved_corpus_is_not_scanned(self, four_shards, tmp_path, scanned):
        open_index(four_shards)
        four_shards.rename(tmp_path / "moved")
        scanned.clear()
        index = open_index(tmp_path / "moved")
        assert index.path(0) == str(tmp_path / "moved" / "0.tfrecord")
        assert scanned == []

    def test_copy_with_other_times_is_scanned(self, four_shards, tmp_path, scanned):
        open_index(four_shards)
        shutil.copytree(four_shards, tmp_path / "copy")
        for shard in (0, 1, 2):
            touch_later(tmp_path / "copy" / f"{shard}.tfrecord")
        scanned.clear()
        open_index(tmp_path / "copy")
        assert sorted(scanned) == ["0.tfrecord", "1.tfrecord", "2.tfrecord"]

    @pytest.mark.parametrize("compression_type", ["none", None, "auto"])
    def test_compression_that_is_asked_for_agrees(self, four_shards, scanned, compression_type):
        open_index(four_shards)
        scanned.clear()
        open_index(four_shards, compression_type=compression_type)
        assert scanned == []

    def test_compression_that_is_asked_for_differs(self, four_shards):
        open_index(four_shards)
        with pytest.raises(CorruptShardError):
            open_index(four_shards, compression_type="gzip")


class TestDistrust:
    @pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "text", "version"])
    def test_file_that_is_not_sound_is_built_anew_and_told_of(self, four_shards, scanned, caplog, monkeypatch, damage):
        path = open_index(four_shards).file_path
        with open(path, "rb") as file:
            data = bytearray(file.read())
        whole = bytes(data)
        if damage == "flipped":
            data[data.index(b"0.tfrecord")] ^= 1
        elif damage == "version":
            data[8] = 99
        data = {"cut": data[:-1], "emptied": b"", "text": b"0 16\n" * 200}.get(damage, data)
        with open(path, "wb") as file:
            file.write(data)
        scanned.clear()
        assert open_index(four_shards).counts.tolist() == list(COUNTS)
        assert len(scanned) == 4
        assert f"index {path}: it" in caplog.text or f"index {path}: page 0 of its names is damaged" in caplog.text
        with open(path, "rb") as file:
            assert file.read() == whole

    @pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
    def test_anything_else_of_the_name_of_an_index_is_passed_over(self, four_shards, caplog, make):
        """A pipe would make us wait for ever."""
        make(four_shards / ".index-0.shardmix")
        assert open_index(four_shards).counts.tolist() == list(COUNTS)
        assert ".index-0.shardmix: it is no regular file; the shards are scanned again" in caplog.text

    def test_index_of_the_same_names_elsewhere_is_checked_against_the_shards(self, four_shards, tmp_path):
        path = open_index(four_shards).file_path
        other = tmp_path / "other"
        other.mkdir()
        for shard in range(4):
            write_shard(other / f"{shard}.tfrecord", [50])
        shutil.copy(path, other)
        assert open_index(other).counts.tolist() == [1, 1, 1, 1]

    def test_damage_found_at_first_use_names_the_index(self, four_shards, monkeypatch):
        monkeypatch.setattr(index_file, "CHECKED_AT_ONCE_BYTES", 0)
        path = open_index(four_shards).file_path
        with open(path, "r+b") as file:
            data = file.read()
            file.seek(data.rindex(bytes(range(5))))
            file.write(b"\x07")
        index = open_index(four_shards)
        with pytest.raises(StaleIndexError, match=f"{path}: page 0 of its deltas is damaged; remove this file") as caught:
            index.lengths(2, 0, 5)
        assert caught.value.path == path


class TestDamage:
    @pytest.fixture
    def cut(self, four_shards):
        path = four_shards / "2.tfrecord"
        path.write_bytes(path.read_bytes()[:60])
        return four_shards

    def test_raise_names_the_place(self, cut):
        with pytest.raises(CorruptShardError, match=r"2.tfrecord record 3 at byte 51: ") as caught:
            open_index(cut)
        assert (caught.value.record, caught.value.offset) == (3, 51)

    def test_what_was_scanned_before_the_error_is_kept(self, cut, scanned):
        with pytest.raises(CorruptShardError):
            open_index(cut)
        scanned.clear()
        write_shard(cut / "2.tfrecord", [1])
        assert open_index(cut).counts.tolist() == [3, 0, 1, 1]
        assert "0.tfrecord" not in scanned
        assert len(index_files(cut)) == 1

    def test_first_damage_in_listing_order_is_raised(self, cut):
        (cut / "3.tfrecord").write_bytes(b"no record")
        for _ in range(5):
            with pytest.raises(CorruptShardError, match="2.tfrecord"):
                open_index(cut, index="memory")

    def test_skip_keeps_the_records_before_it_and_tells_every_time(self, cut, scanned, caplog):
        for _ in range(2):
            index = open_index(cut, on_corrupt="skip")
            assert index.counts.tolist() == [3, 0, 3, 1]
            assert [(damage.record, damage.offset) for damage in index.damages] == [(3, 51)]
            assert len(caplog.messages) == 1
            assert "2.tfrecord record 3 at byte 51: " in caplog.messages[0]
            caplog.clear()
        assert len(scanned) == 4

    def test_its_repr_says_what_is_cut_off(self, cut):
        index = open_index(cut, on_corrupt="skip")
        assert repr(index) == f"<Index of 7 records in 4 shards, 1 of them cut off, below {str(cut)!r}>"

    def test_raise_does_not_believe_an_index_made_by_skip(self, cut):
        open_index(cut, on_corrupt="skip")
        with pytest.raises(CorruptShardError, match=r"2.tfrecord record 3 at byte 51"):
            open_index(cut, on_corrupt="raise")

    def test_place_of_a_damage_moves_with_the_corpus(self, cut, tmp_path):
        open_index(cut, on_corrupt="skip")
        cut.rename(tmp_path / "moved")
        (damage,) = open_index(tmp_path / "moved", on_corrupt="skip").damages
        assert str(damage).count("2.tfrecord") == 1
        assert damage.path == str(tmp_path / "moved" / "2.tfrecord")

    def test_unknown_policy(self, four_shards):
        with pytest.raises(ValueError, match="on_corrupt is 'ignore'"):
            open_index(four_shards, on_corrupt="ignore")


class TestBuild:
    def test_any_executor_does_the_work(self, four_shards, scanned):
        with ThreadPoolExecutor(2) as executor:
            assert build_index(four_shards, executor=executor).counts.tolist() == list(COUNTS)
            executor.submit(int).result()
        assert len(scanned) == 4

    def test_work_is_picklable(self, four_shards):
        scan_paths = pickle.loads(pickle.dumps(index_scan.scan_paths))
        (entry,), error = scan_paths([str(four_shards / "2.tfrecord")], "auto", "raise")
        assert (entry.num_records, entry.deltas, error) == (5, bytes(range(5)), None)
        pickle.dumps(entry)

    def test_progress_counts_the_shards_to_scan(self, four_shards):
        calls = []
        build_index(four_shards, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(1, 4), (2, 4), (3, 4), (4, 4)]
        write_shard(four_shards / "2.tfrecord", [1])
        calls.clear()
        build_index(four_shards, progress=lambda done, total: calls.append((done, total)))
        assert calls == [(1, 1)]

    @pytest.mark.parametrize(("progress", "is_terminal", "seconds", "is_shown"), [
        (None, True, 3.0, True),
        (None, True, 1.0, False),
        (None, False, 3.0, False),
        (True, False, 0.0, True),
        (False, True, 3.0, False),
    ])  # fmt: skip
    def test_bar(self, four_shards, capsys, monkeypatch, nothing_left, progress, is_terminal, seconds, is_shown):
        monkeypatch.setattr(sys.stderr, "isatty", lambda: is_terminal)
        clock = iter([100.0])
        monkeypatch.setattr(time, "monotonic", lambda: next(clock, 100.0 + seconds))
        build_index(four_shards, progress=progress)
        assert ("indexing" in capsys.readouterr().err) is is_shown

    def test_interrupt_keeps_what_was_scanned(self, four_shards, scanned):
        def interrupt(done, total):
            if done == 2:
                raise KeyboardInterrupt

        with ThreadPoolExecutor(1) as executor, pytest.raises(KeyboardInterrupt):
            build_index(four_shards, executor=executor, progress=interrupt)
        scanned.clear()
        assert build_index(four_shards).counts.tolist() == list(COUNTS)
        assert not {"0.tfrecord", "1.tfrecord"} & set(scanned)

    def test_tasks_are_neither_tiny_nor_few(self):
        corpus = make_index(np.ones(10_000, np.int64), 1).corpus
        sizes = [len(task.shards) for task in index_scan._make_tasks(corpus, list(range(10_000)), 4)]
        assert (sum(sizes), max(sizes)) == (10_000, 64)
        assert [len(task.shards) for task in index_scan._make_tasks(corpus, [3, 5, 8], 4)] == [1, 1, 1]


class TestRemote:
    @pytest.fixture
    def url(self, four_shards):
        fsspec = pytest.importorskip("fsspec")
        filesystem = fsspec.filesystem("memory")
        for name in os.listdir(four_shards):
            filesystem.pipe(f"/bucket/{name}", (four_shards / name).read_bytes())
        yield "memory://bucket/*.tfrecord"
        filesystem.rm("/bucket", recursive=True)

    def test_without_an_index_the_error_prints_the_command(self, url):
        with pytest.raises(FileNotFoundError, match=r"4 shards .* do it once: shardmix index 'memory://bucket/\*.tfrecord'$"):
            open_index(url)

    def test_built_once_it_is_read(self, url, scanned):
        assert build_index(url).counts.tolist() == list(COUNTS)
        index = open_index(url)
        assert (len(scanned), index.lengths(2, 0, 5).tolist()) == (4, [0, 1, 2, 3, 4])
        assert index.path(0).endswith("/bucket/0.tfrecord")
        index.check(0)
