"""`shardmix verify`: everything that is wrong is found, and every sound record is kept."""

from __future__ import annotations

import zlib
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate

import pytest

from shardmix import ShardWriter, build_index, read_records
from shardmix.format.framing import frame_record
from shardmix.tools.verify import VerifyTask, verify_shard, verify_shards

PAYLOADS = [b"first", b"", b"a third record", b"\x00\x01\x02", b"the last"]
FRAMES = [frame_record(payload) for payload in PAYLOADS]
PLAIN = b"".join(FRAMES)
BEGINS = [0, *accumulate(map(len, FRAMES))]


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "corpus" / "shard"
    path.parent.mkdir()
    return path


def verify_bytes(path, data, copy=None):
    path.write_bytes(data)
    return verify_shard(VerifyTask(str(path), "auto", None, None if copy is None else str(copy)))


class TestFindings:
    def test_every_flipped_bit_is_found_and_every_other_record_kept(self, path, tmp_path):
        for place in range(len(PLAIN)):
            frame = next(number for number, end in enumerate(BEGINS[1:]) if place < end)
            kept = PAYLOADS[:frame] + PAYLOADS[frame + 1 :]
            for bit in range(8):
                data = PLAIN[:place] + bytes([PLAIN[place] ^ 1 << bit]) + PLAIN[place + 1 :]
                is_copied = bit == place % 8  # a copy waits for the disk
                report = verify_bytes(path, data, tmp_path / "copy" if is_copied else None)
                (finding,) = report.findings
                assert (finding.path, finding.offset, finding.record) == (str(path), BEGINS[frame], frame)
                assert report.records == len(kept)
                if is_copied:
                    assert list(read_records(tmp_path / "copy")) == kept

    def test_every_cut_inside_a_record_is_found(self, path):
        for stop in set(range(len(PLAIN))) - set(BEGINS):
            (finding,) = verify_bytes(path, PLAIN[:stop]).findings
            assert finding.kind == ("no shard" if stop < 12 else "cut")

    def test_every_cut_between_records_is_found_where_an_index_knows_the_count(self, path):
        path.write_bytes(PLAIN)
        assert verify_shards(str(path)).findings == ()
        build_index(str(path))
        for number, stop in enumerate(BEGINS[:-1]):
            path.write_bytes(PLAIN[:stop])
            (finding,) = verify_shards(str(path)).findings
            assert finding.kind == "count"
            assert f"{number} sound record" in finding.text
            assert "its index says 5" in finding.text

    def test_all_findings_of_a_shard_are_named_with_their_places(self, path):
        damaged = bytearray(PLAIN)
        damaged[BEGINS[0] + 12] ^= 1  # payload 0
        damaged[BEGINS[2] + 3] ^= 1  # length 2
        damaged[BEGINS[4] + 13] ^= 1  # payload 4
        findings = verify_bytes(path, bytes(damaged)).findings
        assert [(finding.kind, finding.record, finding.offset) for finding in findings] == [
            ("payload", 0, BEGINS[0]),
            ("framing", 2, BEGINS[2]),
            ("payload", None, BEGINS[4]),  # how many records the damage before swallowed is not known
        ]
        assert f"the next sound record begins at byte {BEGINS[3]}" in findings[1].text

    def test_bytes_between_records_are_lost_and_nothing_else(self, path, tmp_path):
        report = verify_bytes(path, FRAMES[0] + b"garbage" * 300 + FRAMES[1] + FRAMES[2], tmp_path / "copy")
        assert report.records == 3
        assert "2100 bytes are lost" in report.findings[0].text

    def test_a_gap_larger_than_a_block_is_crossed(self, path):
        report = verify_bytes(path, FRAMES[0] + bytes(3 << 20) + FRAMES[2])
        assert report.records == 2

    def test_damage_inside_a_compressed_shard(self, path):
        damaged = bytearray(PLAIN)
        damaged[BEGINS[1] + 2] ^= 1
        report = verify_bytes(path, zlib.compress(bytes(damaged)))
        assert (report.compression, report.records, report.findings[0].kind) == ("zlib", 4, "framing")

    def test_a_damaged_compressed_stream_keeps_what_came_before(self, path):
        compressor = zlib.compressobj(wbits=31)
        report = verify_bytes(path, (compressor.compress(PLAIN) + compressor.flush())[:-6])
        assert (report.records, [finding.kind for finding in report.findings]) == (5, ["stream"])

    def test_a_plain_shard_whose_damaged_header_looks_like_zlib_is_read_as_plain(self, path):
        frames = [frame_record(bytes(376)), frame_record(b"next")]  # 376 is 78 01 00 …
        damaged = bytearray(b"".join(frames))
        damaged[8] ^= 1
        report = verify_bytes(path, bytes(damaged))
        assert (report.compression, report.records, report.findings[0].kind) == ("none", 1, "framing")


class TestRepair:
    def test_copies_of_all_shards_under_their_names_with_an_index(self, tmp_path):
        with ShardWriter(tmp_path / "in" / "{}.tfrecord", num_shards=2, compression_type="gzip") as writer:
            for number in range(10):
                writer.write({"id": number})
        (tmp_path / "in" / "empty.tfrecord").touch()
        report = verify_shards(str(tmp_path / "in" / "*"), repair=str(tmp_path / "out"))
        assert [path.rpartition("/")[2] for path in report.repaired] == ["0.tfrecord", "1.tfrecord", "empty.tfrecord"]
        assert build_index(str(tmp_path / "out")).counts.tolist() == [5, 5, 0]
        for name in ("0.tfrecord", "1.tfrecord"):
            assert list(read_records(tmp_path / "out" / name)) == list(read_records(tmp_path / "in" / name))

    def test_nothing_is_overwritten(self, make_corpus, shardmix):
        pattern = make_corpus([2])
        folder = pattern.rpartition("/")[0]
        ran = shardmix("verify", pattern, "--repair", folder)
        assert ran.code == 2
        assert "is there already" in ran.err

    def test_a_failure_leaves_no_copy(self, make_corpus, tmp_path, monkeypatch):
        def fail(*arguments):
            raise OSError(28, "No space left on device", str(tmp_path / "out"))

        pattern = make_corpus([2, 2])
        monkeypatch.setattr("shardmix.tools.verify.publish", fail)
        with pytest.raises(OSError, match="No space left"):
            verify_shards(pattern, repair=str(tmp_path / "out"))
        assert not (tmp_path / "out").exists()


class TestCommand:
    def test_golden(self, golden, shardmix):
        ran = shardmix("verify", golden / "uneven*", "--json")
        assert ran.code == 0
        assert [shard["records"] for shard in ran.data["shards"]] == [7, 0, 101, 40, 23]
        assert ran.data["findings"] == []

    def test_real_files(self, realdata, manifest, shardmix):
        ran = shardmix("verify", *(realdata / row["file"] for row in manifest), "--json")
        found = {shard["path"]: (shard["records"], shard["compression"]) for shard in ran.data["shards"]}
        assert found == {str(realdata / row["file"]): (row["records"], row["compression"]) for row in manifest}
        assert ran.code == 0

    def test_findings_are_the_output(self, path, shardmix):
        path.write_bytes(PLAIN[:-3])
        ran = shardmix("verify", path)
        assert ran.code == 1
        assert ran.out.splitlines()[0].startswith(f"{path} record 4 at byte {BEGINS[4]}: cut: ")
        assert "1 finding in 1 shard: 1 cut" in ran.out

    def test_any_executor(self, make_corpus):
        pattern = make_corpus([3, 0, 2])
        with ThreadPoolExecutor(2) as executor:
            calls = []
            report = verify_shards(pattern, executor=executor, progress=lambda done, total: calls.append((done, total)))
        assert [shard.records for shard in report.shards] == [3, 0, 2]
        assert calls == [(1, 3), (2, 3), (3, 3)]
