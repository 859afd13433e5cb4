"""The errors of shardmix, sorted by whose fault it is.

    TypeError, ValueError      the call is wrong
    ShardMixError              base of the rest
      CorruptShardError        the bytes are wrong
      StaleIndexError          the index does not describe the shard
      StateMismatchError       the state is of another corpus, seed, lanes or batch
      ParseError               the payload is sound, the parser refused it

Rule 1: a message reads *where: what, got and expected, what to do*.
Rule 2: what the message says is also a field; errors pickle with their fields.
Rule 3: imports nothing of the package.
"""

from __future__ import annotations

from typing import Any


class ShardMixError(Exception):
    """Base of the errors that are not a wrong call."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, dict(self.__dict__))


class _PlacedError(ShardMixError):
    """An error about one place of one shard; the place is put before the message."""

    def __init__(
        self, message: str, *, path: str, record: int | None = None, offset: int | None = None
    ) -> None:
        super().__init__(f"{describe_place(path, record, offset)}: {message}")
        self.path = path
        self.record = record
        self.offset = offset


class CorruptShardError(_PlacedError):
    """The bytes of a shard are wrong.

    `path` names the shard, `record` the number of the record in it (from 0), `offset` the byte at which its frame begins
    (for a compressed shard: in the inflated bytes). `record` and `offset` are None where unknown.
    """


class StaleIndexError(_PlacedError):
    """The index does not describe the shard: it was changed, cut or replaced after it was indexed."""


class ParseError(_PlacedError):
    """The payload is sound, but the parser refused it; `feature` names the feature, or is None."""

    def __init__(
        self,
        message: str,
        *,
        path: str,
        record: int | None = None,
        offset: int | None = None,
        feature: str | None = None,
    ) -> None:
        super().__init__(message, path=path, record=record, offset=offset)
        self.feature = feature


class StateMismatchError(ShardMixError):
    """The state is of another corpus, seed, lanes or batch; `differences` maps a name to (of the state, of the loader)."""

    def __init__(self, message: str, *, differences: dict[str, tuple[Any, Any]] | None = None) -> None:
        super().__init__(message)
        self.differences = dict(differences or {})


class SkipRecord(Exception):
    """Raised by a user's `parse` or `transform`: drop this record; it leaves a hole in its batch and shifts nothing."""


def describe_place(path: str, record: int | None = None, offset: int | None = None) -> str:
    """`train-00003.tfrecord record 17 at byte 81920`, as far as known."""
    words = [path]
    if record is not None:
        words.append(f"record {record}")
    if offset is not None:
        words.append(f"at byte {offset}")
    return " ".join(words)


def _rebuild(kind: type[ShardMixError], args: tuple[Any, ...], fields: dict[str, Any]) -> ShardMixError:
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(fields)
    return error
