"""Read one file as a stream of records, no index needed.

    for payload in read_records("train-00000.tfrecord"): ...
    for example in read_examples("train-00000.tfrecord", {"label": FixedLenFeature((), "int64")}): ...
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os import PathLike
from typing import Any


def read_records(
    path: str | PathLike[str], *, compression_type: str = "auto", verify: str = "full", on_corrupt: str = "raise"
) -> Iterator[memoryview]:
    """The payloads of one file, in file order. Each view owns its memory."""
    raise NotImplementedError


def read_examples(
    path: str | PathLike[str],
    features: Mapping[str, Any] | None = None,
    sequence_features: Mapping[str, Any] | None = None,
    *,
    compression_type: str = "auto",
    verify: str = "full",
) -> Iterator[dict[str, Any]]:
    """The examples of one file, each a dict of numpy values that it owns, and bytes."""
    raise NotImplementedError
