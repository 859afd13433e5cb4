"""A gzip or zlib shard as random access to its inflated bytes.

Rule 1: multi-member gzip is one stream. A cut trailer, a bad checksum or bytes behind the end are damage,
not the end of the file.
Rule 2: reading forward is a stream. A read before the stream's place begins again at the nearest entry point, one beyond a known
entry point leaps to it.
Rule 3: memory is one window of inflated bytes, whatever the stream claims.
Rule 4: the bytes before a break are given, always the same ones: all that the compressed bytes before the breaking one hold.

An entry point is where a gzip member begins. They are kept at least ENTRY_SPACING inflated bytes apart.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING

import numpy as np

from ..errors import CorruptShardError
from .local import RawFile
from .records import Bytes

ENTRY_SPACING = 1 << 20  # inflated bytes; closer ones would cost more to keep than to inflate
WINDOW_BYTES = 1 << 18  # inflated at a time
INPUT_BYTES = 1 << 16  # compressed bytes read at a time
MAX_RATIO = 1032  # deflate gives at most 258 bytes for 2 bits (zlib's technical notes)

if TYPE_CHECKING:
    from zlib import _Decompress as _Inflater

_WBITS = {"gzip": 31, "zlib": 15}


class InflatedShard:
    """A compressed shard (a `storage.ShardFile`): a decompressor, and the window of bytes that it gave last."""

    descriptor = -1  # no file holds the inflated bytes

    def __init__(self, path: str, raw: RawFile, compression: str, entries: tuple[tuple[int, int], ...] = ()) -> None:
        self.path = path
        self.compression = compression
        self.size_on_disk = raw.size
        self.size: int | None = None
        self.size_limit = raw.size * MAX_RATIO
        self._raw = raw
        self._entries = sorted({(0, 0), *entries})
        self._begin(0, 0)

    def read_into(self, offset: int, out: Bytes) -> int:
        """Fill `out` from `offset` on; returns the bytes read, fewer only at the end. Raises CorruptShardError when the
        stream breaks before `out` is full."""
        num_bytes, damage = self.read_sound(offset, out)
        if damage is not None:
            raise CorruptShardError(damage, path=self.path, offset=offset + num_bytes)
        return num_bytes

    def read_sound(self, offset: int, out: Bytes) -> tuple[int, str | None]:
        """Like `read_into`, but returns the bytes before a break, and its text."""
        self._seek(offset)
        target = out.data
        done = 0
        while done < len(target):
            place = offset + done - self._start
            if place < len(self._window):
                piece = memoryview(self._window)[place : place + len(target) - done]
                target[done : done + len(piece)] = piece
                done += len(piece)
            elif not self._inflate_window():
                return done, self._break
        return done, None

    def entries(self) -> tuple[tuple[int, int], ...]:
        """(compressed offset, inflated offset) of the entry points given or passed so far."""
        return tuple(self._entries)

    def close(self) -> None:
        """Give back the descriptor and the window. Closing twice is allowed."""
        self._raw.close()
        self._window = b""

    def _begin(self, compressed: int, inflated: int) -> None:
        """Begin inflating at a member."""
        self._member = compressed  # stored offset where the member at hand begins
        self._inflater = zlib.decompressobj(_WBITS[self.compression])
        self._input = b""  # read, not yet inflated
        self._input_end = compressed  # stored offset behind `_input`
        self._window, self._start = b"", inflated
        self._break: str | None = None  # why the stream does not go on behind the window

    def _seek(self, offset: int) -> None:
        """Bring the stream to where reading on reaches `offset` soonest."""
        compressed, inflated = self._entries[bisect_right(self._entries, offset, key=_inflated) - 1]
        if offset < self._start or inflated > self._start + len(self._window):
            self._begin(compressed, inflated)

    def _inflate_window(self) -> bool:
        """Replace the window by the bytes behind it; False at the end of the stream, or where it breaks."""
        self._start += len(self._window)
        self._window = b""
        while not self._window and self._break is None:
            self._read_input()
            if self._inflater.eof:
                if not self._input:
                    self.size = self._start
                    return False
                self._begin_next_member()
            elif self.size_on_disk == 0:
                self.size = 0
                return False
            else:
                self._window = self._inflate_input()
        return bool(self._window)

    def _read_input(self) -> None:
        """Read on in the file when all that was read is inflated."""
        if not self._input:
            data = np.empty(max(0, min(INPUT_BYTES, self.size_on_disk - self._input_end)), np.uint8)
            self._input = data[: self._raw.read_into(self._input_end, data)].tobytes()
            self._input_end += len(self._input)

    def _begin_next_member(self) -> None:
        """Go on with the member behind the one that has ended."""
        data, end = self._input, self._input_end
        member = end - len(data)
        if self.compression == "zlib":
            self._break_off(f"{self.size_on_disk - member} bytes follow its end at compressed byte {member}")
            return
        self._begin(member, self._start)
        self._input, self._input_end = data, end
        place = bisect_left(self._entries, self._start, key=_inflated)
        spacing = [abs(self._start - inflated) for _, inflated in self._entries[max(0, place - 1) : place + 1]]
        if min(spacing) >= ENTRY_SPACING:
            self._entries.insert(place, (member, self._start))

    def _inflate_input(self) -> bytes:
        """Up to a window of bytes from the input at hand; sets `_break` where the stream breaks."""
        before = self._inflater.copy()
        try:
            window = self._inflater.decompress(self._input, WINDOW_BYTES)
        except zlib.error as error:
            reason = str(error).rpartition(": ")[2]
            window, place = _inflate_before_break(before, self._input)
            self._break_off(f"{reason}, near compressed byte {self._input_end - len(self._input) + place}")
            return window
        if not (window or self._input or self._inflater.eof):
            self._break_off("the file ends before it does")
        self._input = self._inflater.unused_data if self._inflater.eof else self._inflater.unconsumed_tail
        return window

    def _break_off(self, reason: str) -> None:
        what = "zlib stream" if self.compression == "zlib" else f"gzip member that begins at compressed byte {self._member}"
        self._break = f"the {what} is damaged: {reason}"


def _inflate_before_break(inflater: _Inflater, data: bytes) -> tuple[bytes, int]:
    """What the bytes before the one that breaks the stream hold, and the place of that byte in `data`."""
    pieces: list[bytes] = []
    place, step = 0, len(data)
    while step:
        trial = inflater.copy()
        try:
            pieces.append(trial.decompress(data[place : place + step]))
        except zlib.error:
            step //= 2
        else:
            inflater = trial
            place += step
    return b"".join(pieces), place


def _inflated(entry: tuple[int, int]) -> int:
    return entry[1]
