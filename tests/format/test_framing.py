"""Frames in a buffer: what is sound, what is damage, what is "more", with either backend."""

from __future__ import annotations

import pickle
import struct

import numpy as np
import pytest

from shardmix.errors import CorruptShardError
from shardmix.format import framing
from shardmix.format.crc32c import masked_crc32c
from shardmix.format.framing import Damage, describe_damage, frame_error, frame_header, frame_record

PAYLOADS = [b"", b"abc", bytes(20)]
SOUND = b"".join(map(frame_record, PAYLOADS))  # frames at 0, 16, 35; 71 bytes


def as_array(data):
    return np.frombuffer(bytes(data), np.uint8)


def flipped(data, place):
    return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]


def twins():
    try:
        from shardmix.format import native
    except ImportError:
        return [pytest.param(framing, id="python")]
    return [pytest.param(framing, id="python"), pytest.param(native, id="c")]


@pytest.mark.parametrize("twin", twins())
class TestScanFrames:
    def scan(self, twin, data, remaining=None, verify="full"):
        scan = twin.scan_frames(as_array(data), remaining=len(data) if remaining is None else remaining, verify=verify)
        assert scan.lengths.dtype == np.int64
        return scan.lengths.tolist(), scan.consumed, scan.damage

    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_sound_frames(self, twin, verify):
        assert self.scan(twin, SOUND, verify=verify) == ([0, 3, 20], 71, Damage.NONE)
        assert self.scan(twin, b"", verify=verify) == ([], 0, Damage.NONE)

    def test_a_frame_longer_than_the_buffer_is_more(self, twin):
        for stop in range(35, 71):
            assert self.scan(twin, SOUND[:stop], remaining=71) == ([0, 3], 35, Damage.NONE)

    def test_a_frame_longer_than_the_file_is_cut(self, twin):
        for stop in range(36, 47):
            assert self.scan(twin, SOUND[:stop]) == ([0, 3], 35, Damage.CUT_HEADER)
        for stop in range(47, 71):
            assert self.scan(twin, SOUND[:stop]) == ([0, 3], 35, Damage.CUT_PAYLOAD)

    def test_a_claim_beyond_the_file_is_damage_before_the_payload_is_there(self, twin):
        assert self.scan(twin, SOUND[:47], remaining=70) == ([0, 3], 35, Damage.CUT_PAYLOAD)

    @pytest.mark.parametrize("length", [2**63, 2**64 - 1, 2**64 - 16, 2**63 - 16, 2**40])
    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_a_huge_length_with_a_right_crc(self, twin, length, verify):
        assert self.scan(twin, frame_header(length) + bytes(8), verify=verify) == ([], 0, Damage.CUT_PAYLOAD)

    @pytest.mark.parametrize("place", range(35, 47))
    def test_a_damaged_header(self, twin, place):
        for verify in ("full", "length"):
            assert self.scan(twin, flipped(SOUND, place), verify=verify) == ([0, 3], 35, Damage.LENGTH_CRC)

    @pytest.mark.parametrize("place", range(47, 71))
    def test_a_damaged_payload_is_seen_by_full_alone(self, twin, place):
        assert self.scan(twin, flipped(SOUND, place)) == ([0, 3], 35, Damage.PAYLOAD_CRC)
        assert self.scan(twin, flipped(SOUND, place), verify="length") == ([0, 3, 20], 71, Damage.NONE)

    def test_wrong_calls(self, twin):
        with pytest.raises(ValueError, match="verify is 'some'"):
            self.scan(twin, SOUND, verify="some")
        with pytest.raises(ValueError, match="remaining is 70, less than the 71 bytes"):
            self.scan(twin, SOUND, remaining=70)


@pytest.mark.parametrize("twin", twins())
class TestCheckFrames:
    STARTS, LENGTHS = np.array([47, 12, 28]), np.array([20, 0, 3])  # in any order

    def check(self, twin, data, lengths=LENGTHS, verify="full"):
        return twin.check_frames(as_array(data), self.STARTS, lengths, verify=verify).tolist()

    def test_sound_frames_in_any_order(self, twin):
        assert self.check(twin, SOUND) == [0, 0, 0]
        assert twin.check_frames(as_array(b""), self.STARTS[:0], self.LENGTHS[:0]).tolist() == []

    def test_each_damage_by_level(self, twin):
        damaged = flipped(flipped(SOUND, 16), 50)
        assert self.check(twin, damaged, verify="full") == [Damage.PAYLOAD_CRC, 0, Damage.LENGTH_CRC]
        assert self.check(twin, damaged, verify="length") == [0, 0, Damage.LENGTH_CRC]
        assert self.check(twin, damaged, verify="off") == [0, 0, Damage.LENGTH_DIFFERS]

    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_another_length_than_that_of_the_index(self, twin, verify):
        assert self.check(twin, SOUND, np.array([20, 1, 4]), verify=verify) == [0, Damage.LENGTH_DIFFERS, Damage.LENGTH_DIFFERS]

    def test_a_buffer_that_ends_early(self, twin):
        assert self.check(twin, SOUND[:70]) == [Damage.CUT_PAYLOAD, 0, 0]
        assert self.check(twin, SOUND[:46]) == [Damage.CUT_HEADER, 0, 0]
        assert self.check(twin, SOUND[:20]) == [Damage.CUT_HEADER, 0, Damage.CUT_HEADER]

    def test_wrong_calls(self, twin):
        data = as_array(SOUND)
        with pytest.raises(ValueError, match="has no place"):
            twin.check_frames(data, np.array([11]), np.array([0]))
        with pytest.raises(ValueError, match="has no place"):
            twin.check_frames(data, np.array([12]), np.array([-1]))
        with pytest.raises(ValueError, match="1 starts and 2 lengths"):
            twin.check_frames(data, np.array([12]), np.array([0, 0]))


class TestTexts:
    def describe(self, damage, frame, remaining=None, expected=None):
        return describe_damage(damage, memoryview(frame), len(frame) if remaining is None else remaining, expected)

    def test_payload_crc(self):
        frame = frame_record(b"abc")[:-4] + struct.pack("<I", 0x1F2E3D4C)
        computed = masked_crc32c(b"abc")
        assert self.describe(Damage.PAYLOAD_CRC, frame) == f"payload CRC mismatch (stored 0x1f2e3d4c, computed {computed:#010x})"

    def test_length_crc_shows_the_header(self):
        text = self.describe(Damage.LENGTH_CRC, b"<!DOCTYPE html>")
        assert text.startswith("length CRC mismatch (stored 0x74682045, computed 0x")
        assert text.endswith("header b'<!DOCTYPE ht')")

    def test_cuts_say_what_is_there(self):
        text = self.describe(Damage.CUT_HEADER, b"12345")
        assert text == "cut: the file ends 5 bytes into the frame, inside its header of 12 bytes"
        text = self.describe(Damage.CUT_PAYLOAD, frame_header(100), remaining=50)
        assert text == "cut: a payload of 100 bytes needs a frame of 116, and at most 50 are left"

    def test_length_differs_gives_both(self):
        text = self.describe(Damage.LENGTH_DIFFERS, frame_record(b"abc"), expected=5)
        assert text == "payload of 3 bytes where the index says 5; the index is of another file, build it again"

    def test_an_error_names_the_place_and_pickles(self):
        frame = memoryview(flipped(frame_record(b"abc"), 13))
        error = frame_error(Damage.PAYLOAD_CRC, frame, path="train", record=17, offset=81920, remaining=19)
        assert str(error).startswith("train record 17 at byte 81920: payload CRC mismatch")
        copy = pickle.loads(pickle.dumps(error))
        assert isinstance(copy, CorruptShardError)
        assert (copy.path, copy.record, copy.offset, str(copy)) == ("train", 17, 81920, str(error))

    def test_the_first_frame_asks_what_the_file_is(self):
        def text(start):
            return str(frame_error(Damage.LENGTH_CRC, memoryview(start), path="x", record=0, offset=0, remaining=len(start)))

        assert text(b"<!DOCTYPE html>").endswith("; is this a TFRecord file?")
        assert text(b"\x1f\x8b\x08" + bytes(12)).endswith("; it begins like gzip, leave compression_type at 'auto'")


class TestFrameRecord:
    def test_layout(self):
        frame = frame_record(b"abc")
        assert frame[:8] == struct.pack("<Q", 3)
        assert frame[8:12] == struct.pack("<I", masked_crc32c(frame[:8]))
        assert frame[12:15] == b"abc"
        assert frame[15:] == struct.pack("<I", masked_crc32c(b"abc"))

    def test_takes_any_contiguous_buffer(self):
        array = np.arange(6, dtype="<i4").reshape(2, 3)
        assert frame_record(memoryview(array)) == frame_record(array.tobytes())
        assert frame_record(memoryview(np.zeros((0, 3)))) == frame_record(b"")
