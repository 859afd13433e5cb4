"""tf.data, as its performance guide has it: parallel interleave, shuffle, batch, a vectorised parse, prefetch, all AUTOTUNE.

Its tensors are shown as numpy arrays, strings as bytes objects, which is what a PyTorch program can use.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")

import tensorflow as tf

from benchmarks.workload import BATCH_SIZE, BUFFER_SIZE, Batch, Workload
from shardmix import RawFeature

CHECKS = "every byte"
DECODES = True


class Peer:
    def __init__(self, workload: Workload) -> None:
        features = workload.features
        raw = [name for name, feature in features.items() if isinstance(feature, RawFeature)]
        kinds = {"int64": tf.int64, "float32": tf.float32, "bytes": tf.string, "uint8": tf.string}
        spec = {
            name: tf.io.FixedLenFeature(() if name in raw else feature.shape, kinds[feature.dtype])
            for name, feature in features.items()
        }

        def parse(records: Any) -> Any:
            batch = tf.io.parse_example(records, spec)
            return batch | {name: tf.io.decode_raw(batch[name], tf.uint8) for name in raw}

        paths = tf.data.Dataset.from_tensor_slices(workload.paths).shuffle(len(workload.paths))
        records = paths.interleave(
            tf.data.TFRecordDataset, cycle_length=16, num_parallel_calls=tf.data.AUTOTUNE, deterministic=False
        )
        batches = records.shuffle(BUFFER_SIZE).batch(BATCH_SIZE)
        self.batches = batches.map(parse, num_parallel_calls=tf.data.AUTOTUNE).prefetch(tf.data.AUTOTUNE)

    def epoch(self) -> Iterator[Batch]:
        return iter(self.batches.as_numpy_iterator())

    def stats(self) -> dict[str, Any]:
        return {}


def describe() -> str:
    return f"tensorflow {tf.__version__}"
