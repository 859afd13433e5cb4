"""No call of the extension leaves anything behind, be its arguments right or wrong."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix.errors import ParseError
from shardmix.format.features import FixedLenFeature, VarLenFeature, resolve_schema

pytest.importorskip("shardmix.format._core", reason="the C extension was not built")
from shardmix.format import _core, native, native_examples
from tests.format import test_native
from tests.format.odd_payloads import ODD, SCHEMA, USUAL
from tests.format.test_native import SOUND, as_array
from tests.format.test_parity import make_block, to_targets

pytestmark = pytest.mark.once


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def refuse(call: Callable[[], Any]) -> None:
    with pytest.raises((ValueError, TypeError, BufferError, ParseError)):
        call()


def both_passes(call: list[Any], num_columns: int) -> Callable[[], Any]:
    """The two passes over one row, without Python between them."""
    _core.count_values(*call)
    plan = native_examples._plan_of(SCHEMA)
    columns = [*native_examples._allocate_columns(plan, call[8], native_examples.allocate_arrays).values()][:num_columns]
    outputs = tuple(array for column in columns for array in (*column.lengths, column.values))

    def run() -> None:
        _core.count_values(*call)
        _core.decode_examples(*call, outputs, None)

    return run


def leaking_calls() -> dict[str, Callable[[], Any]]:
    """Every function of the extension, on good and on bad input."""
    schema = resolve_schema({"one": FixedLenFeature((), "int64"), "words": VarLenFeature("bytes")})
    good, odd = make_block([USUAL["full"]]), make_block([ODD["duplicate_key"]])
    bad = make_block([USUAL["full"], ODD["not_an_example"]])
    sound, damaged = as_array(SOUND), as_array(SOUND[:-1])
    start, length = np.array([12, 28]), np.array([0, 3])
    source, out = np.arange(100), np.zeros(100, np.int64)
    arguments = test_native.TestWrongCalls().arguments
    return {
        "crc32c": lambda: _core.crc32c(SOUND),
        "crc32c wrongly": lambda: refuse(lambda: _core.crc32c("text")),
        "scan": lambda: native.scan_frames(sound, remaining=len(sound)),
        "scan damage": lambda: native.scan_frames(damaged, remaining=len(damaged)),
        "scan wrongly": lambda: refuse(lambda: _core.scan_frames(sound, 5, 2, out)),
        "check": lambda: native.check_frames(sound, start, length),
        "check wrongly": lambda: refuse(lambda: _core.check_frames(sound, start, length, 2, out)),
        "copy": lambda: native.copy_spans(source, start, length, out, start),
        "copy wrongly": lambda: refuse(lambda: native.copy_spans(source, start + 100, length, out, start)),
        "place": lambda: native.place_rows([[source]], [source], [out], 100),
        "place wrongly": lambda: refuse(lambda: native.place_rows([[source]], [source + 1], [out], 100)),
        "cut": lambda: native.cut_bytes(sound, length),
        "cut wrongly": lambda: refuse(lambda: _core.cut_bytes(sound, length - 1)),
        "both passes": both_passes(arguments(), len(SCHEMA.fields)),
        "both passes wrongly": lambda: refuse(both_passes(arguments(), 3)),
        "count wrongly": lambda: refuse(lambda: _core.count_values(*arguments(codes=np.empty(2, np.int64)))),
        "decode": lambda: native_examples.decode_examples(good, schema),
        "decode to targets": lambda: to_targets(native_examples.decode_examples, good, schema),
        "decode to wrong targets": lambda: refuse(lambda: to_targets(native_examples.decode_examples, good, schema, room=0)),
        "decode odd": lambda: native_examples.decode_examples(odd, schema),
        "decode bad": lambda: refuse(lambda: native_examples.decode_examples(bad, schema)),
    }


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="reads the memory in use from /proc")
@pytest.mark.parametrize("name", leaking_calls())
def test_nothing_leaks(name: str) -> None:
    """20 x 1,000 calls: no object, no buffer, no byte. The first rounds fill caches."""
    call = leaking_calls()[name]
    rounds = []
    for _ in range(20):
        for _ in range(1000):
            call()
        gc.collect()
        rounds.append((sys.getallocatedblocks(), resident_bytes()))
    blocks, resident = (last - first for first, last in zip(rounds[4], rounds[-1], strict=True))
    assert blocks < 1000, "15,000 calls left objects behind"
    assert resident < 256 * 1024, "15,000 calls left 18 bytes behind each, or more"
