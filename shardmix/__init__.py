"""TFRecord corpora in PyTorch: batches that mix source files and workers, in one order on any machine.

    dataset = shardmix.ShardDataset("corpus/train-*.tfrecord", features={"label": shardmix.FixedLenFeature((), "int64")})
    loader = shardmix.MixLoader(dataset, batch_size=256, num_workers=4)
    for batch in loader: ...

Rule 1: a name is imported when it is first used, so that `import shardmix` loads neither torch nor numpy, and a command that
only reads files starts in a fraction of a second.
Rule 2: the names stand in the order of the flow: declare, write, index, read, load, collate, what may go wrong.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # what the table below does, for type checkers; a test holds the two together
    from .errors import CorruptShardError as CorruptShardError
    from .errors import ParseError as ParseError
    from .errors import ShardMixError as ShardMixError
    from .errors import SkipRecord as SkipRecord
    from .errors import StaleIndexError as StaleIndexError
    from .errors import StateMismatchError as StateMismatchError
    from .format.encode import encode_example as encode_example
    from .format.encode import encode_sequence_example as encode_sequence_example
    from .format.features import FixedLenFeature as FixedLenFeature
    from .format.features import RawFeature as RawFeature
    from .format.features import VarLenFeature as VarLenFeature
    from .format.index import build_index as build_index
    from .format.infer import infer_features as infer_features
    from .format.read_examples import read_examples as read_examples
    from .format.reader import read_records as read_records
    from .format.writer import ShardWriter as ShardWriter
    from .runtime.dataset import ShardDataset as ShardDataset
    from .runtime.loader import MixLoader as MixLoader
    from .runtime.marks import mark_ragged as mark_ragged
    from .runtime.measure import measure_mixing as measure_mixing
    from .runtime.parse import sample_seed as sample_seed
    from .runtime.pool import pool_batches as pool_batches
    from .runtime.ragged import Ragged as Ragged
    from .runtime.samples import collate as collate

    backend: str

__version__ = "0.1.0"

_HOMES = {
    "FixedLenFeature": ".format.features",
    "VarLenFeature": ".format.features",
    "RawFeature": ".format.features",
    "infer_features": ".format.infer",
    "encode_example": ".format.encode",
    "encode_sequence_example": ".format.encode",
    "ShardWriter": ".format.writer",
    "build_index": ".format.index",
    "read_records": ".format.reader",
    "read_examples": ".format.read_examples",
    "ShardDataset": ".runtime.dataset",
    "SkipRecord": ".errors",
    "sample_seed": ".runtime.parse",
    "MixLoader": ".runtime.loader",
    "measure_mixing": ".runtime.measure",
    "pool_batches": ".runtime.pool",
    "Ragged": ".runtime.ragged",
    "mark_ragged": ".runtime.marks",
    "collate": ".runtime.samples",
    "ShardMixError": ".errors",
    "CorruptShardError": ".errors",
    "StaleIndexError": ".errors",
    "StateMismatchError": ".errors",
    "ParseError": ".errors",
}

# `backend` tells which twin runs, "c" or "python" (format/backend.py, where it is called `name`).
__all__ = [*_HOMES, "backend"]


def __getattr__(name: str) -> Any:
    if name == "backend":
        value = import_module(".format.backend", __name__).name
    elif name in _HOMES:
        value = getattr(import_module(_HOMES[name], __name__), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
