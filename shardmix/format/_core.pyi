"""The C extension as its wrappers see it; csrc/module.c says what the arguments are."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from .records import Bytes, IntArray

crc32c_method: str

def crc32c(data: object, value: int = 0, portable: bool = False, /) -> int: ...
def scan_frames(data: Bytes, remaining: int, verify: int, lengths: IntArray, /) -> tuple[int, int, int]: ...
def check_frames(data: Bytes, start: IntArray, length: IntArray, verify: int, codes: IntArray, /) -> None: ...
def read_runs(
    descriptor: IntArray,
    offset: IntArray,
    bounds: IntArray,
    rows: IntArray,
    start: IntArray,
    length: IntArray,
    buffer: Bytes,
    verify: int,
    got: IntArray,
    codes: IntArray,
    /,
) -> tuple[int, int]: ...
def copy_spans(
    source: Bytes, source_start: IntArray, length: IntArray, out: Bytes, out_start: IntArray, item_bytes: int, /
) -> int: ...
def cut_bytes(data: Bytes, length: IntArray, /) -> list[bytes]: ...
def place_rows(
    sources: tuple[NDArray[Any], ...], positions: tuple[IntArray, ...], outs: tuple[NDArray[Any], ...], num_rows: int, /
) -> bool: ...
def count_values(
    buffers: tuple[Bytes, ...],
    buffer: IntArray,
    start: IntArray,
    length: IntArray,
    names: bytes,
    fields: IntArray,
    is_sequence: bool,
    places: NDArray[np.uint32],
    counts: IntArray,
    codes: IntArray,
    /,
) -> None: ...
def decode_examples(
    buffers: tuple[Bytes, ...],
    buffer: IntArray,
    start: IntArray,
    length: IntArray,
    names: bytes,
    fields: IntArray,
    is_sequence: bool,
    places: NDArray[np.uint32],
    counts: IntArray,
    codes: IntArray,
    outputs: tuple[NDArray[np.generic], ...],
    targets: tuple[tuple[Bytes, ...], IntArray, IntArray, IntArray] | None,
    /,
) -> int: ...
def decode_dense(
    buffers: tuple[Bytes, ...],
    buffer: IntArray,
    start: IntArray,
    length: IntArray,
    names: bytes,
    fields: IntArray,
    is_sequence: bool,
    places: NDArray[np.uint32],
    counts: IntArray,
    codes: IntArray,
    outputs: tuple[NDArray[np.generic], ...],
    targets: tuple[tuple[Bytes, ...], IntArray, IntArray, IntArray] | None,
    /,
) -> int: ...
