"""Ragged: rows of varying length, as one tensor of values and one of offsets.

    tags = Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3]))      # the rows [7, 8], [], [9]

Rule 1: row i is `values[offsets[i] : offsets[i + 1]]`; offsets are int64, begin at 0, end at len(values), one more than rows.
Rule 2: `values` may itself be a Ragged: rows of rows.
Rule 3: length and indexing mean rows; iterating, unpacking and the fields mean the two tensors.

Rule 3 is what lets one type be both. Whatever moves a batch (torch's pin_memory and pytrees, Lightning, Accelerate) knows a
named tuple by `_fields`, iterates over it and rebuilds it as `type(x)(*parts)`; none of them asks for its length or items. A
plain class would need a hook for each of them, and a named tuple whose rows cannot be counted would surprise everybody else.
The price: `for row in tags` is not over rows; `tags.unbind()`, torch's name for that, is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, Self, overload

import torch
from torch import Tensor


class _Fields(NamedTuple):
    values: Any  # Tensor | Ragged
    offsets: Tensor


class Ragged(_Fields):
    """Rows of varying length: what a VarLenFeature is in a batch.

    >>> tags = Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3]))
    >>> len(tags), tags[0], tags[1:].to_list()
    (3, tensor([7, 8]), [[], [9]])

    values: Tensor (items, *shape) of any dtype, or a Ragged of as many rows.
    offsets: int64 Tensor (rows + 1,), on the same device.
    """

    __slots__ = ()

    def __len__(self) -> int:
        return self.offsets.shape[0] - 1

    @overload  # type: ignore[override]  # items are rows, not fields: rule 3
    def __getitem__(self, index: int) -> Any: ...

    @overload
    def __getitem__(self, index: slice) -> Ragged: ...

    def __getitem__(self, index: int | slice) -> Any:
        """One row, a view (a Tensor, or a Ragged where values are one); or, for a slice, a Ragged of rows.

        Raises IndexError beyond the rows, TypeError for an index that is neither int nor slice.
        """
        rows = range(len(self))
        if isinstance(index, slice):
            wanted = rows[index]
            if wanted.step == 1:
                return self._run(wanted.start, max(wanted.start, wanted.stop))
            return concatenate_ragged([self._run(row, row + 1) for row in wanted] or [self._run(0, 0)])
        try:
            row = rows[index]
        except IndexError:
            raise IndexError(f"Ragged: row {index} of {len(self)} rows") from None
        return self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]

    @classmethod
    def _make(cls, iterable: Iterable[Any]) -> Self:  # type: ignore[override]  # mypy's own, generic signature
        """Named tuples check the length of what they made; here that would be the rows."""
        return cls(*iterable)

    def _replace(self, **fields: Any) -> Self:
        return type(self)(**{**self._asdict(), **fields})

    @property
    def lengths(self) -> Tensor:
        """int64 Tensor (rows,): the number of items of each row."""
        return self.offsets.diff()

    def unbind(self) -> list[Any]:
        """The rows, as views: Tensors, or Ragged where values are one."""
        return [self.values[start:stop] for start, stop in pairwise(self.offsets.tolist())]

    def to_list(self) -> list[Any]:
        """The rows as nested lists of Python numbers."""
        items = self.values.to_list() if isinstance(self.values, Ragged) else self.values.tolist()
        return [items[start:stop] for start, stop in pairwise(self.offsets.tolist())]

    def to_padded(self, value: float = 0) -> Tensor:
        """A Tensor (rows, longest row, *shape), short rows filled up with `value`; rows of rows give one dimension more.

        >>> Ragged(torch.tensor([7, 8, 9]), torch.tensor([0, 2, 2, 3])).to_padded(-1)
        tensor([[ 7,  8],
                [-1, -1],
                [ 9, -1]])
        """
        values = self.values.to_padded(value) if isinstance(self.values, Ragged) else self.values
        lengths = self.lengths
        longest = int(lengths.max()) if len(self) else 0
        padded: Tensor = values.new_full((len(self), longest, *values.shape[1:]), value)
        is_item = torch.arange(longest, device=lengths.device) < lengths[:, None]
        padded[is_item] = values
        return padded

    def to_nested(self) -> Tensor:
        """torch's nested tensor of the jagged layout, over the same memory. It cannot be sliced, concatenated or collated.

        Raises ValueError for rows of rows, which that layout does not have.
        """
        if isinstance(self.values, Ragged):
            raise ValueError("Ragged.to_nested: rows of rows have no jagged layout; take `.values.to_nested()` or `.to_padded()`")
        nested: Tensor = torch.nested.nested_tensor_from_jagged(self.values, self.offsets)
        return nested

    def to(self, *args: Any, **kwargs: Any) -> Ragged:
        """Values as by `Tensor.to`; offsets follow to the device and stay int64."""
        values = self.values.to(*args, **kwargs)
        return Ragged(values, self.offsets.to(values.device, non_blocking=bool(kwargs.get("non_blocking", False))))

    @property
    def device(self) -> torch.device:
        """Where the tensors are."""
        return self.offsets.device

    def _run(self, first: int, stop: int) -> Ragged:
        """Consecutive rows; values are a view."""
        offsets = self.offsets[first : stop + 1]
        return Ragged(self.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])


def concatenate_ragged(parts: Sequence[Ragged]) -> Ragged:
    """The rows of all parts, in order, as a copy. There is at least one part."""
    values = [part.values for part in parts]
    is_nested = isinstance(values[0], Ragged)
    ends = torch.tensor([0, *(int(part.offsets[-1]) for part in parts)], device=parts[0].device).cumsum(0).tolist()
    offsets = [part.offsets[1:] + start for part, start in zip(parts, ends, strict=False)]
    joined = concatenate_ragged(values) if is_nested else torch.cat(values)
    return Ragged(joined, torch.cat([parts[0].offsets[:1], *offsets]))
