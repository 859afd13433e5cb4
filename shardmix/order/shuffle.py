"""Shuffle a lane: a shuffle buffer of N records that is a pure function.

Rule 1: arrival i has the key (max(i - N, 0) << 24) + N·E_i, where E_i, hashed from (seed, epoch, lane, i), is the exponential
    distribution truncated at 4, in fixed point with 24 fractional bits. The lane's order is the stable argsort of the keys: the
    continuous-time form of the usual buffer that replaces one at random.
Rule 2: integers only. Floating logarithms differ in the last bit between CPUs, so the distribution is a table in the source.
Rule 3: with i arrivals known, those with a key of at most max(i - N, 0) << 24 come next, whatever arrives later: so it streams.
Rule 4: when m arrivals are known, all of those up to m - 4N have left (while m < 5N, perhaps none): so it seeks in O(N).
Rule 5: a reader takes in no more than it must: up to the latest arrival that has left. The keys do not depend on what is
    read, so the order is worked out ahead, in blocks of some thousand numbers, and no record is held for that. Held: never more
    than rule 3 would hold, which is 0.93 N on average and never over 5N.

N = 0 is the identity. Knows nothing of tracks or records.
"""

from __future__ import annotations

import numpy as np

from .hashing import KEYS, IntArray, absorb, hash64

FRACTION_BITS = 24
REACH = 4  # where the exponential distribution is truncated
BLOCK = 4096  # arrivals worked out at a time, or N if that is more

# TABLE[j] = round(2**24 * -ln(1 - (j / 256) * (1 - exp(-4)))): the quantiles of the distribution, j = 0 … 256.
# fmt: off
TABLE = (
    0, 64459, 129167, 194126, 259337, 324802, 390524, 456504, 522745, 589249, 656017, 723052, 790355, 857930, 925778, 993902,
    1062304, 1130985, 1199949, 1269197, 1338732, 1408557, 1478674, 1549085, 1619792, 1690799, 1762108, 1833721, 1905641, 1977871,
    2050413, 2123270, 2196444, 2269940, 2343758, 2417903, 2492378, 2567184, 2642325, 2717804, 2793624, 2869789, 2946301, 3023163,
    3100379, 3177953, 3255886, 3334184, 3412848, 3491883, 3571292, 3651079, 3731247, 3811799, 3892741, 3974075, 4055805, 4137935,
    4220469, 4303411, 4386766, 4470536, 4554727, 4639343, 4724387, 4809865, 4895780, 4982138, 5068943, 5156199, 5243911, 5332084,
    5420723, 5509833, 5599418, 5689485, 5780037, 5871081, 5962622, 6054665, 6147216, 6240280, 6333863, 6427972, 6522611, 6617787,
    6713506, 6809774, 6906597, 7003983, 7101938, 7200467, 7299579, 7399280, 7499576, 7600476, 7701987, 7804115, 7906869, 8010256,
    8114284, 8218961, 8324296, 8430296, 8536970, 8644326, 8752374, 8861122, 8970580, 9080757, 9191661, 9303304, 9415695, 9528844,
    9642761, 9757457, 9872942, 9989228, 10106325, 10224246, 10343001, 10462603, 10583063, 10704395, 10826610, 10949723, 11073745,
    11198691, 11324575, 11451410, 11579211, 11707994, 11837772, 11968563, 12100381, 12233243, 12367165, 12502165, 12638260,
    12775469, 12913808, 13053298, 13193957, 13335806, 13478864, 13623152, 13768692, 13915506, 14063616, 14213045, 14363817,
    14515956, 14669487, 14824436, 14980830, 15138695, 15298060, 15458953, 15621404, 15785444, 15951103, 16118414, 16287411,
    16458127, 16630599, 16804861, 16980953, 17158913, 17338780, 17520597, 17704406, 17890251, 18078177, 18268233, 18460466,
    18654928, 18851669, 19050746, 19252213, 19456128, 19662553, 19871549, 20083182, 20297518, 20514628, 20734584, 20957463,
    21183342, 21412304, 21644434, 21879820, 22118557, 22360739, 22606469, 22855851, 23108997, 23366020, 23627043, 23892191,
    24161596, 24435398, 24713743, 24996784, 25284682, 25577607, 25875737, 26179261, 26488378, 26803296, 27124240, 27451443,
    27785154, 28125638, 28473176, 28828065, 29190624, 29561191, 29940128, 30327822, 30724687, 31131169, 31547743, 31974925,
    32413269, 32863373, 33325887, 33801514, 34291019, 34795236, 35315078, 35851543, 36405731, 36978851, 37572245, 38187398,
    38825968, 39489808, 40181001, 40901897, 41655166, 42443852, 43271451, 44142001, 45060208, 46031591, 47062693, 48161337,
    49336999, 50601295, 51968688, 53457496, 55091401, 56901770, 58931385, 61240764, 63919553, 67108864,
)
# fmt: on
_QUANTILES = np.array(TABLE, dtype=np.uint64)
_STEPS = np.diff(_QUANTILES)


class Departures:
    """A cursor over one lane's order: which arrivals leave the shuffle buffer next.

    `taken_in`: arrivals 0 … taken_in-1 have been taken in so far; every one of them was returned, dropped by the seek, or
    is held. It is the same whether the cursor came to its position by `take` or began there.

    >>> cursor = Departures(size=8, buffer=3, seed=0, epoch=0, lane=0)
    >>> cursor.take(4), cursor.taken_in, cursor.held()
    (array([3, 0, 5, 6]), 7, array([1, 2, 4]))
    >>> Departures(size=8, buffer=3, seed=0, epoch=0, lane=0, position=4).take(4)
    array([1, 2, 4, 7])
    """

    position: int  # rows of the lane that have left
    taken_in: int

    def __init__(self, size: int, buffer: int, seed: int, epoch: int, lane: int, position: int = 0) -> None:
        """Begin at `position` of a lane of `size` records with a buffer of N = `buffer` records.

        Raises ValueError where `position` is not in 0 … size.
        """
        if not 0 <= position <= size:
            raise ValueError(f"lane {lane}: position {position} asked for, the lane has {size} records")
        self._size = size
        self._buffer = buffer
        self._state = hash64(KEYS, seed, epoch, lane)
        self._seek(position)

    def take(self, num_rows: int) -> IntArray:
        """The next arrivals to leave, in order, int64 (num_rows,). Raises ValueError beyond the end of the lane."""
        if not 0 <= num_rows <= self._size - self.position:
            raise ValueError(f"take: {num_rows} rows asked for at position {self.position} of a lane of {self._size}")
        pieces = []
        wanted = num_rows
        while wanted:
            if self._next == len(self._ready):
                self._work_out(max(BLOCK, self._buffer, wanted))
                continue
            piece = self._ready[self._next : self._next + wanted]
            pieces.append(piece)
            self._next += len(piece)
            wanted -= len(piece)
            self.taken_in = int(self._latest[self._next - 1])
        self.position += num_rows
        if len(pieces) == 1:
            return pieces[0]
        return np.concatenate(pieces) if pieces else np.empty(0, dtype=np.int64)

    def held(self) -> IntArray:
        """Arrivals below `taken_in` that have not left, ascending: after a seek these must be read."""
        remaining = np.concatenate([self._ready[self._next :], self._waiting])
        return np.sort(remaining[remaining < self.taken_in])

    def _seek(self, position: int) -> None:
        """Stand where `position` rows have left, as if as many arrivals were known: those that have not left leave next."""
        reach = REACH * self._buffer
        low = 0 if position < reach + self._buffer else position - reach + (self._buffer > 0)
        keys, arrivals = _sort_by_key(self._keys(low, position), np.arange(low, position))
        left = int(np.searchsorted(keys, self._threshold(position), side="right"))
        self._known = position
        self._waiting_keys, self._waiting = keys[left:], arrivals[left:]
        self._ready = self._latest = arrivals[:0]
        self._next = 0
        self.taken_in = int(arrivals[:left].max()) + 1 if left else low
        self.position = position - len(self._waiting)
        self.take(len(self._waiting))

    def _work_out(self, num_arrivals: int) -> None:
        """Make as many more arrivals known, and ready those that come next."""
        known = min(self._known + num_arrivals, self._size)
        arrivals = np.arange(self._known, known)
        if self._buffer == 0:
            self._ready = arrivals
        else:
            keys = np.concatenate([self._waiting_keys, self._keys(self._known, known)])
            keys, arrivals = _sort_by_key(keys, np.concatenate([self._waiting, arrivals]))
            ready = len(keys) if known == self._size else int(np.searchsorted(keys, self._threshold(known), side="right"))
            self._ready = arrivals[:ready]
            self._waiting_keys, self._waiting = keys[ready:], arrivals[ready:]
        self._latest = np.maximum(np.maximum.accumulate(self._ready) + 1, self.taken_in)
        self._next = 0
        self._known = known

    def _threshold(self, known: int) -> int:
        return max(known - self._buffer, 0) << FRACTION_BITS

    def _keys(self, first: int, stop: int) -> IntArray:
        """The keys of arrivals first … stop-1, int64 with 24 fractional bits."""
        arrivals = np.arange(first, stop)
        hashes = absorb(self._state, arrivals)
        top = (hashes >> np.uint64(56)).view(np.int64)
        hashes >>= np.uint64(24)
        hashes &= np.uint64(0xFFFFFFFF)
        hashes *= _STEPS[top]
        hashes >>= np.uint64(32)
        hashes += _QUANTILES[top]
        hashes *= np.uint64(self._buffer)
        keys = hashes.view(np.int64)
        arrivals -= self._buffer
        np.maximum(arrivals, 0, out=arrivals)
        arrivals <<= FRACTION_BITS
        keys += arrivals
        return keys


def _sort_by_key(keys: IntArray, arrivals: IntArray) -> tuple[IntArray, IntArray]:
    """Both in the order of (key, place). Key and place are sorted as one number where they fit: five times as fast."""
    if len(keys) < 2:
        return keys, arrivals
    low, place_bits = int(keys.min()), (len(keys) - 1).bit_length()
    if (int(keys.max()) - low).bit_length() + place_bits > 63:
        order = np.argsort(keys, kind="stable")
        return keys[order], arrivals[order]
    packed = keys - low
    packed <<= place_bits
    packed |= np.arange(len(keys))
    packed.sort()
    order = packed & ((1 << place_bits) - 1)
    packed >>= place_bits
    packed += low
    return packed, arrivals[order]
