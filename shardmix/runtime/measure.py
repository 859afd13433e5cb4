"""Measure how a loader mixes: its batches as they come, beside a perfect shuffle and a plain DataLoader on the same corpus.

    report = measure_mixing(loader, key="label")
    print(report)

Rule 1: what is measured is what the loader delivers, row by row, by `with_source`; nothing is taken from the plan.
Rule 2: rows that repeat another (pads, fills) are left out.

The numbers are in mixing.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..format.columns import IntArray
from .dataset import ShardDataset
from .loader import MixLoader
from .mixing import Distinct, Mixing, PlainLoader, Rows, measure_rows, plain_order, shuffle_perfectly, with_labels
from .ranks import resolve_world
from .source_rows import KEY, Source

SORTED = 0.5  # from here on a corpus counts as sorted: half way from chance to perfectly sorted


class KeyOrder(NamedTuple):
    """How the corpus itself is ordered by the key."""

    labels: int  # different values
    same_neighbours: float  # share of neighbours in the corpus that have the same value
    by_chance: float  # the same, were the records shuffled
    correlation: float  # of value and place, by ranks: 1 or -1 where the corpus is sorted; 0 for values without an order

    @property
    def is_sorted(self) -> bool:
        """Whether it looks sorted, or grouped, by the key."""
        if self.labels < 2:
            return False
        excess = (self.same_neighbours - self.by_chance) / max(1 - self.by_chance, 1e-9)
        return excess > SORTED or abs(self.correlation) > SORTED


@dataclass(frozen=True)
class MixingReport:
    """What `measure_mixing` found. `str()` of it is a table; `as_dict()` plain numbers."""

    loader: Mixing
    perfect: Mixing
    plain: Mixing
    plain_loader: PlainLoader  # what "plain" is
    batch_size: int
    num_batches: int
    num_rows: int
    num_records: int  # of the corpus
    num_files: int
    key: str | None
    key_order: KeyOrder | None

    def __str__(self) -> str:
        return "\n".join(format_report(self))

    def as_dict(self) -> dict[str, Any]:
        """Plain numbers, for JSON: order → measure → value."""
        orders = {"loader": self.loader, "perfect": self.perfect, "plain": self.plain}
        names = ("batch_size", "num_batches", "num_rows", "num_records", "num_files", "key")
        return {
            **{name: getattr(self, name) for name in names},
            "plain_loader": str(self.plain_loader),
            "key_order": None if self.key_order is None else {**self.key_order._asdict(), "is_sorted": self.key_order.is_sorted},
            **{name: _as_dict(mixing) for name, mixing in orders.items()},
        }


def measure_mixing(loader: MixLoader, key: str | None = None, *, max_batches: int | None = None) -> MixingReport:
    """Run a pass of a loader and measure how its batches mix files, lanes, workers and labels.

        dataset = ShardDataset("corpus/*.tfrecord", features={"label": FixedLenFeature((), "int64")}, with_source=True)
        print(measure_mixing(MixLoader(dataset, batch_size=256, num_workers=4), key="label"))

    loader: over a ShardDataset with with_source=True.
    key: a value of the batch, one a record: its different values are counted as labels.
    max_batches: stop after so many; labels of the other two orders are then unknown.

    Each number stands beside that of a perfect shuffle of the same records, and of a plain DataLoader: as many workers, each of
    which reads files of its own one after another, through a shuffle buffer that is its share of shuffle_buffer_size.

    Raises ValueError when the loader has no such data set, or the batches have no such key; KeyError is not raised.
    """
    dataset = loader.dataset
    if not isinstance(dataset, ShardDataset) or not dataset.with_source:
        raise ValueError("measure_mixing: needs a loader over a ShardDataset with with_source=True")
    world = resolve_world(dataset.rank, dataset.world_size)
    opened = dataset._open(world.world_size)
    counts = opened.index.counts
    rows, values = _collect(loader, key, counts, max_batches)
    if not len(rows):
        raise ValueError("measure_mixing: the loader delivered no rows; is drop_last=True with fewer records than a batch?")
    num_workers = max(1, loader.num_workers)
    plain = PlainLoader(
        batch_size=loader.batch_size or 1,
        num_workers=num_workers,
        buffer=dataset.shuffle_buffer_size // (num_workers * world.world_size) if dataset.shuffle else 0,
        seed=dataset.seed,
        shuffle=dataset.shuffle,
        drop_last=loader.drop_last,
        rank=world.rank,
        world_size=world.world_size,
    )
    total, size = int(counts.sum()), plain.batch_size
    return MixingReport(
        loader=measure_rows(rows, counts, size),
        perfect=measure_rows(shuffle_perfectly(rows, counts, dataset.seed), counts, size),
        plain=measure_rows(with_labels(plain_order(plain, counts), rows, total), counts, size),
        plain_loader=plain,
        batch_size=size,
        num_batches=len(rows.bounds) - 1,
        num_rows=len(rows),
        num_records=total,
        num_files=len(counts),
        key=key,
        key_order=None if values is None else describe_order(rows, values),
    )


def _collect(
    loader: MixLoader, key: str | None, counts: IntArray, max_batches: int | None
) -> tuple[Rows, NDArray[Any] | None]:
    """The rows that the loader delivers, and the values of the key."""
    sources: list[list[NDArray[Any]]] = [[], [], [], []]
    values: list[NDArray[Any]] = []
    sizes: list[int] = []
    for batch in islice(loader, max_batches):
        source = _source_of(batch)
        kept = ~(source.is_pad | source.is_fill)
        for column, field in zip(sources, (source.shard, source.record, source.lane, source.worker), strict=True):
            column.append(field[kept].numpy())
        sizes.append(int(kept.sum()))
        if key is not None:
            values.append(_values_of(batch, key, len(kept))[kept.numpy()])
    shard, record, lane, worker = (np.concatenate(column or [np.empty(0, np.int64)]) for column in sources)
    place = (np.cumsum(counts) - counts)[shard] + record
    bounds = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
    if key is None or not values:
        return Rows(place, shard, bounds, lane, worker), None
    joined = np.concatenate(values)
    return Rows(place, shard, bounds, lane, worker, np.unique(joined, return_inverse=True)[1]), joined


def _source_of(batch: Any) -> Source:
    found = batch.get(KEY) if isinstance(batch, dict) else batch[-1] if isinstance(batch, tuple) else None
    if not isinstance(found, Source):
        raise ValueError("measure_mixing: the batches have no source; is with_source=True lost in a collate_fn?")
    return found


def _values_of(batch: Any, key: str, num_rows: int) -> NDArray[Any]:
    """(rows,) the values of the key, as an array."""
    data = batch[0] if isinstance(batch, tuple) and len(batch) == 2 and isinstance(batch[0], dict) else batch
    if not isinstance(data, dict) or key not in data:
        names = ", ".join(map(repr, data)) if isinstance(data, dict) else f"a {type(data).__name__}"
        raise ValueError(f"measure_mixing: key={key!r} is not in the batches; they hold {names}")
    value = data[key]
    if isinstance(value, torch.Tensor) and value.shape == (num_rows,):
        return value.numpy()
    if isinstance(value, list) and all(isinstance(one, bytes | str) for one in value):
        return np.array(value, object)
    raise ValueError(f"measure_mixing: key={key!r} is not one number or text a record; choose a feature that is")


def describe_order(rows: Rows, values: NDArray[Any]) -> KeyOrder:
    """How the corpus is ordered by the key, from the rows that were delivered, put back where they stand in it."""
    assert rows.label is not None
    in_corpus = np.argsort(rows.place, kind="stable")
    label = rows.label[in_corpus]
    shares = np.bincount(label) / len(label)
    same = float((label[1:] == label[:-1]).mean()) if len(label) > 1 else 0.0
    correlation = 0.0
    if values.dtype != object and len(shares) > 1:
        ranks = _ranks(values[in_corpus])
        correlation = float(np.corrcoef(ranks, np.arange(len(ranks)))[0, 1])
    return KeyOrder(len(shares), same, float((shares**2).sum()), correlation)


def _ranks(values: NDArray[Any]) -> NDArray[np.float64]:
    """The rank of each value; equal ones share the mean of theirs."""
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts + 1) / 2)[inverse]


# --- As text -----------------------------------------------------------------------------------------------------------------


def format_report(report: MixingReport) -> list[str]:
    """A table: what, the loader, a perfect shuffle, a plain DataLoader."""
    orders = (report.loader, report.perfect, report.plain)
    rows = [["", "MixLoader", "perfect", "plain"]]
    for name, field in (("files", "files"), ("lanes", "lanes"), ("workers", "workers"), ("labels", "labels")):
        found = [getattr(mixing, field) for mixing in orders]
        if any(distinct is not None for distinct in found):
            rows.append([f"different {name} in a batch, mean (least)", *map(_format_distinct, found)])
    rows.append(["distance of neighbours, in the corpus", *(f"{mixing.distance:.1%}" for mixing in orders)])
    rows.append(["displacement, of the corpus", *(f"{mixing.displacement:.1%}" for mixing in orders)])
    rows.append(["neighbours that are neighbours on disk", *(f"{mixing.disk_neighbours:.2%}" for mixing in orders)])
    rows.append(["first and last tenth apart, by files", *(f"{mixing.tenths_apart:.1%}" for mixing in orders)])
    if report.key is not None:
        apart = ["-" if mixing.labels_apart is None else f"{mixing.labels_apart:.1%}" for mixing in orders]
        rows.append(["first and last tenth apart, by labels", *apart])
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    table = [row[0].ljust(widths[0]) + "".join("  " + row[i].rjust(widths[i]) for i in (1, 2, 3)) for row in rows]
    of_pass = "" if report.num_rows == report.num_records else f" (of {report.num_records:,} in the corpus)"
    batches = f"{report.num_batches:,} batch{'' if report.num_batches == 1 else 'es'} of {report.batch_size:,}"
    head = f"{batches}, {report.num_rows:,} rows{of_pass}, {report.num_files:,} files"
    return [head, "", *table, "", f"plain: a DataLoader with {report.plain_loader}", *_format_key(report)]


def _format_distinct(distinct: Distinct | None) -> str:
    return "-" if distinct is None else f"{distinct.mean:.1f} ({distinct.least})"


def _format_key(report: MixingReport) -> list[str]:
    order = report.key_order
    if order is None:
        return []
    text = (
        f"{report.key}: {order.labels:,} labels; {order.same_neighbours:.1%} of neighbours in the corpus share theirs, "
        f"{order.by_chance:.1%} would by chance"
    )
    return [text, *(["the corpus looks sorted by it"] if order.is_sorted else [])]


def _as_dict(mixing: Mixing) -> dict[str, Any]:
    fields = {name: value for name, value in vars(mixing).items() if name != "picture"}
    return {name: value._asdict() if isinstance(value, Distinct) else value for name, value in fields.items()}
