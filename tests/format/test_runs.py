"""Runs of frames, read and judged by one call: both twins, on files that are sound, damaged, cut, or cannot be read."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shardmix.format import backend, runs
from shardmix.format.framing import FRAME_BYTES, HEADER_BYTES, Damage, frame_record
from shardmix.format.local import LocalFile
from shardmix.format.runs import Runs, RunsRead

LENGTHS = [3, 0, 700, 20, 1, 300_000, 5]
PAYLOADS = [bytes([65 + number]) * length for number, length in enumerate(LENGTHS)]
FRAMES = [frame_record(payload) for payload in PAYLOADS]
OFFSETS = np.cumsum([0, *map(len, FRAMES)])
CLEAN, PAYLOAD, CUT_HEADER = int(Damage.NONE), int(Damage.PAYLOAD_CRC), int(Damage.CUT_HEADER)

TWINS: dict[str, Any] = {"python": runs.read_runs}
if backend.name == "c":
    TWINS["c"] = backend.read_runs


@pytest.fixture(params=TWINS)
def twin(request: pytest.FixtureRequest) -> Any:
    return TWINS[request.param]


@pytest.fixture
def file(tmp_path: Path) -> Iterator[LocalFile]:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(b"".join(FRAMES))
    file = LocalFile(str(path))
    yield file
    file.close()


def change(file: LocalFile, place: int) -> None:
    """Flip a bit of the file."""
    with open(file._path, "r+b") as stream:
        stream.seek(place)
        byte = stream.read(1)[0]
        stream.seek(place)
        stream.write(bytes([byte ^ 4]))


class Asked:
    """Runs of the frames first … stop-1 of one file, with a gap of `gap` bytes before each run in the buffer."""

    def __init__(self, descriptor: int, *pieces: tuple[int, int], gap: int = 0) -> None:
        sizes = [int(OFFSETS[stop] - OFFSETS[first]) for first, stop in pieces]
        self.pieces = pieces
        self.start = np.array(
            [
                gap + sum(sizes[:run]) + OFFSETS[row] - OFFSETS[first] + HEADER_BYTES
                for run, (first, stop) in enumerate(pieces)
                for row in range(first, stop)
            ],
            np.int64,
        )
        self.length = np.array([LENGTHS[row] for first, stop in pieces for row in range(first, stop)], np.int64)
        self.out = np.full(gap + sum(sizes), 77, np.uint8)
        self.runs = Runs(
            np.full(len(pieces), descriptor, np.int64),
            np.array([OFFSETS[first] for first, _ in pieces], np.int64),
            np.cumsum([gap, *sizes]),
            np.cumsum([0, *(stop - first for first, stop in pieces)]),
        )

    def read(self, twin: Any, **settings: Any) -> RunsRead:
        read: RunsRead = twin(self.runs, self.start, self.length, self.out, **settings)
        return read

    def payloads(self) -> list[bytes]:
        return [self.out[at : at + size].tobytes() for at, size in zip(self.start, self.length, strict=True)]


def outcome(read: RunsRead) -> tuple[list[int], list[int], int, int]:
    return read.got.tolist(), read.codes.tolist(), read.failed, read.error


@pytest.mark.parametrize("pieces", [[(0, 7)], [(0, 2), (5, 7), (3, 4)], [(2, 3), (2, 3)], [(4, 4), (6, 7)], []])
@pytest.mark.parametrize("gap", [0, 13])
def test_runs_come_to_their_places(twin: Any, file: LocalFile, pieces: list[tuple[int, int]], gap: int) -> None:
    asked = Asked(file.descriptor, *pieces, gap=gap)
    read = asked.read(twin)
    assert asked.payloads() == [PAYLOADS[row] for first, stop in pieces for row in range(first, stop)]
    assert outcome(read) == (np.diff(asked.runs.bounds).tolist(), [CLEAN] * len(asked.start), len(pieces), 0)
    assert (asked.out[:gap] == 77).all()


def test_what_lies_between_the_wanted_frames_of_a_run_is_read_with_them(twin: Any, file: LocalFile) -> None:
    """As a set of a split does."""
    asked = Asked(file.descriptor, (0, 7))
    asked.start, asked.length = asked.start[[1, 5]], asked.length[[1, 5]]
    asked.runs = asked.runs._replace(rows=np.array([0, 2]))
    assert outcome(asked.read(twin)) == ([int(OFFSETS[-1])], [CLEAN, CLEAN], 1, 0)
    assert asked.payloads() == [PAYLOADS[1], PAYLOADS[5]]
    assert asked.out.tobytes() == b"".join(FRAMES)


@pytest.mark.parametrize(("verify", "code"), [("full", PAYLOAD), ("length", CLEAN), ("off", CLEAN)])
def test_damage_is_a_code_of_its_row(twin: Any, file: LocalFile, verify: str, code: int) -> None:
    change(file, int(OFFSETS[5]) + 1000)
    asked = Asked(file.descriptor, (1, 3), (4, 7))
    assert asked.read(twin, verify=verify).codes.tolist() == [CLEAN, CLEAN, CLEAN, code, CLEAN]


def test_a_length_that_is_not_the_indexed_one(twin: Any, file: LocalFile) -> None:
    asked = Asked(file.descriptor, (1, 4))
    asked.length[1] -= 1
    assert asked.read(twin).codes.tolist() == [CLEAN, Damage.LENGTH_DIFFERS, CLEAN]


def test_a_file_that_ends_early(twin: Any, file: LocalFile) -> None:
    """The runs behind are read all the same; what was in the buffer before is not taken for a frame."""
    with open(file._path, "r+b") as stream:
        stream.truncate(int(OFFSETS[2]) + 30)
    asked = Asked(file.descriptor, (0, 4), (6, 7), (1, 2))
    asked.out[:] = np.frombuffer(b"".join([*FRAMES[0:4], FRAMES[6], FRAMES[1]]), np.uint8)
    codes = [CLEAN, CLEAN, Damage.CUT_PAYLOAD, CUT_HEADER, CUT_HEADER, CLEAN]
    assert outcome(asked.read(twin)) == ([int(OFFSETS[2]) + 30, 0, FRAME_BYTES], codes, 3, 0)


def test_a_run_that_cannot_be_read_ends_the_reading(twin: Any, file: LocalFile, tmp_path: Path) -> None:
    folder = os.open(tmp_path, os.O_RDONLY)
    try:
        asked = Asked(file.descriptor, (0, 2), (2, 4), (4, 5))
        asked.runs.descriptor[1] = folder
        read = asked.read(twin)
    finally:
        os.close(folder)
    got = int(OFFSETS[2])
    assert outcome(read) == ([got, 0, 0], [CLEAN, CLEAN, CUT_HEADER, CUT_HEADER, CUT_HEADER], 1, errno.EISDIR)


def test_a_closed_descriptor_is_an_error_of_its_run(twin: Any, file: LocalFile) -> None:
    asked = Asked(file.descriptor, (0, 1))
    file.close()
    assert outcome(asked.read(twin)) == ([0], [CUT_HEADER], 0, errno.EBADF)


def wrong(name: str, value: Any) -> Any:
    def apply(asked: Asked) -> None:
        if name in ("start", "length", "out"):
            setattr(asked, name, value)
        else:
            asked.runs = asked.runs._replace(**{name: value})

    return apply


FAR = 2**62
WRONG = {
    "descriptor": [np.array([-1, 3]), np.array([3]), np.array([FAR, 3])],
    "offset": [np.array([-1, 0]), np.array([0, 2**63 - 5]), np.array([0, 0, 0])],
    "bounds": [np.array([0, 35]), np.array([0, 35, 52]), np.array([-1, 35, 51]), np.array([40, 35, 51]), np.array([0, FAR, 51])],
    "rows": [np.array([0, 2]), np.array([1, 2, 3]), np.array([0, 2, 2]), np.array([0, 4, 3]), np.array([0, FAR, 3])],
    "start": [np.array([11, 31, 47]), np.array([13, 31, 47]), np.array([12, 30, 47]), np.array([12, 31, FAR]), np.array([12])],
    "length": [np.array([-1, 0, 0]), np.array([4, 0, 0]), np.array([3, 1, 0]), np.array([3, 0, FAR]), np.array([3, 0])],
    "out": [np.zeros(50, np.uint8)],
}


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, values in WRONG.items() for value in values])
def test_wrong_calls_read_nothing(twin: Any, file: LocalFile, name: str, value: Any) -> None:
    asked = Asked(file.descriptor, (0, 2), (1, 2))
    assert asked.read(twin).codes.tolist() == [CLEAN] * 3
    asked.out[:] = 77
    wrong(name, value)(asked)
    before = asked.out.copy()
    with pytest.raises(ValueError, match="read_runs: ") as caught:
        asked.read(twin)
    with pytest.raises(ValueError) as expected:
        asked.read(runs.read_runs)
    assert str(caught.value) == str(expected.value)
    assert (asked.out == before).all()


def test_an_unknown_level_is_named(twin: Any, file: LocalFile) -> None:
    with pytest.raises(ValueError, match="verify is 'some'"):
        Asked(file.descriptor, (0, 2)).read(twin, verify="some")


@pytest.mark.skipif(backend.name != "c", reason="there is one twin")
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    pieces=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 3)), max_size=6),
    bits=st.lists(st.integers(0, 1_000_000), max_size=3),
    cut=st.one_of(st.none(), st.integers(0, 1200)),
    verify=st.sampled_from(["full", "length", "off"]),
)
def test_both_twins_agree(
    tmp_path: Path, pieces: list[tuple[int, int]], bits: list[int], cut: int | None, verify: str
) -> None:
    data = bytearray(b"".join(FRAMES))
    for bit in bits:
        place = bit % 1000 if bit % 2 else bit % len(data)
        data[place] ^= 1 << bit % 8
    path = tmp_path / "any.tfrecord"
    path.write_bytes(data[:cut])
    file = LocalFile(str(path))
    try:
        both = []
        for each in TWINS.values():
            asked = Asked(file.descriptor, *((first, min(first + count, 7)) for first, count in pieces))
            both.append((*outcome(asked.read(each, verify=verify)), asked.out.tobytes()))
    finally:
        file.close()
    assert both[0] == both[1]


@pytest.mark.skipif(backend.name != "c", reason="of the C extension")
@pytest.mark.parametrize("name", ["start", "length", "bounds", "rows"])
def test_numbers_that_reading_would_change_are_refused(file: LocalFile, name: str) -> None:
    """They were checked before: what is written over them would lead anywhere."""
    from shardmix.format import _core

    asked = Asked(file.descriptor, (0, 2), (1, 2))
    numbers = {**asked.runs._asdict(), "start": asked.start, "length": asked.length}
    buffer = numbers[name].view(np.uint8)
    got, codes = np.zeros(2, np.int64), np.zeros(3, np.int64)
    with pytest.raises(ValueError, match="overlap"):
        _core.read_runs(*numbers.values(), buffer, 2, got, codes)
    with pytest.raises(ValueError, match="overlap"):
        _core.read_runs(*numbers.values(), asked.out, 2, got, asked.start)
    assert (asked.out == 77).all()
