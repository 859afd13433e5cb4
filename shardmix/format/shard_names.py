"""What the shards of a writer are called.

Rule 1: a pattern with a `{}` or `{:05d}` gets the number of the shard, from 0.
Rule 2: a pattern without braces is a stem: stem-00000-of-00008, as tf.data names shards; the count is known when all are written.
"""

from __future__ import annotations

import os
from glob import escape, glob
from string import Formatter

from .storage import is_remote, local_path


class ShardNames:
    """The names that a pattern gives.

    >>> ShardNames("out/train").paths(2)
    ('out/train-00000-of-00002', 'out/train-00001-of-00002')
    >>> ShardNames("out/train-{:03d}.tfrecord").paths(2)
    ('out/train-000.tfrecord', 'out/train-001.tfrecord')
    """

    def __init__(self, pattern: str) -> None:
        if is_remote(pattern):
            raise ValueError(f"{pattern}: shards are written to local files; write them there and upload them")
        self.pattern = pattern = local_path(pattern)
        self.folder, self._base = os.path.split(pattern)
        self._is_numbered = "{" in pattern or "}" in pattern
        if self._is_numbered:
            self._check_fields()
        if not self._base:
            raise ValueError(f"{pattern!r}: the pattern names a folder; end it in a file name")

    def paths(self, num_shards: int) -> tuple[str, ...]:
        """The final names of so many shards."""
        if self._is_numbered:
            return tuple(self.pattern.format(shard) for shard in range(num_shards))
        return tuple(f"{self.pattern}-{shard:05d}-of-{num_shards:05d}" for shard in range(num_shards))

    def hidden_stem(self, shard: int) -> str:
        """A name for a shard whose final name is not known yet, without its folder."""
        return self._base.format(shard) if self._is_numbered else f"{self._base}-{shard:05d}"

    def find_others(self, paths: tuple[str, ...]) -> list[str]:
        """Files that look like shards of this pattern and are not among `paths`, sorted."""
        if self._is_numbered:
            fields = Formatter().parse(self._base)
            base = "".join(escape(text) + ("" if field is None else "[0-9]*") for text, field, *_ in fields)
        else:
            base = escape(self._base) + "-[0-9]*-of-[0-9]*"
        found = glob(os.path.join(escape(self.folder), base))
        return sorted(set(found) - set(paths))

    def _check_fields(self) -> None:
        """One field, in the name of the file, that takes a number and shows it."""
        advice = "write {} or {:05d} once, in the name of the file, where the shard's number goes"
        try:
            paths = self.paths(2)
            is_sound = len(set(paths)) == 2 and all(os.path.dirname(path) == self.folder for path in paths)
        except (LookupError, ValueError, TypeError, AttributeError) as error:
            raise ValueError(f"{self.pattern!r}: no pattern of shards ({error}); {advice}") from error
        if not is_sound:
            raise ValueError(f"{self.pattern!r}: no pattern of shards; {advice}")
