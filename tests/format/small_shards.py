"""Four small shards, for the tests of the index."""

from __future__ import annotations

import errno
import os

from shardmix.format.framing import frame_record

COUNTS = (3, 0, 5, 1)  # records of the shards of the fixture `four_shards`


def write_shard(path, lengths):
    """A plain shard of records of zeros."""
    path.write_bytes(b"".join(frame_record(bytes(length)) for length in lengths))


def index_files(folder):
    """The names of the index files of a folder."""
    return sorted(name for name in os.listdir(folder) if name.endswith(".shardmix"))


def touch_later(path):
    """Give it another time of change, as any rewriting does."""
    time = os.stat(path).st_mtime_ns + 1_000_000_000
    os.utime(path, ns=(time, time))


def fail_with_a_full_disk(*arguments):
    """In place of a function that writes."""
    raise OSError(errno.ENOSPC, "No space left on device")
