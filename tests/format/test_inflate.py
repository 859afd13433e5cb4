"""Compressed shards: members, entry points, going back, and what is read before a stream breaks."""

from __future__ import annotations

import gzip
import zlib

import numpy as np
import pytest

from shardmix.errors import CorruptShardError
from shardmix.format.inflate import ENTRY_SPACING, WINDOW_BYTES
from shardmix.format.storage import open_shard

MEMBER = 3 * ENTRY_SPACING // 4  # every second member begins an entry point


def pattern_bytes(num_bytes, start=0):
    """Bytes that tell their place."""
    return np.arange(start, start + num_bytes, dtype=np.uint32).view(np.uint8)[::4].tobytes()


@pytest.fixture
def write(tmp_path):
    def write(data):
        path = tmp_path / "shard"
        path.write_bytes(data)
        return str(path)

    return write


def read(shard, offset, num_bytes):
    out = np.zeros(num_bytes, np.uint8)
    return out[: shard.read_into(offset, out)].tobytes()


class TestMembers:
    def test_many_members_are_one_stream(self, write):
        shard = open_shard(write(gzip.compress(b"one, ") + gzip.compress(b"") + gzip.compress(b"two")))
        assert read(shard, 0, 100) == b"one, two"
        assert read(shard, 4, 2) == b" t"
        shard.close()

    def test_entry_points_are_member_starts_some_way_apart(self, write):
        member = gzip.compress(bytes(MEMBER))
        shard = open_shard(write(member * 5))
        assert len(read(shard, 0, 6 * MEMBER)) == 5 * MEMBER
        assert shard.entries() == tuple((k * len(member), k * MEMBER) for k in (0, 2, 4))
        shard.close()

    def test_going_back_begins_at_the_nearest_entry_point(self, write):
        member = gzip.compress(bytes(ENTRY_SPACING))
        shard = open_shard(write(member * 4))
        read(shard, 4 * ENTRY_SPACING - 1, 1)
        reads = spy_on_reads(shard)
        read(shard, 2 * ENTRY_SPACING + 5, 1)
        assert min(reads) == 2 * len(member)
        shard.close()

    def test_known_entry_points_are_leapt_to(self, write):
        members = [gzip.compress(pattern_bytes(ENTRY_SPACING, k)) for k in range(4)]
        begins = np.cumsum([0, *map(len, members)])[:4]
        entries = tuple((int(begin), k * ENTRY_SPACING) for k, begin in enumerate(begins))
        shard = open_shard(write(b"".join(members)), entries=entries)
        reads = spy_on_reads(shard)
        assert read(shard, 3 * ENTRY_SPACING + 10, 5) == pattern_bytes(5, 13)
        assert read(shard, 1 * ENTRY_SPACING + 10, 5) == pattern_bytes(5, 11)
        assert reads[0] == begins[3]
        assert begins[1] in reads
        shard.close()

    def test_one_byte_before_what_is_at_hand(self, write):
        data = pattern_bytes(3 * WINDOW_BYTES)
        shard = open_shard(write(gzip.compress(data)))
        for window in (1, 2):
            place = window * WINDOW_BYTES
            assert read(shard, place, 2) == data[place : place + 2]
            assert read(shard, place - 1, 2) == data[place - 1 : place + 1]
        shard.close()

    def test_zlib_begins_again_from_its_start(self, write):
        data = pattern_bytes(ENTRY_SPACING)
        shard = open_shard(write(zlib.compress(data)))
        assert read(shard, len(data) - 3, 10) == data[-3:]
        assert read(shard, 5, 4) == data[5:9]
        assert shard.entries() == ((0, 0),)
        shard.close()


class TestBreaks:
    """The stream breaks: all bytes before that are given, then the error, each time that one asks."""

    WHOLE = bytes(range(256)) * 3

    def check(self, path, text, sound=WHOLE):
        shard = open_shard(path)
        out = np.zeros(2000, np.uint8)
        for _ in range(2):
            num_bytes, damage = shard.read_sound(0, out)
            assert out[:num_bytes].tobytes() == sound
            assert text in damage
        assert shard.read_into(0, out[: len(sound)]) == len(sound)
        with pytest.raises(CorruptShardError, match=f"at byte {len(sound)}: the .* is damaged: .*") as caught:
            shard.read_into(0, out)
        assert (caught.value.path, caught.value.record, caught.value.offset) == (path, None, len(sound))
        shard.close()

    def test_bad_checksum_of_gzip(self, write):
        data = bytearray(gzip.compress(self.WHOLE))
        data[-8] ^= 1
        self.check(write(data), "incorrect data check")

    def test_bad_length_of_gzip(self, write):
        data = bytearray(gzip.compress(self.WHOLE))
        data[-1] ^= 1
        self.check(write(data), "incorrect length check")

    def test_bad_checksum_of_zlib(self, write):
        data = bytearray(zlib.compress(self.WHOLE))
        data[-1] ^= 1
        self.check(write(data), "incorrect data check")

    @pytest.mark.parametrize("num_bytes", range(1, 9))
    def test_cut_trailer(self, write, num_bytes):
        self.check(write(gzip.compress(self.WHOLE)[:-num_bytes]), "the file ends before it does")

    @pytest.mark.parametrize("garbage", [b"\0", b"garbage", b"\x1f\x8b", b"\x1f\x8b\x08", bytes(512)])
    def test_bytes_behind_the_last_member(self, write, garbage):
        member = gzip.compress(self.WHOLE)
        self.check(write(member + garbage), f"gzip member that begins at compressed byte {len(member)} is damaged")

    def test_bytes_behind_a_zlib_stream(self, write):
        self.check(write(zlib.compress(self.WHOLE) + b"ab"), "is damaged: 2 bytes follow its end")

    def test_a_second_member_that_breaks(self, write):
        second = bytearray(gzip.compress(b"second"))
        second[10] |= 0x06  # no such kind of deflate block
        self.check(write(gzip.compress(self.WHOLE) + second), "invalid block type")

    def test_the_prefix_does_not_depend_on_how_it_is_read(self, write):
        data = bytearray(zlib.compress(pattern_bytes(100_000), 1))
        data[len(data) // 2] ^= 0xFF
        path = write(data)
        prefixes = set()
        for step in (100_000, 777, 10):
            shard = open_shard(path)
            offset, damage, out = 0, None, np.zeros(step, np.uint8)
            while damage is None:
                num_bytes, damage = shard.read_sound(offset, out)
                offset += num_bytes
            prefixes.add(offset)
            shard.close()
        assert len(prefixes) == 1

    def test_wrong_entry_points_are_damage_not_wrong_bytes(self, write):
        shard = open_shard(write(gzip.compress(self.WHOLE)), entries=((5, 300),))
        with pytest.raises(CorruptShardError, match="compressed byte 5"):
            read(shard, 400, 10)
        shard.close()


def spy_on_reads(shard):
    """The stored offsets that the shard reads at, from now on."""
    offsets, read_into = [], shard._raw.read_into

    def spy(offset, out):
        offsets.append(offset)
        return read_into(offset, out)

    shard._raw.read_into = spy
    return offsets
