"""CRC-32C, plain and masked: the Python twin, over the crc32c package.

    masked = rotate right by 15 bits, plus 0xa282ead8

The mask keeps a CRC that is stored inside CRC'd data from cancelling itself out. Source: TensorFlow's tsl/lib/hash/crc32c.h.
"""

from __future__ import annotations

from crc32c import crc32c as _crc32c

MASK_DELTA = 0xA282EAD8


def crc32c(data: bytes | bytearray | memoryview, value: int = 0) -> int:
    """The CRC-32C (Castagnoli) of some bytes, going on from `value`, the CRC of the bytes before.

    >>> hex(crc32c(b"123456789"))
    '0xe3069283'
    """
    return int(_crc32c(data, value))


def masked_crc32c(data: bytes | bytearray | memoryview) -> int:
    """The CRC-32C as TFRecord stores it.

    >>> hex(masked_crc32c(bytes(8)))
    '0x7980329'
    """
    crc = _crc32c(data)
    return ((crc >> 15 | crc << 17) + MASK_DELTA) & 0xFFFFFFFF
