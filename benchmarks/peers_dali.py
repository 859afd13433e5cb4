"""NVIDIA DALI's TFRecord reader on the CPU: two threads, files memory-mapped, records found by their text index."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import nvidia.dali.tfrecord as tfrec
from nvidia.dali import __version__, fn, pipeline_def

from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, Batch, Workload

CHECKS = "none"
DECODES = True
NUM_THREADS = 2


class Peer:
    def __init__(self, workload: Workload) -> None:
        self.features = workload.features
        self.num_records = workload.num_records
        string = (tfrec.string, "")
        kinds = {"int64": (tfrec.int64, 0), "float32": (tfrec.float32, 0.0), "bytes": string, "uint8": string}
        spec = {}
        for name, feature in self.features.items():
            kind, default = kinds[feature.dtype]
            shape = [] if kind is tfrec.string else list(feature.shape)
            spec[name] = tfrec.FixedLenFeature(shape, kind, default)

        @pipeline_def(batch_size=BATCH_SIZE, num_threads=NUM_THREADS, device_id=None)
        def read() -> tuple[Any, ...]:
            values = fn.readers.tfrecord(
                path=workload.paths,
                index_path=workload.idx_paths(),
                features=spec,
                random_shuffle=True,
                initial_fill=BUFFER_SIZE,
                pad_last_batch=True,
                name="reader",
            )
            return tuple(values[name] for name in self.features)

        self.pipeline = read()
        self.pipeline.build()

    def epoch(self) -> Iterator[Batch]:
        """Its reader knows no end: the rows of an epoch are counted."""
        left = self.num_records
        while left:
            rows = min(BATCH_SIZE, left)
            left -= rows
            yield self._show(self.pipeline.run(), rows)

    def _show(self, outputs: Any, rows: int) -> Batch:
        batch: dict[str, Any] = {}
        for (name, feature), values in zip(self.features.items(), outputs, strict=True):
            if feature.dtype == "bytes":
                batch[name] = [np.array(values[row], copy=True) for row in range(rows)]
            else:  # copied: its memory is overwritten by the next batch but one
                batch[name] = np.array(values.as_array()[:rows], copy=True).reshape(rows, *feature.shape)
        return batch

    def stats(self) -> dict[str, Any]:
        return {}


def describe() -> str:
    return f"nvidia-dali {__version__}"
