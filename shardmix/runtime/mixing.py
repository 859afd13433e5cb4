"""How well one order mixes: numbers of an order of rows, and the orders that it is compared with. numpy alone.

Rule 1: a row's *place* is its number in the corpus, file after file as they are listed. Distances are shares of the corpus.
Rule 2: what is counted per batch is counted over full batches, over all where none is full.
Rule 3: the perfect shuffle and the plain loader are simulated with a seed, and measured by the same functions.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from ..format.columns import IntArray
from ..order.hashing import permutation
from ..order.shuffle import Departures

PLOTTED_BATCHES = 240
PLOTTED_FILES = 160


@dataclass(frozen=True)
class Rows:
    """The rows of an order, each array (rows,), in the order of delivery."""

    place: IntArray
    shard: IntArray
    bounds: IntArray  # (batches + 1,)
    lane: IntArray | None = None
    worker: IntArray | None = None
    label: IntArray | None = None  # numbers that stand for the values of the key

    def __len__(self) -> int:
        return len(self.place)


class Distinct(NamedTuple):
    """How many different ones a batch holds."""

    mean: float
    least: int


class Picture(NamedTuple):
    """Batches across, files up."""

    shares: NDArray[np.float32]  # (files, batches) share of the batch's rows that are from the file (or files)
    batches: IntArray  # (batches,) numbers of the batches shown: evenly chosen, where there are many
    first_file: IntArray  # (files,) of each line of the picture; neighbouring files share one, where there are many


@dataclass(frozen=True)
class Mixing:
    """How well an order mixes."""

    files: Distinct
    lanes: Distinct | None
    workers: Distinct | None
    labels: Distinct | None
    distance: float  # between the places of neighbouring rows, share of the corpus
    displacement: float  # between where a row stands in the corpus and in the epoch, share of the corpus
    disk_neighbours: float  # share of neighbouring rows that are neighbours on disk
    tenths_apart: float  # first and last tenth of the rows, by files: 0 alike, 1 nothing in common (total variation)
    labels_apart: float | None  # the same by labels
    picture: Picture


def measure_rows(rows: Rows, counts: IntArray, batch_size: int) -> Mixing:
    """The numbers of one order. `counts` (shards,) are the records of each shard."""
    total = int(counts.sum())
    gaps = np.abs(np.diff(rows.place))
    stands = (np.arange(len(rows)) + 0.5) / max(len(rows), 1)
    return Mixing(
        files=count_distinct(rows.shard, rows.bounds, batch_size),
        lanes=None if rows.lane is None else count_distinct(rows.lane, rows.bounds, batch_size),
        workers=None if rows.worker is None else count_distinct(rows.worker, rows.bounds, batch_size),
        labels=None if rows.label is None else count_distinct(rows.label, rows.bounds, batch_size),
        distance=float(gaps.mean()) / total if len(gaps) else 0.0,
        displacement=float(np.abs((rows.place + 0.5) / total - stands).mean()),
        disk_neighbours=float((gaps == 1).mean()) if len(gaps) else 0.0,
        tenths_apart=tenths_apart(rows.shard),
        labels_apart=None if rows.label is None else tenths_apart(rows.label),
        picture=draw(rows, len(counts)),
    )


def count_distinct(numbers: IntArray, bounds: IntArray, batch_size: int) -> Distinct:
    """How many different numbers a batch holds.

    >>> count_distinct(np.array([5, 5, 7, 7, 8, 9]), np.array([0, 3, 6]), batch_size=3)
    Distinct(mean=2.5, least=2)
    """
    sizes = np.diff(bounds)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    span = int(numbers.max(initial=0)) + 1
    pairs = np.unique(batch * span + numbers)
    distinct = np.bincount(pairs // span, minlength=len(sizes))
    is_full = sizes >= batch_size
    counted = distinct[is_full] if is_full.any() else distinct
    return Distinct(float(counted.mean()), int(counted.min()))


def tenths_apart(numbers: IntArray) -> float:
    """How far apart the first and the last tenth are: half the sum of the differences of their shares.

    >>> tenths_apart(np.repeat(np.arange(10), 10)), tenths_apart(np.tile(np.arange(10), 10))
    (1.0, 0.0)
    """
    size = max(1, len(numbers) // 10)
    span = int(numbers.max(initial=0)) + 1
    first, last = (np.bincount(part, minlength=span) / size for part in (numbers[:size], numbers[-size:]))
    return float(np.abs(first - last).sum() / 2)


def draw(rows: Rows, num_shards: int) -> Picture:
    """The picture of an order: single batches, so that a clump stays a clump."""
    num_batches = len(rows.bounds) - 1
    batches = np.unique(np.linspace(0, num_batches - 1, min(num_batches, PLOTTED_BATCHES)).astype(np.int64))
    num_lines = min(num_shards, PLOTTED_FILES)
    line = rows.shard * num_lines // num_shards
    shares = np.zeros((num_lines, len(batches)), np.float32)
    for column, batch in enumerate(batches.tolist()):
        of_batch = line[rows.bounds[batch] : rows.bounds[batch + 1]]
        shares[:, column] = np.bincount(of_batch, minlength=num_lines) / max(len(of_batch), 1)
    return Picture(shares, batches, -(-np.arange(num_lines) * num_shards // num_lines))


# --- The orders that it is compared with -------------------------------------------------------------------------------------


def shuffle_perfectly(rows: Rows, counts: IntArray, seed: int) -> Rows:
    """The same batches, filled at random: each order of the corpus is equally likely.

    Of a part of an epoch (fewer rows than records) the places are drawn from all of the corpus; then labels are not known.
    """
    rng = np.random.default_rng(seed)
    total = int(counts.sum())
    order = rng.permutation(len(rows))
    lane, worker = (None if column is None else column[order] for column in (rows.lane, rows.worker))
    if len(rows) == total:
        label = None if rows.label is None else rows.label[order]
        return Rows(rows.place[order], rows.shard[order], rows.bounds, lane, worker, label)
    place = rng.choice(total, len(rows), replace=False)
    return Rows(place, np.searchsorted(np.cumsum(counts), place, side="right"), rows.bounds, lane, worker)


@dataclass(frozen=True)
class PlainLoader:
    """A plain DataLoader: worker w of W reads the files w, w + W, … of a random order one after another, through a shuffle buffer
    of its own; each batch is of one worker, in turn. `buffer`: records of each worker's buffer."""

    batch_size: int
    num_workers: int
    buffer: int
    seed: int
    shuffle: bool = True  # the order of the files
    drop_last: bool = False
    rank: int = 0
    world_size: int = 1

    def __str__(self) -> str:
        files = "files of its own in random order" if self.shuffle else "files of its own"
        buffer = f"through a shuffle buffer of {self.buffer:,} records" if self.buffer else "without a shuffle buffer"
        who = f"{self.num_workers} workers, each reads" if self.num_workers > 1 else "1 worker, which reads"
        return f"{who} {files}, one after another, {buffer}"


def plain_order(plain: PlainLoader, counts: IntArray) -> Rows:
    """The rows of a plain loader, in the order of its batches."""
    starts = np.cumsum(counts) - counts
    files = permutation(len(counts), plain.seed) if plain.shuffle else np.arange(len(counts))
    files = files[plain.rank :: plain.world_size]
    pieces: list[tuple[int, int, IntArray]] = []  # (number in its worker, worker, places)
    for worker in range(plain.num_workers):
        own = files[worker :: plain.num_workers]
        places = np.concatenate([np.arange(starts[file], starts[file] + counts[file]) for file in own] or [files[:0]])
        if plain.buffer:
            places = places[Departures(len(places), plain.buffer, plain.seed, 0, worker).take(len(places))]
        cuts = range(0, len(places), plain.batch_size)
        batches = [places[cut : cut + plain.batch_size] for cut in cuts]
        if plain.drop_last and batches and len(batches[-1]) < plain.batch_size:
            batches.pop()
        pieces += [(number, worker, batch) for number, batch in enumerate(batches)]
    pieces.sort(key=lambda piece: piece[:2])
    sizes = [len(batch) for _, _, batch in pieces]
    place = np.concatenate([batch for _, _, batch in pieces] or [files[:0]])
    return Rows(
        place=place,
        shard=np.searchsorted(np.cumsum(counts), place, side="right"),
        bounds=np.concatenate(([0], np.cumsum(sizes, dtype=np.int64))),
        worker=np.repeat(np.array([worker for _, worker, _ in pieces], np.int64), sizes),
    )


def with_labels(rows: Rows, known: Rows, total: int) -> Rows:
    """The labels of an order, looked up by place in one that is known of all records; without where it is not."""
    if known.label is None or len(known) != total:
        return rows
    label_of_place = np.empty(total, np.int64)
    label_of_place[known.place] = known.label
    return replace(rows, label=label_of_place[rows.place])
