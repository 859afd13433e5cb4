"""Samples ↔ columns: how the values of a sample travel, and how a batch is made of them.

Rule 1: samples of one structure, dtype and shape are packed column by column; any others travel pickled.
Rule 2: a batch made of columns equals what `collate` makes of the same samples; samples made of columns equal those packed.
Rule 3: `collate` equals torch's default_collate, except that marked values (marks.py) and Ragged become Ragged.

leaves.py and shown.py know how one value travels; here are the containers around the values.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from contextlib import suppress
from sys import intern
from typing import Any, NamedTuple

import numpy as np
import torch
from torch.utils.data._utils.collate import collate as torch_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from ..format.columns import Allocate, Column, ColumnSpec, allocate_arrays
from .leaves import Leaf, NotUniformError, only, plan_leaf, plan_objects, plan_ragged_lists, plan_ragged_rows
from .marks import RaggedList, RaggedRow, mark_ragged
from .ragged import Ragged, concatenate_ragged
from .shown import SHOWN
from .source_rows import Source, attach_source

__all__ = [
    "PICKLED",
    "RaggedList",
    "RaggedRow",
    "Source",
    "Structure",
    "attach_source",
    "collate",
    "mark_ragged",
    "pack_samples",
    "structure_of_features",
    "unpack_samples",
]


class Container(NamedTuple):
    """One container of a sample: its type, the keys of a dict (None for others), and what it holds."""

    type: type
    keys: tuple[Any, ...] | None
    children: tuple[Any, ...]  # each a Container or the number of a leaf


class Structure(NamedTuple):
    """How the columns of a chunk make a sample: the leaves in order, and the containers around them.

    Equal structures compare equal and pickle to equal bytes. `layout` nests Containers around the numbers of the leaves;
    `kinds` says per leaf how it is shown: a key of shown.SHOWN ("object": a pickled sample).
    """

    specs: tuple[ColumnSpec, ...]
    kinds: tuple[str, ...]
    layout: Any


PICKLED = Structure((ColumnSpec("sample", "uint8", (), 1, True),), ("object",), 0)


def structure_of_features(specs: Sequence[ColumnSpec]) -> Structure:
    """The structure of decoded examples: a dict of name to column."""
    names = tuple(spec.name for spec in specs)
    return Structure(tuple(specs), tuple(map(_kind_of_feature, specs)), Container(dict, names, tuple(range(len(specs)))))


def _kind_of_feature(spec: ColumnSpec) -> str:
    if spec.is_bytes and spec.levels == 1:
        return "bytes"
    if spec.levels:
        return "ragged"
    return "array" if spec.item_shape else "scalar"


def pack_samples(samples: Sequence[Any], allocate: Allocate = allocate_arrays) -> tuple[Structure, list[Column]]:
    """Samples to columns: of their own structure when they share one, else PICKLED. `allocate` is called once.

    Raises TypeError for a sample that must be pickled and cannot.
    """
    leaves: list[Leaf] = []
    try:
        layout = _plan(samples, "", leaves)
    except NotUniformError:
        leaves.clear()
    if not leaves:  # nothing in common, or nothing in it
        leaves, layout = [plan_objects(samples, PICKLED.specs[0].name)], PICKLED.layout
    arrays = iter(allocate([request for leaf in leaves for request in leaf.requests()]))
    columns = [leaf.fill(arrays) for leaf in leaves]
    return Structure(tuple(leaf.spec for leaf in leaves), tuple(leaf.kind for leaf in leaves), layout), columns


def _plan(values: Sequence[Any], name: str, leaves: list[Leaf]) -> Any:
    """The layout of one place of all samples; its leaves are appended. Raises NotUniformError."""
    kind = only(set(map(type, values)))
    if kind is dict or kind is OrderedDict:
        keys = tuple(intern(key) if type(key) is str else key for key in values[0])
        if any(tuple(value) != keys for value in values):
            raise NotUniformError
        columns: Any = ([value[key] for value in values] for key in keys)
    elif kind is list or kind is tuple or (issubclass(kind, tuple) and hasattr(kind, "_fields") and kind is not Ragged):
        only(set(map(len, values)))
        keys, columns = None, zip(*values, strict=True)
    else:
        leaves.append(plan_leaf(values, intern(name)))
        return len(leaves) - 1
    places = range(len(values[0])) if keys is None else keys
    prefix = f"{name}." if name else ""
    children = [_plan(column, f"{prefix}{place}", leaves) for place, column in zip(places, columns, strict=True)]
    return Container(kind, keys, tuple(children))


def batch_of(layout: Any, shown: Sequence[Any]) -> Any:
    """Containers of columns, of the types that torch's default_collate gives."""
    if not isinstance(layout, Container):
        return shown[layout]
    children = [batch_of(child, shown) for child in layout.children]
    if layout.keys is not None:
        return layout.type(zip(layout.keys, children, strict=True))
    for place, child in enumerate(layout.children):
        if not isinstance(child, Container) and isinstance(children[place], list):
            children[place] = tuple(children[place])  # as torch's: strings are a list in a dict, a tuple in a sequence
    return children if layout.type is list or layout.type is tuple else layout.type(*children)


def unpack_samples(structure: Structure, columns: Sequence[Column]) -> list[Any]:
    """The samples that the columns are, one a row, each owning its values (for a user's transform or collate_fn).

    Values of a ragged column are marked: a RaggedRow, or a RaggedList where they are bytes or have two levels.
    """
    rows = [SHOWN[kind].rows(column) for kind, column in zip(structure.kinds, columns, strict=True)]
    return _samples_of(structure.layout, rows, len(rows[0]) if rows else 0)


def _samples_of(layout: Any, rows: Sequence[list[Any]], num_rows: int) -> list[Any]:
    if not isinstance(layout, Container):
        found: list[Any] = rows[layout]
        return found
    children = [_samples_of(child, rows, num_rows) for child in layout.children]
    parts = zip(*children, strict=True) if children else [()] * num_rows
    if layout.keys is not None:
        return [layout.type(zip(layout.keys, part, strict=True)) for part in parts]
    if layout.type is tuple or layout.type is list:
        return list(map(layout.type, parts))
    return [layout.type(*part) for part in parts]


def collate(samples: Sequence[Any]) -> Any:
    """torch's default_collate, plus ragged values: marked ones (`mark_ragged`; all of a VarLenFeature are) make a Ragged.

    >>> batch = shardmix.collate([{"ids": mark_ragged([7, 8]), "label": 0}, {"ids": mark_ragged([9]), "label": 1}])
    >>> batch["label"], batch["ids"].to_list()
    (tensor([0, 1]), [[7, 8], [9]])

    Raises what default_collate raises: RuntimeError for values of unequal shape, TypeError for types it does not know;
    ValueError for no samples.
    """
    if not len(samples):
        raise ValueError("collate: got no samples, expected at least one")
    try:
        return torch_collate(list(samples), collate_fn_map={**_RAGGED, **default_collate_fn_map})
    except RuntimeError as error:
        error.add_note(
            f"shardmix.collate: {_describe_shapes(samples)}values whose length varies from sample to sample want "
            "`shardmix.mark_ragged(values)`."
        )
        raise
    except TypeError as error:
        if any(sample is None for sample in samples):
            error.add_note(
                "shardmix.collate: a sample is None; parse and transform return samples, or raise shardmix.SkipRecord."
            )
        raise


def _describe_shapes(values: Sequence[Any], name: str = "sample") -> str:
    """The first place of the samples whose shapes differ, or nothing."""
    first = values[0]
    if isinstance(first, dict | list | tuple):
        for key in first if isinstance(first, dict) else range(len(first)):
            with suppress(LookupError, TypeError):
                found = _describe_shapes([value[key] for value in values], f"{name}[{key!r}]")
                if found:
                    return found
        return ""
    shapes = dict.fromkeys(tuple(value.shape) for value in values if hasattr(value, "shape"))
    shown = ", ".join(map(str, list(shapes)[:4])) + (", …" if len(shapes) > 4 else "")
    return f"{name} has shapes {shown}; " if len(shapes) > 1 else ""


def _collate_rows(batch: Sequence[Any], *, collate_fn_map: Any) -> Any:
    return _collate_marked(plan_ragged_rows, batch)


def _collate_lists(batch: Sequence[Any], *, collate_fn_map: Any) -> Any:
    shown = _collate_marked(plan_ragged_lists, batch)
    return tuple(shown) if isinstance(shown, list) and isinstance(batch, tuple) else shown


def _collate_marked(plan: Any, batch: Sequence[Any]) -> Any:
    try:
        leaf: Leaf = plan(batch, "")
    except (NotUniformError, AttributeError):
        found = sorted({f"{type(value).__name__} {getattr(value, 'dtype', '')}{list(np.shape(value))}" for value in batch})
        raise TypeError(f"collate: ragged values must be of one type, dtype and trailing shape, got {', '.join(found)}") from None
    return SHOWN["ragged"].batch(leaf.fill(iter(allocate_arrays(leaf.requests()))))


def _collate_ragged(batch: Sequence[Ragged], *, collate_fn_map: Any) -> Ragged:
    offsets = torch.tensor([0, *map(len, batch)]).cumsum(0)
    return Ragged(concatenate_ragged(batch), offsets)


def _collate_uint64(batch: Sequence[Any], *, collate_fn_map: Any) -> torch.Tensor:
    return torch.from_numpy(np.array(batch, np.uint64))  # torch.as_tensor refuses these scalars, though it has the dtype


_RAGGED: dict[Any, Any] = {
    RaggedRow: _collate_rows,
    RaggedList: _collate_lists,
    Ragged: _collate_ragged,
    np.uint64: _collate_uint64,
}
