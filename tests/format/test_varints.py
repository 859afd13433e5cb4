"""Lists of varints in C: every way of decoding them, on this processor's instructions and on those that all have."""

from __future__ import annotations

import ctypes
import os
import random
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import shardmix.format

pytestmark = [
    pytest.mark.once,
    pytest.mark.skipif(os.name != "posix" or shutil.which("cc") is None, reason="needs a C compiler"),
]

SOURCES = [Path(shardmix.format.__file__).parent / "csrc" / name for name in ("varints.c", "varints_x86.c")]
ROOM_BEYOND = 64  # bytes behind the room of a list, which stay as they are

Decode = Callable[[bytes, int, bool], list[int] | None]


@pytest.fixture(scope="module", params=["", "-DSHARDMIX_PORTABLE"], ids=["this processor", "portable"])
def library(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("varints") / "varints.so"
    flags = [request.param] if request.param else []
    subprocess.run(["cc", "-O2", "-std=c11", "-shared", "-fPIC", *flags, "-o", path, *SOURCES], check=True)
    loaded = ctypes.CDLL(str(path))
    loaded.count_varints.restype = loaded.decode_varints.restype = ctypes.c_int64
    return loaded


@pytest.fixture
def decode(library: Any) -> Decode:
    """(bytes, room, is_streamed) → the numbers, or None where C refuses them."""

    def call(data: bytes, room: int, is_streamed: bool) -> list[int] | None:
        source = ctypes.create_string_buffer(data, len(data))
        out = (ctypes.c_uint8 * (8 * room + ROOM_BEYOND))(*[0x5A] * (8 * room + ROOM_BEYOND))
        start = ctypes.addressof(source)
        end = ctypes.c_void_p(start + len(data))
        count = library.decode_varints(ctypes.c_void_p(start), end, out, ctypes.c_int64(room), ctypes.c_int(is_streamed))
        assert bytes(out[8 * room :]) == b"\x5a" * ROOM_BEYOND
        if count < 0:
            return None
        assert count == library.count_varints(ctypes.c_void_p(start), end)
        return [int.from_bytes(bytes(out[8 * i : 8 * i + 8]), "little") for i in range(count)]

    return call


def varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def numbers_of(generator: random.Random, count: int, most_bytes: int, least_bytes: int = 1) -> list[int]:
    return [generator.getrandbits(min(64, 7 * generator.randint(least_bytes, most_bytes))) for _ in range(count)]


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("most_bytes", range(1, 11))
def test_lists_of_every_length_come_back(decode: Decode, most_bytes: int, is_streamed: bool) -> None:
    generator = random.Random(most_bytes)
    for count in [*range(90), 511, 512, 513, 1024, 1500]:
        numbers = numbers_of(generator, count, most_bytes)
        data = b"".join(map(varint, numbers))
        assert decode(data, count, is_streamed) == numbers
        if count:
            assert decode(data, count - 1, is_streamed) is None, "more than there is room for"


@pytest.mark.parametrize("is_streamed", [False, True])
def test_long_varints_among_short_ones_come_back(decode: Decode, is_streamed: bool) -> None:
    generator = random.Random(3)
    for _ in range(300):
        numbers = numbers_of(generator, generator.randint(1, 200), 3)
        for place in generator.sample(range(len(numbers)), min(4, len(numbers))):
            numbers[place] = generator.getrandbits(64) | 1 << 63
        assert decode(b"".join(map(varint, numbers)), len(numbers), is_streamed) == numbers


@pytest.mark.parametrize("is_streamed", [False, True])
def test_padded_varints_are_what_their_groups_say(decode: Decode, is_streamed: bool) -> None:
    """Zero groups at the end are allowed, if unusual."""
    data = b"\x81\x80\x80\x00" * 40 + b"\x85\x80\x80\x80\x80\x80\x80\x80\x00" * 20
    assert decode(data, 60, is_streamed) == [1] * 40 + [5] * 20


@pytest.mark.parametrize("is_streamed", [False, True])
@pytest.mark.parametrize("before", [0, 5, 40, 600])
def test_a_cut_or_endless_varint_is_refused(decode: Decode, before: int, is_streamed: bool) -> None:
    sound = varint(300) * before
    for tail in (b"\x80", b"\xff" * 9, b"\x80" * 11 + b"\x01", b"\xff" * 200):
        assert decode(sound + tail, before + 1, is_streamed) is None
