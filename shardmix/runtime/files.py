"""The shards that a worker has open.

Rule 1: a file that is read as a stream (compressed, remote) is of one track, which has one open at a time.
Rule 2: a plain local file is read by position, so tracks share it: there are as many files as tracks at most, or, where each
record is read as it leaves the shuffle buffer and a track needs the files of all that it has there, FILES_OF_LATE_TRACK for each.
The file that was not needed for longest makes room.
Rule 3: a file is opened when it is first needed, and compared with the index then. A pickled or forked reader opens its own.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from ..format.index import Index
from ..format.records import IntArray
from ..format.storage import ShardFile, open_shard

FILES_OF_LATE_TRACK = 2


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

    def make_room(self, num_tracks: int) -> None:
        """So many tracks are read."""
        ...

    def end_track(self, track: int) -> None:
        """The track is at its end."""
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
            self.end_track(track)
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

    def make_room(self, num_tracks: int) -> None:
        """There is always room."""

    def end_track(self, track: int) -> None:
        """Its file is closed."""
        if track in self._open:
            self._open.pop(track)[1].close()

    def close(self) -> None:
        """Give back all descriptors."""
        for track in list(self._open):
            self.end_track(track)


class SharedFiles:
    """The files that were needed last, whichever track it was (rule 2): at most `per_track` for each track."""

    def __init__(self, index: Index, per_track: int = 1) -> None:
        self._index, self._per_track = index, per_track
        self._room = 1
        self._open: dict[int, ShardFile] = {}  # shard → file, the one needed last at the end
        self._tracks: set[int] = set()  # that are read

    @property
    def num_open(self) -> int:
        """At most `per_track` a track."""
        return len(self._open)

    def make_room(self, num_tracks: int) -> None:
        """Allow what so many tracks may have open."""
        self._room = max(self._room, self._per_track * num_tracks)

    def open(self, track: int, shard: int) -> ShardFile:
        self._tracks.add(track)
        return self._find(shard)

    def open_many(self, track: IntArray, shard: IntArray) -> IntArray:
        """Up to where there is no room for one more; fewest files, and least work, where runs of a shard are neighbours."""
        starts = np.append(0, np.flatnonzero(np.diff(shard)) + 1)
        found: dict[int, int] = {}
        descriptors: list[int] = []
        for number in shard[starts].tolist():
            if number not in found:
                if len(found) == self._room:
                    break
                found[number] = self._find(number).descriptor
            descriptors.append(found[number])
        self._tracks.update(track.tolist())
        counts = np.diff(np.append(starts, len(shard)))[: len(descriptors)]
        return np.repeat(np.array(descriptors, np.int64), counts)

    def end_track(self, track: int) -> None:
        """With the last track all files are closed."""
        self._tracks.discard(track)
        if not self._tracks:
            self.close()

    def close(self) -> None:
        """Give back all descriptors."""
        self._tracks.clear()
        while self._open:
            self._open.popitem()[1].close()

    def _find(self, shard: int) -> ShardFile:
        """Where there is no room, the file that was not needed for longest is closed."""
        file = self._open.pop(shard, None)
        if file is None:
            while len(self._open) >= self._room:
                self._open.pop(next(iter(self._open))).close()
            file = _open_indexed(self._index, shard)
        self._open[shard] = file
        return file


def _open_indexed(index: Index, shard: int) -> ShardFile:
    """Open a shard as the index knows it."""
    index.check(shard)
    return open_shard(index.path(shard), index.compression(shard), entries=index.entries(shard))
