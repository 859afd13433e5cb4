"""The bytes of an index file: what is damaged, cut or of another version is refused; what is written is whole or not there."""

from __future__ import annotations

import errno
import hashlib
import os
import struct
import time

import numpy as np
import pytest

from shardmix.format import index_file
from shardmix.format.corpus import Corpus
from shardmix.format.index_file import MAGIC, IndexFile, IndexFileError, write_index_file
from shardmix.format.index_table import IndexColumns, make_columns, make_entry

SMALL = ([784] * 9, [], [5, 7], list(range(20)))
LARGE = ([784] * 9, [], [5, 7], list(range(1500)))


def columns(shards=SMALL):
    corpus = Corpus.of_paths([f"/d/{shard}" for shard in range(len(shards))])
    entries = [make_entry(100, 5, "gzip", np.array(lengths, np.int64), ((0, 0),)) for lengths in shards]
    return make_columns(corpus.names, corpus.ends, entries)


@pytest.fixture
def path(tmp_path):
    path = str(tmp_path / ".index-0.shardmix")
    write_index_file(path, columns())
    return path


def contents(path):
    with open(path, "rb") as file:
        return file.read()


def equal(got, expected):
    return all(np.array_equal(one, other) for one, other in zip(got, expected, strict=True))


class TestRead:
    def test_gives_what_was_written(self, path):
        assert equal(IndexFile(path).table.columns, columns())

    def test_is_mapped_and_read_only(self, path):
        counts = IndexFile(path).table.columns.counts
        assert not counts.flags.owndata
        with pytest.raises(ValueError, match="read-only"):
            counts[0] = 1

    def test_every_changed_byte_is_refused_or_changes_nothing(self, path, tmp_path):
        data = contents(path)
        for place in range(len(data)):
            damaged = bytearray(data)
            damaged[place] ^= 0xFF
            (tmp_path / "damaged").write_bytes(damaged)
            try:
                got = IndexFile(str(tmp_path / "damaged")).table.columns
            except IndexFileError:
                continue
            assert data[place] == 0
            assert equal(got, columns())

    def test_every_cut_is_refused(self, path, tmp_path):
        data = contents(path)
        for num_bytes in (*range(300), *range(300, len(data), 11), len(data) - 1):
            (tmp_path / "cut").write_bytes(data[:num_bytes])
            with pytest.raises(IndexFileError, match="too short|was written with"):
                IndexFile(str(tmp_path / "cut"))
        (tmp_path / "cut").write_bytes(data + b"\0")
        with pytest.raises(IndexFileError, match=f"it has {len(data) + 1} bytes, and was written with {len(data)}"):
            IndexFile(str(tmp_path / "cut"))

    def test_another_version_is_named(self, path, tmp_path, monkeypatch):
        monkeypatch.setattr(index_file, "VERSION", 7)
        write_index_file(path, columns())
        monkeypatch.undo()
        with pytest.raises(IndexFileError, match="it is of version 7, and this shardmix reads version 1"):
            IndexFile(path)

    @pytest.mark.parametrize("data", [b"\0" * 500, MAGIC + b"\xff" * 500, b"0 100\n" * 99])
    def test_anything_else_is_refused(self, tmp_path, data):
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(IndexFileError):
            IndexFile(str(tmp_path / "x"))

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            ("counts", [1, 2, 3]),
            ("counts", [9, 0, 2, 2**61]),
            ("counts", [2**61, 0, 2, 20]),
            ("counts", [-1, 0, 2, 20]),
            ("bases", [2**63 - 1, 0, 5, 0]),
            ("bases", [-1, 0, 5, 0]),
            ("sizes", [2**62] * 4),
            ("sizes", [0] * 4),
            ("widths", [3, 0, 1, 2]),
            ("compressions", [0, 1, 2, 3]),
            ("deltas", [1] * 8),
            ("name_ends", [0, 9, 2, 3, 4]),
            ("members", [0, 0]),
            ("members", [2, 0, 0, 1, 0, 0]),
            ("damages", list(b"[[0, 1, 2, 3]]")),
            ("damages", list(b'[[4, "text", null, null]]')),
            ("damages", list(b'[["0", "text", null, null]]')),
            ("damages", list(b'[[0, "text"]]')),
            ("damages", list(b"[" * 100_000)),
            ("damages", list(b"\xff")),
        ],
    )
    def test_columns_that_do_not_fit_together_are_refused(self, tmp_path, name, value):
        """Whoever wrote them, with checksums and all."""
        path = str(tmp_path / "x")
        write_index_file(path, columns()._replace(**{name: np.array(value, getattr(columns(), name).dtype)}))
        with pytest.raises(IndexFileError, match="its|impossible|unknown"):
            IndexFile(path)

    @pytest.mark.parametrize("name", ["counts", "damages"])
    @pytest.mark.parametrize("section", [(0, 2**63), (2**63, 0), (2**64 - 1, 8), (8, 12), (40, 10_000)])
    def test_columns_with_no_place_in_the_file_are_refused(self, path, name, section):
        data, num_columns = bytearray(contents(path)), len(IndexColumns._fields)
        struct.pack_into("<QQ", data, 40 + 16 * IndexColumns._fields.index(name), *section)
        sizes = struct.unpack_from(f"<{2 * num_columns}Q", data, 40)[1::2]
        end = 40 + 16 * num_columns + 4 * sum(-(-num_bytes // index_file.PAGE_BYTES) for num_bytes in sizes)
        data[16:32] = hashlib.blake2b(data[32:end], digest_size=16).digest()
        with open(path, "wb") as file:
            file.write(data)
        with pytest.raises(IndexFileError):
            IndexFile(path)

    def test_a_pipe_or_a_folder_of_its_name_is_refused(self, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        for path in (tmp_path / "pipe", tmp_path):
            with pytest.raises(IndexFileError, match="it is no regular file"):
                IndexFile(str(path))


class TestLargeIndex:
    """Deltas beyond a limit are checked when they are first used, not when the file is opened."""

    @pytest.fixture
    def damaged(self, tmp_path, monkeypatch):
        monkeypatch.setattr(index_file, "CHECKED_AT_ONCE_BYTES", 0)
        monkeypatch.setattr(index_file, "PAGE_BYTES", 256)
        path = str(tmp_path / "large.shardmix")
        write_index_file(path, columns(LARGE))
        deltas = columns(LARGE).deltas.tobytes()
        data = bytearray(contents(path))
        data[data.index(deltas) + 2500] ^= 1  # record 1246 of shard 3: its deltas of two bytes begin at byte 8
        with open(path, "wb") as file:
            file.write(data)
        return IndexFile(path)

    def test_sound_pages_are_given(self, damaged):
        damaged.check_records(2, 0, 2)
        damaged.check_records(3, 100, 200)
        damaged.check_records(3, 1300, 1100)

    @pytest.mark.parametrize(("first", "stop"), [(1246, 1247), (0, 1500), (1400, 1500)])
    def test_damaged_page_is_named(self, damaged, first, stop):
        with pytest.raises(IndexFileError, match="page 9 of its deltas is damaged"):
            damaged.check_records(3, first, stop)


class TestWrite:
    def test_is_readable_for_whom_the_umask_says(self, path):
        umask = os.umask(0)
        os.umask(umask)
        assert os.stat(path).st_mode & 0o777 == 0o666 & ~umask

    @pytest.mark.parametrize("failing", ["fsync", "replace"])
    def test_failure_leaves_the_old_file_and_nothing_else(self, path, monkeypatch, failing):
        before = contents(path)

        def fail(*arguments):
            raise OSError(errno.ENOSPC, "No space left on device")

        monkeypatch.setattr(index_file.os, failing, fail)
        with pytest.raises(OSError, match="No space left"):
            write_index_file(path, columns()._replace(sizes=np.full(4, 200)))
        monkeypatch.undo()
        assert contents(path) == before
        assert os.listdir(os.path.dirname(path)) == [os.path.basename(path)]

    def test_abandoned_file_is_removed_a_day_later(self, path):
        folder, name = os.path.split(path)
        names = (f"{name}.1.unfinished", f"{name}.2.unfinished", ".x.3.unfinished")
        old, young, other = (os.path.join(folder, file) for file in names)
        for file in (old, young, other):
            with open(file, "wb"):
                pass
        for file in (old, other):
            os.utime(file, (time.time() - 2 * index_file.ABANDONED_SECONDS,) * 2)
        write_index_file(path, columns())
        assert sorted(os.listdir(folder)) == sorted(map(os.path.basename, (path, young, other)))

    def test_who_has_mapped_the_old_file_goes_on_with_it(self, path):
        file = IndexFile(path)
        write_index_file(path, columns()._replace(sizes=np.full(4, 200)))
        assert file.table.columns.sizes.tolist() == [100] * 4
        assert not file.is_current()
        assert IndexFile(path).is_current()

    def test_equal_content_has_an_equal_fingerprint(self, path):
        file = IndexFile(path)
        write_index_file(path, columns())
        assert file.is_current()
