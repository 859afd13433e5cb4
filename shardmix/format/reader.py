"""Read one file as a stream of records, no index needed.

    for payload in read_records("train-00000.tfrecord"): ...

Rule 1: the intact prefix comes before any error.
Rule 2: nothing is skipped unless asked; what is skipped is logged, once per damage, with its place.
Rule 3: a view shares its block with the views beside it and with nothing else; no two overlap, and no block is used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from logging import getLogger

from .framing import check_verify
from .scan import check_on_corrupt, walk_frames
from .storage import open_shard, resolve_compression

_logger = getLogger("shardmix")


def read_records(
    path: str | os.PathLike[str], *, compression_type: str | None = "auto", verify: str = "full", on_corrupt: str = "raise"
) -> Iterator[memoryview]:
    """The payloads of one file, in file order, each a writable view of bytes that no other view holds.

        for payload in read_records("train-00000.tfrecord"):
            values = json.loads(bytes(payload))

    A view keeps its block of about 1 MiB alive; take `bytes(payload)` to keep a few records of many.

    path: a local path, or a URL for fsspec.
    compression_type: "auto" tells it from the content; "none" (also None, ""), "gzip", "zlib".
    verify: "full" checks both CRCs of each record, "length" those of the lengths, "off" none.
    on_corrupt: "raise"; or "skip": a record with a damaged payload is left out, damage that hides where the next record begins
        ends the file; either is logged as a warning.

    Raises CorruptShardError (behind the intact prefix), OSError when the file cannot be read, ValueError for a wrong argument
    (at once), ImportError when a URL needs fsspec.
    """
    resolve_compression(compression_type)
    check_verify(verify)
    check_on_corrupt(on_corrupt)
    return _read_views(os.fspath(path), compression_type, verify, is_skipping=on_corrupt == "skip")


def _read_views(path: str, compression: str | None, verify: str, *, is_skipping: bool) -> Iterator[memoryview]:
    file = open_shard(path, compression)
    try:
        for block in walk_frames(file, verify=verify):
            view = block.data.data
            for start, length in zip(block.starts().tolist(), block.lengths.tolist(), strict=True):
                yield view[start : start + length]
            if block.damage is None:
                continue
            if not is_skipping:
                raise block.damage
            what = "skipped the rest of the file" if block.passed_length is None else "skipped one record"
            _logger.warning("%s; %s", block.damage, what)
    finally:
        file.close()
