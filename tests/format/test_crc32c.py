"""CRC-32C by published vectors (RFC 3720, appendix B.4), at every length and alignment of a small buffer."""

from __future__ import annotations

import pytest

from shardmix.format import backend
from shardmix.format.crc32c import crc32c, masked_crc32c

VECTORS = [
    (b"", 0),
    (b"123456789", 0xE3069283),
    (bytes(32), 0x8A9136AA),
    (b"\xff" * 32, 0x62A8AB43),
    (bytes(range(32)), 0x46DD794E),
    (bytes(range(31, -1, -1)), 0x113FDB5C),
]


@pytest.mark.parametrize("twin", [crc32c, backend.crc32c], ids=["python", "backend"])
class TestCrc32c:
    @pytest.mark.parametrize(("data", "crc"), VECTORS)
    def test_published_vectors(self, twin, data, crc):
        assert twin(data) == crc

    def test_every_length_and_alignment_equals_the_bitwise_definition(self, twin):
        data = memoryview(bytes((7 * i + 3) % 256 for i in range(48)))
        for start in range(9):
            for stop in range(start, len(data) + 1):
                assert twin(data[start:stop]) == crc_by_bits(data[start:stop])

    def test_goes_on_from_the_crc_of_the_bytes_before(self, twin):
        assert twin(b"6789", twin(b"12345")) == 0xE3069283


def test_mask_rotates_and_adds():
    # The length field of an empty record, as TensorFlow writes it.
    assert masked_crc32c(bytes(8)) == 0x07980329
    assert masked_crc32c(b"") == 0xA282EAD8


def crc_by_bits(data):
    crc = 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF
