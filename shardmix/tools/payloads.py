"""A data set of any payloads, for commands that must not care what is in them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..runtime.dataset import ShardDataset

__all__ = ["PayloadSizes", "ShardDataset"]


class PayloadSizes(ShardDataset):
    """Of each record its bytes, as a number."""

    def parse_batch(self, records: list[memoryview]) -> dict[str, NDArray[np.int64]]:
        """One column, `bytes`."""
        return {"bytes": np.array([len(record) for record in records], np.int64)}
