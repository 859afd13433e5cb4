"""Write TFRecord shards: a file gets its final name only when whole; the index is written as it goes."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike
from typing import Any


class ShardWriter:
    """Write records to shards: `ShardWriter("out/train-{:05d}.tfrecord", num_shards=8)`, then `write(payload or example dict)`."""

    def __init__(
        self,
        pattern: str | PathLike[str],
        *,
        num_shards: int | None = None,
        max_shard_records: int | None = None,
        max_shard_bytes: int | None = None,
        compression_type: str | None = None,
        features: Mapping[str, Any] | None = None,
    ) -> None:
        raise NotImplementedError
