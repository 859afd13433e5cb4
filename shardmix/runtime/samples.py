"""Samples ↔ columns: how the values of a sample travel, and how a batch is made of them.

Rule 1: samples of one structure, dtype and shape are packed column by column; any others travel pickled.
Rule 2: a batch made of columns equals what `collate` makes of the same samples.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from ..format.columns import Allocate, Column, ColumnSpec, allocate_arrays


class Structure(NamedTuple):
    """How the columns of a chunk make a sample: the leaves in order, and the containers around them.

    Equal structures compare equal and pickle to equal bytes. `layout` nests dicts, lists, tuples and named tuples as plain data
    around the numbers of the leaves; `kinds` says per leaf how it is shown: "tensor", "bytes", "str", "ragged", "object" (pickled samples).
    """

    specs: tuple[ColumnSpec, ...]
    kinds: tuple[str, ...]
    layout: Any


def structure_of_features(specs: Sequence[ColumnSpec]) -> Structure:
    """The structure of decoded examples: a dict of name to column."""
    raise NotImplementedError


PICKLED: Structure  # one column of pickled samples


def pack_samples(
    samples: Sequence[Any], allocate: Allocate = allocate_arrays
) -> tuple[Structure, list[Column]]:
    """Samples to columns: of their own structure when they share one, else PICKLED. `allocate` is called once."""
    raise NotImplementedError


def unpack_batch(structure: Structure, columns: Sequence[Column]) -> Any:
    """The batch that the columns are, without a copy: tensors over their arrays, lists of bytes, Ragged."""
    raise NotImplementedError


def unpack_samples(structure: Structure, columns: Sequence[Column]) -> list[Any]:
    """The samples that the columns are, one a row, each owning its values (for a user's collate_fn)."""
    raise NotImplementedError


def collate(samples: Sequence[Any]) -> Any:
    """torch's default_collate, plus ragged values."""
    raise NotImplementedError
