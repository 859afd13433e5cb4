"""Walking a shard: blocks, large records, headers alone, damage."""

from __future__ import annotations

import gzip
import os

import numpy as np
import pytest

from shardmix.errors import CorruptShardError
from shardmix.format import scan as scan_module
from shardmix.format.framing import FRAME_BYTES, HEADER_BYTES, frame_header, frame_record
from shardmix.format.scan import BLOCK_BYTES, LARGE_FRAME_BYTES, frame_offsets, scan_shard, walk_frames, walk_lengths
from shardmix.format.storage import open_shard


@pytest.fixture
def write(tmp_path):
    """write(lengths) makes a shard of so many zero bytes a record, plain unless `compress` says otherwise."""

    def write(lengths, compress=bytes, tail=b""):
        path = tmp_path / "shard"
        path.write_bytes(compress(b"".join(frame_record(bytes(length)) for length in lengths) + tail))
        return str(path)

    return write


def walk(walker, path, **options):
    shard = open_shard(path)
    try:
        return list(walker(shard, **options))
    finally:
        shard.close()


LARGE = LARGE_FRAME_BYTES + 1
SHAPES = [
    [],
    [0],
    [5, 0, 7],
    [100] * 20_000,  # several blocks
    [3 * BLOCK_BYTES, 10, BLOCK_BYTES - 16, BLOCK_BYTES],  # records larger than a block, and that fill one
    [LARGE] * 40,
    [LARGE] * 20 + [10] * 2000 + [LARGE] * 30,  # large, small, and large again
]


class TestScanShard:
    @pytest.mark.parametrize("lengths", SHAPES, ids=lambda lengths: f"{len(lengths)} records")
    @pytest.mark.parametrize("compress", [bytes, lambda data: gzip.compress(data, 1)], ids=["none", "gzip"])
    @pytest.mark.parametrize("verify", ["full", "length", "off"])
    def test_counts_and_measures(self, write, lengths, compress, verify):
        scan = scan_shard(write(lengths, compress), verify=verify)
        assert scan.lengths.tolist() == lengths
        assert scan.lengths.dtype == np.int64
        assert scan.damage is None

    def test_says_how_the_shard_is_stored(self, write):
        plain = scan_shard(write([3, 4]))
        assert (plain.compression, plain.size, plain.entries) == ("none", 39, ())
        stored = scan_shard(write([3, 4], gzip.compress))
        assert (stored.compression, stored.entries) == ("gzip", ((0, 0),))

    def test_raise_names_the_place(self, write):
        with pytest.raises(CorruptShardError, match=r"shard record 2 at byte 39: cut: ") as caught:
            scan_shard(write([3, 4], tail=b"12345"))
        assert (caught.value.record, caught.value.offset) == (2, 39)

    @pytest.mark.parametrize("compress", [bytes, gzip.compress], ids=["none", "gzip"])
    def test_skip_gives_the_intact_prefix_and_the_damage(self, write, compress):
        scan = scan_shard(write([3, 4], compress, tail=b"12345"), on_corrupt="skip")
        assert scan.lengths.tolist() == [3, 4]
        assert (scan.damage.record, scan.damage.offset) == (2, 39)

    def test_a_damaged_payload_keeps_its_place(self, write, tmp_path):
        path = write([3, 4, 5])
        damage_byte(path, 12)
        assert scan_shard(path).lengths.tolist() == [3, 4, 5]
        with pytest.raises(CorruptShardError, match="record 0 at byte 0: payload CRC"):
            scan_shard(path, verify="full")
        skipped = scan_shard(path, verify="full", on_corrupt="skip")
        assert (skipped.lengths.tolist(), skipped.damage) == ([3, 4, 5], None)

    def test_wrong_calls(self, write):
        with pytest.raises(ValueError, match="on_corrupt is 'ignore'"):
            scan_shard(write([3]), on_corrupt="ignore")
        with pytest.raises(ValueError, match="verify is 'none'"):
            scan_shard(write([3]), verify="none")


class TestHeadersAlone:
    def test_large_payloads_are_not_read(self, write):
        path = write([LARGE] * 100)
        shard = open_shard(path)
        num_bytes = count_bytes_read(shard)
        lengths = np.concatenate([block.lengths for block in walk_lengths(shard)])
        shard.close()
        assert lengths.tolist() == [LARGE] * 100
        assert sum(num_bytes) < 2 * BLOCK_BYTES

    @pytest.mark.parametrize("before", [0, 3, 20_000])
    def test_a_record_larger_than_a_block_is_never_read(self, write, before):
        """A hole of 64 GiB: reading it would take the memory of the machine."""
        path = write([100] * before, tail=frame_header(2**36))
        begin = os.path.getsize(path) - HEADER_BYTES
        os.truncate(path, begin + 2**36 + FRAME_BYTES)
        with open(path, "ab") as file:
            file.write(frame_record(b"behind"))
        shard = open_shard(path)
        num_bytes = count_bytes_read(shard)
        lengths = np.concatenate([block.lengths for block in walk_lengths(shard)])
        shard.close()
        assert lengths.tolist() == [100] * before + [2**36, 6]
        assert sum(num_bytes) < 4 * BLOCK_BYTES

    def test_a_huge_claim_is_judged_like_any_other(self, write):
        for tail, text in ((frame_header(2**40), "cut: a payload of 1099511627776 bytes"), (bytes([255] * 30), "length CRC")):
            with pytest.raises(CorruptShardError, match=f"record 1 at byte 19: {text}"):
                scan_shard(write([3], tail=tail))

    def test_all_payloads_are_read_to_verify_them(self, write):
        path = write([LARGE] * 40)
        damage_byte(path, 39 * (LARGE + 16) + 20)
        with pytest.raises(CorruptShardError, match=f"record 39 at byte {39 * (LARGE + 16)}: payload CRC"):
            scan_shard(path, verify="full")

    @pytest.mark.parametrize("cut", [1, LARGE + 4, LARGE + 5, LARGE + 15])
    def test_a_cut_last_record(self, write, cut):
        path = write([LARGE] * 40)
        with open(path, "r+b") as file:
            file.truncate(40 * (LARGE + 16) - cut)
        with pytest.raises(CorruptShardError, match=f"record 39 at byte {39 * (LARGE + 16)}: cut: "):
            scan_shard(path)

    def test_a_damaged_header(self, write):
        path = write([LARGE] * 40)
        damage_byte(path, 30 * (LARGE + 16) + 8)
        scan = scan_shard(path, on_corrupt="skip")
        assert scan.lengths.tolist() == [LARGE] * 30
        assert (scan.damage.record, scan.damage.offset) == (30, 30 * (LARGE + 16))


class TestWalkFrames:
    def test_blocks_lie_end_to_end(self, write):
        blocks = walk(walk_frames, write(SHAPES[3]))
        assert len(blocks) > 1
        record = offset = 0
        for block in blocks:
            assert (block.first, block.offset) == (record, offset)
            assert len(block.data) == frame_offsets(block.lengths)[-1]
            record, offset = record + len(block.lengths), offset + len(block.data)

    def test_begins_at_a_place(self, write):
        (block,) = walk(walk_frames, write([5, 6, 7]), record=1, offset=21)
        assert (block.first, block.offset, block.lengths.tolist()) == (1, 21, [6, 7])
        assert block.starts().tolist() == [12, 34]

    def test_goes_on_behind_damaged_payloads(self, write):
        path = write([5, 6, 7, 8])
        for place in (12, 21 + 12, 21 + 22 + 23 + 12):
            damage_byte(path, place)
        blocks = walk(walk_frames, path)
        assert [(b.first, b.lengths.tolist(), b.passed_length) for b in blocks] == [(0, [], 5), (1, [], 6), (2, [7], 8)]
        assert [(b.damage.record, b.damage.offset) for b in blocks] == [(0, 0), (1, 21), (3, 66)]

    def test_a_block_is_fresh_memory(self, write):
        first, second, *_ = walk(walk_frames, write(SHAPES[3]))
        before = second.data.copy()
        first.data[:] = 255
        assert (second.data == before).all()

    def test_a_file_cut_while_it_is_read_is_damage(self, write):
        path = write([100] * 20_000)
        shard = open_shard(path)
        blocks = walk_frames(shard)
        next(blocks)
        with open(path, "r+b") as file:
            file.truncate(BLOCK_BYTES + 1000)
        *_, last = blocks
        shard.close()
        assert "cut: the file ends 8 bytes into the frame" in str(last.damage)
        assert last.damage.record == (BLOCK_BYTES + 1000) // 116

    def test_a_claim_of_a_compressed_stream_does_not_allocate(self, write, monkeypatch):
        sizes, empty = [], np.empty
        monkeypatch.setattr(scan_module.np, "empty", lambda size, dtype: (sizes.append(size), empty(size, dtype))[1])
        noise = np.random.default_rng(0).bytes(2 * BLOCK_BYTES)  # does not shrink, so that the claim may be true
        claim = frame_header(2**30) + noise
        (block,) = walk(walk_frames, write([], gzip.compress, tail=claim))
        assert "needs a frame of 1073741840" in str(block.damage)
        assert max(sizes) <= 2 * len(claim)


def damage_byte(path, place):
    with open(path, "r+b") as file:
        file.seek(place)
        byte = file.read(1)[0]
        file.seek(place)
        file.write(bytes([byte ^ 1]))


def count_bytes_read(shard):
    """The sizes of the reads of an open shard, from now on."""
    sizes, read_into = [], shard._raw.read_into

    def spy(offset, out):
        sizes.append(len(out))
        return read_into(offset, out)

    shard._raw.read_into = spy
    return sizes
