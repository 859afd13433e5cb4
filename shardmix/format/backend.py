"""The one place that chooses between the C twin and the Python twin.

    SHARDMIX_BACKEND=c | python    forces one; unset takes C where the extension was built

Every layer above takes crc32c, scan_frames, check_frames, read_runs, copy_spans, cut_bytes, place_rows and decode_examples from
here; `name` is "c" or "python".

Rule 1: chosen once, when this module is imported. Both give the same values, errors and texts (tests/format/test_parity.py).
Rule 2: an extension that is there and does not load is an error, not a reason to be slow in silence.
Rule 3: `decode_examples` is looked up when it is first called: the columns that it fills copy their spans through this module.
"""

from __future__ import annotations

import os
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .columns import Allocate, Column
    from .features import Schema
    from .records import RecordBlock
    from .targets import RowTargets

    class DecodeExamples(Protocol):
        """What both twins are."""

        def __call__(
            self, block: RecordBlock, schema: Schema, allocate: Allocate = ..., targets: RowTargets | None = None
        ) -> list[Column]: ...


__all__ = [
    "check_frames",
    "copy_spans",
    "crc32c",
    "cut_bytes",
    "decode_examples",
    "name",
    "place_rows",
    "read_runs",
    "scan_frames",
]

VARIABLE = "SHARDMIX_BACKEND"


def _choose() -> str:
    """ "c" or "python", from the environment and from what was built."""
    wanted = os.environ.get(VARIABLE, "")
    if wanted not in ("", "c", "python"):
        raise ValueError(f"{VARIABLE} is {wanted!r}; it is 'c', 'python', or not set")
    if wanted == "python":
        return wanted
    try:
        import_module("._core", __package__)
    except ModuleNotFoundError as error:
        if wanted == "c":
            raise ImportError(
                f"{VARIABLE} is 'c', and the C extension was not built; install a C compiler and then shardmix with "
                f"SHARDMIX_BUILD_C=yes, which shows what is wrong, or set {VARIABLE}=python"
            ) from error
        return "python"
    except ImportError as error:
        raise ImportError(
            f"the C extension was built and does not load: {error}; install shardmix again, or set {VARIABLE}=python"
        ) from error
    return "c"


name = _choose()

if name == "c":
    from .native import check_frames, copy_spans, crc32c, cut_bytes, place_rows, read_runs, scan_frames
else:
    from .crc32c import crc32c
    from .framing import check_frames, scan_frames
    from .runs import read_runs
    from .spans import copy_spans, cut_bytes, place_rows


@cache
def _find_decoder() -> DecodeExamples:
    if name == "c":
        from .native_examples import decode_examples
    else:
        from .example import decode_examples
    return decode_examples


def decode_examples(
    block: RecordBlock, schema: Schema, allocate: Allocate | None = None, targets: RowTargets | None = None
) -> list[Column]:
    """Decode every row of the block, one column a field of the schema; see `example.decode_examples`."""
    decode = _find_decoder()
    return decode(block, schema) if allocate is None else decode(block, schema, allocate, targets)
