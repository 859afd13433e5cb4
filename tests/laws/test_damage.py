"""Law 2: flip every bit, cut at every byte of a small shard.

Plain: the intact prefix, and a CorruptShardError that names the place. gzip and zlib: never a wrong record, never another
exception.
"""

from __future__ import annotations

import logging
import zlib
from bisect import bisect_right
from itertools import accumulate

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardmix import CorruptShardError, read_records
from shardmix.format.framing import frame_record
from shardmix.format.scan import scan_shard

PAYLOADS = [b"first", b"", b"a third record", b"\x00\x01\x02"]
FRAMES = [frame_record(payload) for payload in PAYLOADS]
PLAIN = b"".join(FRAMES)
BEGINS = [0, *accumulate(map(len, FRAMES))]  # where each frame begins, and the end


def store(compression):
    """The shard, compressed as said; in gzip as two members."""
    if compression == "zlib":
        return zlib.compress(PLAIN)
    half = BEGINS[2]
    members = []
    for part in (PLAIN[:half], PLAIN[half:]):
        compressor = zlib.compressobj(wbits=31)
        members.append(compressor.compress(part) + compressor.flush())
    return b"".join(members)


def flips(data):
    """Every copy of the data with one bit changed: (byte, copy)."""
    for place in range(len(data)):
        for bit in range(8):
            yield place, data[:place] + bytes([data[place] ^ 1 << bit]) + data[place + 1 :]


def read(path, **options):
    """(records, the error behind them or None)."""
    records = []
    try:
        for payload in read_records(path, **options):
            records.append(bytes(payload))
    except CorruptShardError as error:
        return records, error
    return records, None


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "shard"
    path.touch()
    return path


def put(path, data):
    """Make the data the content of the file; in place, which is many times faster than a new file."""
    with open(path, "r+b") as file:
        file.write(data)
        if file.seek(0, 2) > len(data):
            file.truncate(len(data))


class TestPlain:
    def test_every_flipped_bit(self, path):
        for place, data in flips(PLAIN):
            put(path, data)
            records, error = read(path)
            frame = bisect_right(BEGINS, place) - 1
            assert records == PAYLOADS[:frame]
            assert (error.path, error.record, error.offset) == (str(path), frame, BEGINS[frame])
            is_header = place - BEGINS[frame] < 12
            assert ("length CRC mismatch" if is_header else "payload CRC mismatch") in str(error)

    def test_every_flipped_bit_skipped(self, path, caplog):
        for place, data in flips(PLAIN):
            put(path, data)
            caplog.clear()
            with caplog.at_level(logging.WARNING, "shardmix"):
                records, error = read(path, on_corrupt="skip")
            frame = bisect_right(BEGINS, place) - 1
            is_header = place - BEGINS[frame] < 12
            assert records == PAYLOADS[:frame] + ([] if is_header else PAYLOADS[frame + 1 :])
            assert (error, len(caplog.messages)) == (None, 1)

    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_every_cut(self, path, verify):
        for stop in range(len(PLAIN)):
            put(path, PLAIN[:stop])
            records, error = read(path, verify=verify)
            frame = bisect_right(BEGINS, stop) - 1
            assert records == PAYLOADS[:frame]
            if stop == BEGINS[frame]:  # a shorter shard; only the index can tell
                assert error is None
            else:
                assert (error.path, error.record, error.offset) == (str(path), frame, BEGINS[frame])
                assert "cut: " in str(error)


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
class TestCompressed:
    @pytest.mark.parametrize("said", [False, True], ids=["told from the content", "said"])
    @pytest.mark.parametrize("on_corrupt", ["raise", "skip"])
    def test_every_flipped_bit(self, path, compression, said, on_corrupt):
        for _, data in flips(store(compression)):
            put(path, data)
            records, error = read(path, compression_type=compression if said else "auto", on_corrupt=on_corrupt)
            if on_corrupt == "skip":
                assert error is None
                assert is_subsequence(records, PAYLOADS)
            elif error is None:  # a bit that says nothing, such as the time stamp's
                assert records == PAYLOADS
            else:
                assert records == PAYLOADS[: error.record]
                assert (error.path, error.offset) == (str(path), BEGINS[error.record])

    def test_every_cut(self, path, compression):
        data = store(compression)
        second_member = data.index(b"\x1f\x8b\x08", 1) if compression == "gzip" else 0
        for stop in range(1, len(data)):
            put(path, data[:stop])
            records, error = read(path)
            if stop == second_member:  # a shorter shard
                assert (records, error) == (PAYLOADS[:2], None)
            else:
                assert records == PAYLOADS[: error.record]
                assert (error.path, error.offset) == (str(path), BEGINS[error.record])

    def test_the_uncut_shard(self, path, compression):
        put(path, store(compression))
        assert read(path) == (PAYLOADS, None)


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    data=st.binary(max_size=60)
    | st.binary(max_size=60).map(PLAIN.__add__)
    | st.binary(max_size=60).map(store("gzip").__add__)
    | st.binary(max_size=60).map(b"\x1f\x8b\x08\x00".__add__)
    | st.binary(max_size=60).map(zlib.compress)
    | st.binary(max_size=60).map(b"\x78\x9c".__add__)
)
@pytest.mark.parametrize("verify", ["full", "length", "off"])
def test_any_bytes_are_records_or_a_damage_and_the_scan_says_the_same(path, data, verify):
    put(path, data)
    records, error = read(path, verify=verify)
    scan = scan_shard(str(path), verify=verify, on_corrupt="skip")
    lengths = scan.lengths.tolist()
    assert lengths[: len(records)] == [len(record) for record in records]
    if error is None or "payload CRC" not in str(error):  # a record with a damaged payload keeps its place in the scan
        assert (len(lengths), str(scan.damage)) == (len(records), str(error))


def is_subsequence(some, everything):
    rest = iter(everything)
    return all(item in rest for item in some)
