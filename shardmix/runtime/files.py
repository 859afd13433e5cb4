"""The shards that a worker has open.

Rule 1: where records are read in the sequence of their tracks, a track has one file open at a time.
Rule 2: where each is read as it leaves the shuffle buffer, a track needs the files of all that it has there. Tracks share files,
FILES_PER_TRACK for each at most; the one that was not needed for longest makes room.
Rule 3: a file is opened when it is first needed, and compared with the index then. A pickled or forked reader opens its own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..format.index import Index
from ..format.records import IntArray
from ..format.storage import ShardFile, open_shard

FILES_PER_TRACK = 2


class Files(Protocol):
    """Open shards, for the tracks of a worker, numbered from 0."""

    @property
    def num_open(self) -> int:
        """Descriptors that are held."""
        ...

    def open(self, track: int, shard: int) -> ShardFile:
        """The file of a shard, for a track. Raises StaleIndexError when it is not the one that was indexed, OSError."""
        ...

    def open_many(self, track: IntArray, shard: IntArray) -> IntArray:
        """The descriptors of the first of some runs: as many, at least one, as can be open at once. Plain local shards alone."""
        ...

    def close(self) -> None:
        """Give back all descriptors. It can be used again."""
        ...


class TrackFiles:
    """One file a track (rule 1)."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._open: dict[int, tuple[int, ShardFile]] = {}  # track → shard, file

    @property
    def num_open(self) -> int:
        """At most one a track."""
        return len(self._open)

    def open(self, track: int, shard: int) -> ShardFile:
        """The file that the track has open is closed where it is another."""
        found = self._open.get(track)
        if found is None or found[0] != shard:
            self.close_track(track)
            found = self._open[track] = shard, _open_indexed(self._index, shard)
        return found[1]

    def open_many(self, track: IntArray, shard: IntArray) -> IntArray:
        """Up to where a track passes into another file."""
        descriptors: list[int] = []
        seen: dict[int, int] = {}
        for one, number in zip(track.tolist(), shard.tolist(), strict=True):
            if seen.setdefault(one, number) != number:
                break
            descriptors.append(self.open(one, number).descriptor)
        return np.array(descriptors, np.int64)

    def close_track(self, track: int) -> None:
        """The track is at its end."""
        if track in self._open:
            self._open.pop(track)[1].close()

    def close(self) -> None:
        """Give back all descriptors."""
        for track in list(self._open):
            self.close_track(track)


class SharedFiles:
    """The files that were needed last, whichever track it was (rule 2)."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self._room = 1
        self._open: dict[int, ShardFile] = {}  # shard → file, the one needed last at the end

    @property
    def num_open(self) -> int:
        """At most FILES_PER_TRACK a track."""
        return len(self._open)

    def make_room(self, num_tracks: int) -> None:
        """Allow what so many tracks may have open."""
        self._room = max(self._room, FILES_PER_TRACK * num_tracks)

    def open(self, track: int, shard: int) -> ShardFile:
        """Where there is no room, the file that was not needed for longest is closed."""
        file = self._open.pop(shard, None)
        if file is None:
            while len(self._open) >= self._room:
                self._open.pop(next(iter(self._open))).close()
            file = _open_indexed(self._index, shard)
        self._open[shard] = file
        return file

    def open_many(self, track: IntArray, shard: IntArray) -> IntArray:
        """Up to where there is no room for one more; fewest files, and least work, where runs of a shard are neighbours."""
        bounds = np.append(0, np.flatnonzero(np.diff(shard)) + 1)[: self._room + 1]
        starts, stop = bounds[: self._room], len(shard) if len(bounds) <= self._room else int(bounds[-1])
        descriptors = [self.open(0, number).descriptor for number in shard[starts].tolist()]
        return np.repeat(np.array(descriptors, np.int64), np.diff(np.append(starts, stop)))

    def close(self) -> None:
        """Give back all descriptors."""
        while self._open:
            self._open.popitem()[1].close()


def _open_indexed(index: Index, shard: int) -> ShardFile:
    """Open a shard as the index knows it."""
    index.check(shard)
    return open_shard(index.path(shard), index.compression(shard), entries=index.entries(shard))
