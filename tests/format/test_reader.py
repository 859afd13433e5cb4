"""Reading one file as a stream of records."""

from __future__ import annotations

import gzip
import logging
import os
import tracemalloc
import zlib

import numpy as np
import pytest

from shardmix import CorruptShardError, read_records
from shardmix.format.framing import frame_header, frame_record

PAYLOADS = [b"first", b"", b"third", bytes(1000)]
FRAMES = [frame_record(payload) for payload in PAYLOADS]


@pytest.fixture
def write(tmp_path):
    def write(data, name="shard"):
        path = tmp_path / name
        path.write_bytes(data)
        return path

    return write


def read(path, **options):
    return [bytes(payload) for payload in read_records(path, **options)]


class TestReadRecords:
    @pytest.mark.parametrize("compress", [bytes, gzip.compress, zlib.compress], ids=["none", "gzip", "zlib"])
    def test_payloads_in_file_order(self, write, compress):
        path = write(compress(b"".join(FRAMES)))
        assert read(path) == read(str(path)) == PAYLOADS

    @pytest.mark.parametrize("name", ["records.gz", "records.zlib", "records"])
    def test_the_name_does_not_tell_the_compression(self, write, name):
        assert read(write(FRAMES[0], name)) == PAYLOADS[:1]
        assert read(write(gzip.compress(FRAMES[0]), name)) == PAYLOADS[:1]

    @pytest.mark.parametrize("num_bytes", [376, 0x8B1F, 0x9C78])
    def test_a_first_record_whose_length_looks_compressed(self, write, num_bytes):
        assert read(write(frame_record(bytes(num_bytes)) + FRAMES[0])) == [bytes(num_bytes), b"first"]

    def test_compression_can_be_said(self, write):
        assert read(write(gzip.compress(FRAMES[0])), compression_type="GZIP") == [b"first"]
        assert read(write(FRAMES[0]), compression_type=None) == [b"first"]
        with pytest.raises(CorruptShardError, match=r"record 0 at byte 0: the zlib stream is damaged: incorrect header check"):
            read(write(FRAMES[0]), compression_type="zlib")
        with pytest.raises(CorruptShardError, match="begins like gzip, leave compression_type at 'auto'"):
            read(write(gzip.compress(FRAMES[0])), compression_type="none")

    def test_an_empty_file_has_no_records(self, write):
        assert read(write(b"")) == []

    def test_a_record_of_70_mb(self, write):
        path = write(frame_record(bytes(70_000_000)) + FRAMES[0])
        assert [len(payload) for payload in read_records(path)] == [70_000_000, 5]

    def test_changing_a_view_changes_no_other(self, write):
        views = list(read_records(write(b"".join(FRAMES))))
        views[0][:] = b"FIRST"
        assert [bytes(view) for view in views] == [b"FIRST", *PAYLOADS[1:]]
        assert np.frombuffer(views[2], np.uint8).flags.writeable

    def test_views_outlive_the_reader_and_the_file(self, write):
        path = write(b"".join(FRAMES))
        views = list(read_records(path))
        path.write_bytes(b"something else")
        assert [bytes(view) for view in views] == PAYLOADS

    def test_the_file_is_closed_at_the_end_and_on_an_early_stop(self, write):
        path = write(b"".join(FRAMES))
        before = len(os.listdir("/dev/fd"))
        read(path)
        records = read_records(path)
        next(records)
        records.close()
        assert len(os.listdir("/dev/fd")) == before

    def test_wrong_arguments_are_refused_at_once(self, write):
        path = write(FRAMES[0])
        for options in ({"verify": "yes"}, {"on_corrupt": "ignore"}, {"compression_type": "snappy"}):
            (name,) = options
            with pytest.raises(ValueError, match=name):
                read_records(path, **options)

    def test_a_missing_file(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="absent"):
            read(tmp_path / "absent")


class TestVerify:
    DAMAGED_PAYLOAD = FRAMES[0] + b"x".join((FRAMES[2][:12], FRAMES[2][13:]))

    def test_full_checks_payloads(self, write):
        with pytest.raises(CorruptShardError, match="record 1 at byte 21: payload CRC mismatch"):
            read(write(self.DAMAGED_PAYLOAD))

    @pytest.mark.parametrize("verify", ["length", "off"])
    def test_the_other_levels_do_not(self, write, verify):
        assert read(write(self.DAMAGED_PAYLOAD), verify=verify) == [b"first", b"xhird"]

    def test_off_trusts_a_length_whose_crc_is_wrong_as_far_as_the_file_goes(self, write):
        unsound = FRAMES[0][:8] + bytes(4) + FRAMES[0][12:]
        assert read(write(unsound), verify="off", compression_type="none") == [b"first"]
        with pytest.raises(CorruptShardError, match="cut: a payload of"):
            read(write(b"<!DOCTYPE html> and so on"), verify="off")


class TestSkip:
    def test_a_damaged_payload_is_left_out_and_logged(self, write, caplog):
        damaged = bytearray(b"".join(FRAMES))
        damaged[14] ^= 1
        with caplog.at_level(logging.WARNING, "shardmix"):
            assert read(write(damaged), on_corrupt="skip") == PAYLOADS[1:]
        (entry,) = caplog.messages
        assert "record 0 at byte 0: payload CRC mismatch" in entry
        assert entry.endswith("skipped one record")

    def test_lost_framing_ends_the_file_and_is_logged_once(self, write, caplog):
        damaged = bytearray(b"".join(FRAMES))
        damaged[21] ^= 1
        with caplog.at_level(logging.WARNING, "shardmix"):
            assert read(write(damaged), on_corrupt="skip") == PAYLOADS[:1]
        (entry,) = caplog.messages
        assert "record 1 at byte 21: length CRC mismatch" in entry
        assert entry.endswith("skipped the rest of the file")

    def test_every_payload_damaged(self, write, caplog):
        frame = bytearray(FRAMES[0])
        frame[-1] ^= 1
        assert read(write(bytes(frame) * 300), on_corrupt="skip") == []
        assert len(caplog.messages) == 300

    def test_a_broken_stream_gives_what_came_before(self, write, caplog):
        data = gzip.compress(b"".join(FRAMES))
        assert read(write(data[:-2]), on_corrupt="skip") == PAYLOADS
        (entry,) = caplog.messages
        assert "record 4 at byte 1074: the gzip member that begins at compressed byte 0 is damaged: the file ends" in entry


# A wrong file, by name: what it begins with. Each is some 3,000 bytes long.
WRONG_FILES = {
    "a JPEG": b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01" + bytes(3000),
    "a JSON file": b'{"records": [' + b"1, " * 1000 + b"1]}",
    "an HTML page": b"<!DOCTYPE html><html><body>" + b"text" * 700,
    "a length of 2^63": frame_header(2**63) + bytes(3000),
    "a length of 2^64 - 1": frame_header(2**64 - 1) + bytes(3000),
    "a length of a terabyte": frame_header(2**40) + bytes(3000),
    "zeros": bytes(3000),
    "text that begins like zlib": b"x^2 + y^2 = z^2" * 200,
    "a gzip header with nothing sound behind it": b"\x1f\x8b\x08\x00" + b"\xff" * 3000,
    "a length of 2^63, in gzip": gzip.compress(frame_header(2**63) + bytes(3000)),
    "a length of a terabyte, in gzip": gzip.compress(frame_header(2**40) + bytes(3000)),
    "a length of a terabyte, in zlib": zlib.compress(frame_header(2**40) + bytes(3000)),
    "a hundred million zeros, in gzip": gzip.compress(bytes(100_000_000), 1),
}


@pytest.mark.parametrize("name", WRONG_FILES)
@pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
def test_a_wrong_file_is_told_at_its_first_byte_without_large_memory(write, name, on_corrupt, caplog):
    path = write(WRONG_FILES[name])
    tracemalloc.start()
    try:
        if on_corrupt == "skip":
            assert read(path, on_corrupt="skip") == []
            assert len(caplog.messages) == 1
        else:
            with pytest.raises(CorruptShardError) as caught:
                read(path)
            assert (caught.value.path, caught.value.record, caught.value.offset) == (str(path), 0, 0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 4_000_000
