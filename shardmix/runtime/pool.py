"""pool_batches: mixed batches from a DataLoader that one already has.

Rule 1: each num_workers consecutive batches of the loader are concatenated into one; the last may be of fewer.
Rule 2: nothing is cut: a pooled batch has all rows of its batches, in their order.

Torch delivers the batches of its live workers in turn, so num_workers consecutive ones hold every worker that is live, alike to
one batch. When workers have ended the others come round sooner, and pooled batches keep their size; grouping by turns instead
would shrink them, and nothing outside of torch tells where a turn ends. (in_order=False delivers by arrival: then no promise.)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from .ragged import Ragged, concatenate_ragged

_PLAIN = (str, bytes, int, float)


class PooledBatches:
    """What `pool_batches` returns: can be iterated again and again, each time as a new pass over the loader."""

    def __init__(self, loader: DataLoader[Any], concatenate: Callable[[list[Any]], Any]) -> None:
        self.loader = loader
        self._concatenate = concatenate

    @property
    def _size(self) -> int:
        return max(1, self.loader.num_workers)

    def __len__(self) -> int:
        """As many as len(loader) gives: exact for a map-style dataset, for an iterable one as much an estimate as torch's.

        Raises TypeError where the dataset has no length.
        """
        return -(-len(self.loader) // self._size)

    def __iter__(self) -> Iterator[Any]:
        batches = iter(self.loader)
        try:
            while group := list(islice(batches, self._size)):
                yield group[0] if len(group) == 1 else self._concatenate(group)
        finally:
            _close(batches, self.loader)

    def __repr__(self) -> str:
        return f"pool_batches({self.loader!r}): {self._size} batches in one"


def pool_batches(loader: DataLoader[Any], *, concatenate: Callable[[list[Any]], Any] | None = None) -> PooledBatches:
    """Concatenate each num_workers consecutive batches of an existing DataLoader, so that a batch holds all live workers.

    >>> loader = DataLoader(range(8), batch_size=2, num_workers=2)  # a batch is two items of one worker
    >>> [batch.tolist() for batch in shardmix.pool_batches(loader)]  # a batch is two items of each worker
    [[0, 1, 2, 3], [4, 5, 6, 7]]

    Give the loader batch_size // num_workers. Batches may be any nesting of dicts, lists, tuples and named tuples of tensors,
    numpy arrays, Ragged, and lists of str or bytes; for batches of another kind give `concatenate`, called with a list of
    2 … num_workers batches. With num_workers=0 the batches come as they are. Pinned batches are pooled into ordinary memory.

    Raises TypeError, here, for what is no DataLoader; while iterating TypeError for a value that cannot be concatenated, and
    ValueError for batches that differ in structure or trailing shape, with the place of the value.
    """
    if not isinstance(getattr(loader, "num_workers", None), int) or not hasattr(loader, "__iter__"):
        raise TypeError(f"pool_batches: got a {type(loader).__name__}, expected a DataLoader: num_workers batches become one")
    return PooledBatches(loader, concatenate or concatenate_batches)


def concatenate_batches(batches: Sequence[Any]) -> Any:
    """Batches of one structure, one after the other, as one batch.

    >>> concatenate_batches([{"x": torch.tensor([1, 2])}, {"x": torch.tensor([3])}])
    {'x': tensor([1, 2, 3])}
    """
    return _concatenate(batches, "batch")


def _concatenate(values: Sequence[Any], place: str) -> Any:
    first = values[0]
    if first is None and all(value is None for value in values):
        return None
    for value in values:
        if type(value) is not type(first):
            raise ValueError(f"pool_batches: {place}: got {type(first).__name__} and {type(value).__name__}, expected one type")
    if isinstance(first, torch.Tensor):
        return _join(torch.cat, values, place)
    if isinstance(first, np.ndarray):
        return _join(np.concatenate, values, place)
    if isinstance(first, Ragged):
        return _join(concatenate_ragged, values, place)
    if isinstance(first, Mapping):
        return _concatenate_mappings(values, place)
    if isinstance(first, (list, tuple)):
        return _concatenate_sequences(values, place)
    raise TypeError(
        f"pool_batches: {place}: values of type {type(first).__name__} cannot be concatenated; "
        "expected tensors, arrays, Ragged, lists of str or bytes; for others give pool_batches(loader, concatenate=...)"
    )


def _join(join: Callable[[Any], Any], values: Sequence[Any], place: str) -> Any:
    try:
        return join(list(values))
    except (RuntimeError, ValueError) as error:
        remedy = "pad in the collate_fn, or give pool_batches(loader, concatenate=...)"
        raise ValueError(f"pool_batches: {place}: {error}; {remedy}") from error


def _concatenate_mappings(values: Sequence[Mapping[Any, Any]], place: str) -> Any:
    first = values[0]
    for value in values:
        if value.keys() != first.keys():
            raise ValueError(f"pool_batches: {place}: got the keys {list(first)} and {list(value)}, expected the same")
    pooled = {key: _concatenate([value[key] for value in values], f"{place}[{key!r}]") for key in first}
    return pooled if type(first) is dict else type(first)(pooled)  # type: ignore[call-arg]


def _concatenate_sequences(values: Sequence[Sequence[Any]], place: str) -> Any:
    """Rows (str, bytes, numbers, lists of them) follow each other; the parts of a batch are concatenated each."""
    kind: Any = type(values[0])
    if all(map(_is_rows, values)):
        return kind(chain.from_iterable(values))
    if len({len(value) for value in values}) > 1:
        lengths = ", ".join(str(len(value)) for value in values)
        raise ValueError(
            f"pool_batches: {place}: got {kind.__name__}s of {lengths} parts, expected as many in each batch; "
            "where these are rows give pool_batches(loader, concatenate=...)"
        )
    parts = [_concatenate(part, f"{place}[{j}]") for j, part in enumerate(zip(*values, strict=True))]
    return kind(*parts) if hasattr(kind, "_fields") else kind(parts)


def _is_rows(value: Any) -> bool:
    """A list or tuple of plain values, or of lists of such: what default_collate makes of strings, and collate of ragged bytes.

    (A list of tuples of strings is columns: inside of a sequence default_collate makes tuples, not lists, of strings.)
    """
    if hasattr(value, "_fields"):
        return False
    return all(item is None or isinstance(item, _PLAIN) or (type(item) is list and _is_rows(item)) for item in value)


def _close(batches: Iterator[Any], loader: DataLoader[Any]) -> None:
    """End the workers of a pass now, not when its last reference goes; persistent ones stay for the next pass."""
    shutdown = getattr(batches, "_shutdown_workers", None)
    if shutdown is not None and not getattr(loader, "persistent_workers", False):
        shutdown()
