"""The text index of the tfrecord package and DALI: written and read alike, and believed only as far as the shard bears it out."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from shardmix.format import idx
from shardmix.format.framing import frame_record
from shardmix.format.idx import lengths_from_idx, read_idx, write_idx
from shardmix.format.index import open_index
from tests.format.small_shards import write_shard

LENGTHS = (0, 1, 300, 5)


@pytest.fixture
def shard(tmp_path):
    path = tmp_path / "a.tfrecord"
    write_shard(path, LENGTHS)
    return path


def run_tool(*arguments):
    """The tfrecord package's own program, without the package around it (which imports torch)."""
    spec = find_spec("tfrecord")
    tool = Path(spec.submodule_search_locations[0]) / "tools" / "tfrecord2idx.py"
    subprocess.run([sys.executable, tool, *map(str, arguments)], check=True)


class TestRoundTrip:
    def test_equals_what_the_tool_writes(self, shard, tmp_path):
        run_tool(shard, tmp_path / "tool.idx")
        write_idx(str(tmp_path / "ours.idx"), np.array(LENGTHS))
        assert (tmp_path / "ours.idx").read_bytes() == (tmp_path / "tool.idx").read_bytes()

    def test_the_tools_index_of_a_folder_is_found(self, shard, scanned):
        run_tool(shard.parent)
        assert (shard.parent / "a.tfindex").exists()
        assert open_index(shard).lengths(0, 0, 4).tolist() == list(LENGTHS)
        assert scanned == []

    def test_golden_files(self, golden_dir, tmp_path):
        for name in ("examples.tfrecord", "empty.tfrecord", "zero_length.tfrecord", "uneven-00003-of-00005"):
            index = open_index(golden_dir / name, index="memory")
            write_idx(str(tmp_path / "ours.idx"), index.lengths(0, 0, index.counts[0]))
            run_tool(golden_dir / name, tmp_path / "tool.idx")
            assert (tmp_path / "ours.idx").read_bytes() == (tmp_path / "tool.idx").read_bytes()

    @pytest.mark.parametrize("lengths", [(), (0,), LENGTHS, (2**40, 7)])
    def test_read_gives_what_was_written(self, tmp_path, lengths):
        path = str(tmp_path / "x.idx")
        write_idx(path, np.array(lengths, np.int64))
        sizes = [length + 16 for length in lengths]
        assert read_idx(path).tolist() == [[sum(sizes[:record]), size] for record, size in enumerate(sizes)]

    @pytest.mark.parametrize("text", [b"0", b"0 16 16", b"0 sixteen", b"0 1.5", b"0 99999999999999999999", b"\xff\xfe", b"0 \0"])
    def test_anything_else_is_refused(self, tmp_path, text):
        (tmp_path / "x.idx").write_bytes(text)
        with pytest.raises(ValueError, match=r"x.idx: a line of a text index is 'offset size', got b"):
            read_idx(str(tmp_path / "x.idx"))

    def test_failure_leaves_the_old_file_and_nothing_else(self, tmp_path, monkeypatch):
        path = tmp_path / "x.idx"
        path.write_bytes(b"old")

        def fail(*arguments):
            raise PermissionError

        monkeypatch.setattr(idx.os, "replace", fail)
        with pytest.raises(PermissionError):
            write_idx(str(path), np.array([1]))
        assert (path.read_bytes(), os.listdir(tmp_path)) == (b"old", ["x.idx"])


class TestBelief:
    @pytest.mark.parametrize("name", ["a.tfrecord.idx", "a.idx", "a.tfindex"])
    def test_sound_one_saves_the_scan(self, shard, scanned, name):
        write_idx(str(shard.parent / name), np.array(LENGTHS))
        index = open_index(shard.parent)
        assert (scanned, index.counts.tolist(), index.offset(0, 3)) == ([], [4], 349)

    @pytest.mark.parametrize(
        "claim",
        [
            b"",
            b"nonsense",
            b"0 16\n16 17\n33 316\n",  # ends before the file does
            b"0 16\n16 17\n33 316\n349 21\n370 16\n",  # goes on behind it
            b"0 16\n16 17\n33 317\n350 20\n",  # ends right, but one boundary is wrong
            b"0 33\n33 316\n349 21\n",  # two records as one
            b"16 17\n0 16\n33 316\n349 21\n",  # another order
            b"0 16\n16 17\n33 316\n349 5\n354 16\n",  # a frame shorter than its framing
            b"0 -16\n-16 386\n",
            b"0 370\n",
            b"0 9223372036854775807\n9223372036854775807 371\n",
        ],
    )
    def test_one_that_the_shard_does_not_bear_out_is_left_aside(self, shard, scanned, claim):
        (shard.parent / "a.idx").write_bytes(claim)
        assert open_index(shard).lengths(0, 0, 4).tolist() == list(LENGTHS)
        assert scanned == ["a.tfrecord"]

    @pytest.mark.parametrize("claim", [b"0 16\n" * 5000, b"0 1" + b"6" * 5000])
    def test_one_that_is_larger_than_any_of_the_shard_is_not_read(self, shard, scanned, monkeypatch, claim):
        """Files of other formats are called .idx as well, and may be of any size."""
        (shard.parent / "a.idx").write_bytes(claim)
        monkeypatch.setattr(idx, "read_idx", None)
        assert open_index(shard).counts.tolist() == [4]
        assert scanned == ["a.tfrecord"]

    def test_a_long_word_takes_no_memory(self, tmp_path):
        """An array of text is as wide as its longest word: this one would take 20 GB."""
        (tmp_path / "a.idx").write_bytes(b"0 16\n" * 100_000 + b"1" * 100_000)
        with pytest.raises(ValueError, match="a line of a text index is 'offset size'"):
            read_idx(str(tmp_path / "a.idx"))

    def test_one_that_is_older_than_the_shard_is_left_aside(self, shard, scanned):
        write_idx(str(shard.parent / "a.idx"), np.array(LENGTHS))
        os.utime(shard.parent / "a.idx", ns=(5, 5))
        open_index(shard)
        assert scanned == ["a.tfrecord"]

    def test_damaged_header_under_a_matching_claim_is_found_by_the_scan(self, shard, scanned):
        data = bytearray(shard.read_bytes())
        data[33 + 8] ^= 1
        shard.write_bytes(data)
        write_idx(str(shard.parent / "a.idx"), np.array(LENGTHS))
        assert open_index(shard, on_corrupt="skip").counts.tolist() == [2]
        assert scanned == ["a.tfrecord"]

    def test_many_records_are_looked_at_here_and_there(self, tmp_path, monkeypatch):
        path = tmp_path / "a.tfrecord"
        path.write_bytes(b"".join(frame_record(bytes(5)) for _ in range(5000)))
        write_idx(str(tmp_path / "a.idx"), np.full(5000, 5))
        reads = []
        pread = os.pread
        monkeypatch.setattr(idx.os, "pread", lambda *arguments: reads.append(arguments[2]) or pread(*arguments))
        assert len(lengths_from_idx(str(path))) == 5000
        assert (len(reads), reads[0], reads[-1]) == (256, 0, 4999 * 21)

    def test_compressed_shard_has_none(self, shard, scanned):
        import gzip

        shard.write_bytes(gzip.compress(shard.read_bytes()))
        (shard.parent / "a.idx").write_text(f"0 {shard.stat().st_size}\n")
        assert open_index(shard).compression(0) == "gzip"
        assert scanned == ["a.tfrecord"]
