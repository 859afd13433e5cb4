"""Values of features, as plain data and as short text."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from .contents import describe_bytes, is_text

MAX_VALUES = 8  # of a feature, in text
MAX_TEXT = 60  # characters of a value, in text
MAX_HEX_BYTES = 16


def describe_feature(feature: Any) -> Any:
    """A Feature message as plain data: None (no kind is set), or {kind: values}.

    The kinds are "int64", "float", and "bytes": those as hex, with "text" beside it where all are text. Floats that JSON has no
    number for are "NaN", "Infinity", "-Infinity".
    """
    which = feature.WhichOneof("kind")
    if which is None:
        return None
    values = getattr(feature, which).value
    if which == "int64_list":
        return {"int64": list(values)}
    if which == "float_list":
        return {"float": [_float_of(value) for value in values]}
    described: dict[str, Any] = {"bytes": [value.hex() for value in values]}
    if values and all(map(is_text, values)):
        described["text"] = [value.decode() for value in values]
    return described


def _float_of(value: float) -> float | str:
    """The shortest number that is the same float32."""
    if math.isfinite(value):
        return float(str(np.float32(value)))
    return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"


def format_feature(feature: Any) -> tuple[str, str]:
    """(kind and number of values, the first values)."""
    if feature is None:
        return "unset", ""
    kind = next(iter(feature))
    values = feature[kind]
    shown = [format_bytes_value(bytes.fromhex(value)) if kind == "bytes" else str(value) for value in values[:MAX_VALUES]]
    return f"{kind} × {len(values)}", ", ".join(shown) + (" …" if len(values) > MAX_VALUES else "")


def format_bytes_value(value: bytes) -> str:
    """Bytes: text in quotes, else what they are, and their beginning in hex."""
    if not value:
        return "(empty)"
    if is_text(value):
        text = value.decode()
        return repr(text) if len(text) <= MAX_TEXT else f"{text[:MAX_TEXT]!r} … ({len(value):,} bytes)"
    what = describe_bytes([value])
    beginning = value[:MAX_HEX_BYTES].hex(" ") + (" …" if len(value) > MAX_HEX_BYTES else "")
    return f"{what + ', ' if what else ''}{len(value):,} bytes: {beginning}"
