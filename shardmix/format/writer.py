"""Write TFRecord shards: files get their final names together, when all are whole; the index is written as it goes.

    with ShardWriter("out/train-{:05d}.tfrecord", max_shard_bytes=256 << 20) as writer:
        for payload in payloads:
            writer.write(payload)

Rule 1: inside `with` there are only hidden files. An exception, a full disk, Ctrl-C: they are removed, no final name was touched.
Rule 2: num_shards deals records round robin; max_shard_records and max_shard_bytes fill one shard after the other.
Rule 3: what could not be read back is refused before a byte of it is written.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from logging import getLogger
from types import TracebackType
from typing import Any, Self

import numpy as np

from .features import check_features
from .framing import FRAME_BYTES, as_bytes_view
from .output import ShardOutput, sync_folder
from .shard_names import ShardNames
from .storage import COMPRESSIONS, resolve_compression

MAX_PAYLOAD_BYTES = 2**31 - 1  # protobuf's limit, and that of other readers
_BUFFERS_BYTES = 1 << 26  # memory for all shards that are written side by side
_MIN_BUFFER_BYTES, _MAX_BUFFER_BYTES = 1 << 14, 1 << 20

_logger = getLogger("shardmix")


class ShardWriter:
    """Write records to shards.

        with ShardWriter("out/train", num_shards=8, compression_type="gzip") as writer:
            writer.write({"label": 3, "image": b"..."})   # out/train-00000-of-00008 … out/train-00007-of-00008

    pattern: local path with one `{}` (or `{:05d}`) for the number of the shard; without one it is a stem, and the files are
        called stem-00000-of-00008. The folder is made if need be.
    num_shards: so many shards, dealt round robin; or
    max_shard_records: records a shard; or
    max_shard_bytes: bytes of a shard before compression, frames included; only a record larger than that makes a larger shard.
    compression_type: None (also "none", ""), "gzip" or "zlib".
    features: what `write` makes of a mapping, see FixedLenFeature; None takes the kinds from the values.

    `paths` are the final names, in order, after `close`. Without `with`, `close` finishes and `abort` gives up; a writer that
    is neither closed nor aborted leaves hidden files. Files of the same names are replaced.

    Raises TypeError unless exactly one of the three limits is given, ValueError for a bad one, a bad pattern or bad features.
    """

    def __init__(
        self,
        pattern: str | os.PathLike[str],
        *,
        num_shards: int | None = None,
        max_shard_records: int | None = None,
        max_shard_bytes: int | None = None,
        compression_type: str | None = None,
        features: Mapping[str, Any] | None = None,
    ) -> None:
        _check_limits(num_shards=num_shards, max_shard_records=max_shard_records, max_shard_bytes=max_shard_bytes)
        self.paths: tuple[str, ...] = ()
        self._names = ShardNames(os.fspath(pattern))
        self._compression = resolve_compression(compression_type)
        if self._compression not in COMPRESSIONS:
            raise ValueError(f"compression_type is {compression_type!r}; a writer needs None, 'gzip' or 'zlib'")
        self._features = None if features is None else check_features("features", features)
        self._max_records, self._max_bytes = max_shard_records, max_shard_bytes
        self._is_dealing = num_shards is not None
        self._num_records = 0
        self._outputs: list[ShardOutput] = []
        self._is_open = True
        self._buffer_bytes = min(_MAX_BUFFER_BYTES, max(_MIN_BUFFER_BYTES, _BUFFERS_BYTES // (num_shards or 1)))
        os.makedirs(self._names.folder or ".", exist_ok=True)
        with self._aborting():
            for _ in range(num_shards or 1):
                self._add_output()

    def write(self, record: bytes | bytearray | memoryview | Mapping[str, Any]) -> None:
        """Write one record: a payload, or a mapping of features, which becomes a tf.train.Example.

        A record that is refused leaves the writer as it was. After an OSError (the disk is full) all that was written is removed.

        Raises TypeError when it is neither, ValueError when the payload is over 2 GiB - 1 bytes, OSError naming the file.
        """
        if not self._is_open:
            raise ValueError(f"{self._names.pattern}: the writer is closed")
        payload = self._encode(record)
        if len(payload) > MAX_PAYLOAD_BYTES:
            where = self._names.pattern
            raise ValueError(f"{where}: a payload of {len(payload)} bytes; a record holds at most {MAX_PAYLOAD_BYTES}")
        with self._aborting():
            self._choose_output(len(payload)).append(payload)
        self._num_records += 1

    def close(self) -> None:
        """Finish the shards, give them their names, write their index. Closing twice is allowed."""
        if not self._is_open:
            return
        paths = self._names.paths(len(self._outputs))
        with self._aborting():
            for output in self._outputs if self._is_dealing else self._outputs[-1:]:
                output.finish()
            _publish(self._outputs, paths)
        self._is_open = False
        self.paths = paths
        self._write_index()
        for path in self._names.find_others(paths):
            _logger.warning("%s: an older file that matches the pattern of the new shards; remove it lest it be read too", path)

    def abort(self) -> None:
        """Give up: remove what was written. Does nothing after `close`."""
        if self._is_open:
            self._is_open = False
            for output in self._outputs:
                output.discard()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if kind is None:
            self.close()
        else:
            self.abort()

    def _encode(self, record: bytes | bytearray | memoryview | Mapping[str, Any]) -> memoryview:
        """The payload of a record."""
        if isinstance(record, Mapping):
            from .encode import encode_example

            return memoryview(encode_example(record, self._features))
        try:
            return as_bytes_view(record)
        except TypeError as error:
            kind = type(record).__name__
            raise TypeError(f"{self._names.pattern}: a record is bytes or a mapping of features, not {kind} ({error})") from error

    def _choose_output(self, num_bytes: int) -> ShardOutput:
        """The shard for the next record, of `num_bytes` bytes."""
        if self._is_dealing:
            return self._outputs[self._num_records % len(self._outputs)]
        output = self._outputs[-1]
        is_full = len(output.lengths) == self._max_records
        if self._max_bytes is not None and len(output.lengths):
            is_full = output.num_bytes + num_bytes + FRAME_BYTES > self._max_bytes
        if is_full:
            output.finish()
            output = self._add_output()
        return output

    def _add_output(self) -> ShardOutput:
        name = self._names.hidden_stem(len(self._outputs))
        output = ShardOutput(self._names.folder, name, self._compression, buffer_bytes=self._buffer_bytes)
        self._outputs.append(output)  # known before there is a file: an interrupt leaves none
        output.create()
        return output

    @contextmanager
    def _aborting(self) -> Iterator[None]:
        """Give up when the body fails, whatever the reason."""
        try:
            yield
        except BaseException:
            self.abort()
            raise

    def _write_index(self) -> None:
        """Leave the index beside the shards, so that no reader has to scan them."""
        from .index import write_index

        lengths = [np.array(output.lengths, np.int64) for output in self._outputs]
        entries = () if self._compression == "none" else ((0, 0),)
        stamps = [output.stamp for output in self._outputs]
        write_index(self.paths, lengths, compression=self._compression, entries=[entries] * len(self.paths), stamps=stamps)


def _publish(outputs: list[ShardOutput], paths: tuple[str, ...]) -> None:
    """Give all shards their final names. When one cannot have it, those that have are taken back: a part is no corpus."""
    for path in paths:  # before a file of these names is replaced
        if os.path.isdir(path) and not os.path.islink(path):
            raise IsADirectoryError(errno.EISDIR, "a folder has the name of a shard; remove it", path)
    try:
        for output, path in zip(outputs, paths, strict=True):
            output.publish(path)
        sync_folder(os.path.dirname(paths[0]))
    except BaseException:
        for output, path in zip(outputs, paths, strict=True):
            output.take_back(path)
        raise


def _check_limits(**limits: int | None) -> None:
    """Exactly one limit, a positive integer."""
    given = {name: limit for name, limit in limits.items() if limit is not None}
    if len(given) != 1:
        raise TypeError(f"give exactly one of {', '.join(limits)}; got {', '.join(given) or 'none'}")
    for name, limit in given.items():
        if isinstance(limit, bool) or not isinstance(limit, int | np.integer):
            raise TypeError(f"{name} is {limit!r}; it is an integer")
        if limit < 1:
            raise ValueError(f"{name} is {limit}; it is at least 1")
