"""Decode alone, one thread: python benchmarks/decode.py

Records a second of the C twin, the Python twin and the tfrecord package on the five corpora, all in one run, the records in
memory; and the scan of frames with the CRC of every byte beside a plain memory copy of the same bytes. The twins fill columns in
memory that is used again, as the loader does; the tfrecord package gives a dict of arrays a record.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from time import thread_time
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))

from benchmarks.corpora import FEATURES, RAGGED_FEATURES, make_payloads
from shardmix.format import _core, example, native, native_examples
from shardmix.format.features import resolve_schema
from shardmix.format.framing import frame_record
from shardmix.format.records import RecordBlock

RECORDS = {"small": 4096, "ctr": 2048, "emb": 2048, "tokens": 2048, "image": 256}
LOADER_TYPES = {"int64": "int", "float32": "float", "bytes": "byte"}  # of the tfrecord package


class Places:
    """Records of nowhere."""

    def path(self, shard: int) -> str:
        return "memory"

    def offset(self, shard: int, record: int) -> int | None:
        return None


def make_block(payloads: Sequence[bytes]) -> RecordBlock:
    length = np.array([len(payload) for payload in payloads], np.int64)
    rows = np.arange(len(payloads))
    zeros = np.zeros_like(rows)
    buffer = np.frombuffer(b"".join(payloads), np.uint8)
    return RecordBlock((buffer,), zeros, np.cumsum(length) - length, length, zeros, rows, Places())


def keep_memory() -> Callable[[Any], list[Any]]:
    """An `allocate` that gives the same arrays again."""
    kept: list[Any] = []

    def allocate(requests: Any) -> list[Any]:
        if not kept:
            kept.extend(np.empty(shape, dtype) for shape, dtype in requests)
        return kept

    return allocate


def seconds(work: Callable[[], object], repeats: int) -> float:
    """CPU time of the shortest of some runs: other processes of the machine count less than on the clock."""
    times = []
    for _ in range(repeats):
        began = thread_time()
        work()
        times.append(thread_time() - began)
    return min(times)


def decode_as_tfrecord(payloads: Sequence[bytes], features: dict[str, Any]) -> Callable[[], object]:
    """What the tfrecord package does with a record, its own reading of files left out."""
    from tfrecord import example_pb2
    from tfrecord.reader import extract_feature_dict

    description = {name: LOADER_TYPES[feature.dtype] for name, feature in features.items()}
    kinds = {"byte": "bytes_list", "float": "float_list", "int": "int64_list"}

    def run() -> None:
        for payload in payloads:
            message = example_pb2.Example()
            message.ParseFromString(payload)
            extract_feature_dict(message.features, description, kinds)

    return run


def measure(title: str, payloads: Sequence[bytes], features: dict[str, Any]) -> None:
    block, schema = make_block(payloads), resolve_schema(features)
    kept = keep_memory()
    c = seconds(lambda: native_examples.decode_examples(block, schema, kept), 15)
    few = payloads[:256]
    part = make_block(few)
    python = seconds(lambda: example.decode_examples(part, schema, keep_memory()), 3) * len(payloads) / len(few)
    package = seconds(decode_as_tfrecord(few, features), 3) * len(payloads) / len(few)
    rates = [f"{len(payloads) / figure:>12,.0f}" for figure in (c, python, package)]
    print(f"{title:22}{''.join(rates)}{python / c:>10.0f}x{package / c:>10.0f}x{block.buffers[0].size / c / 1e9:>10.2f}")


def measure_scan() -> None:
    print(f"\n{'GB/s, CRC: ' + _core.crc32c_method:22}{'scan':>12}{'check':>12}{'memory copy':>12}{'scan/copy':>11}")
    for name in RECORDS:
        framed = [frame_record(payload) for payload in make_payloads(name, RECORDS[name] // 4)]
        data = np.frombuffer(b"".join(framed * (2**26 // sum(map(len, framed)) + 1)), np.uint8)
        out = np.zeros_like(data)
        length = native.scan_frames(data, remaining=len(data)).lengths
        start = np.cumsum(length + 16) - length - 4
        scan = seconds(lambda d=data: native.scan_frames(d, remaining=len(d)), 9)
        check = seconds(lambda d=data, s=start, n=length: native.check_frames(d, s, n), 9)
        copy = seconds(lambda o=out, d=data: np.copyto(o, d), 9)
        rates = [f"{len(data) / figure / 1e9:>12.2f}" for figure in (scan, check, copy)]
        print(f"{name:22}{''.join(rates)}{copy / scan:>10.2f}x")


def main() -> None:
    print(f"{'records/s':22}{'C':>12}{'Python':>12}{'tfrecord':>12}{'C/Python':>11}{'C/tfrecord':>11}{'C, GB/s':>10}")
    for name, count in RECORDS.items():
        measure(name, list(make_payloads(name, count)), FEATURES[name])
    measure("ctr, shuffled keys", list(make_payloads("ctr", RECORDS["ctr"], shuffled=True)), FEATURES["ctr"])
    measure("tokens, ragged", list(make_payloads("tokens", RECORDS["tokens"])), RAGGED_FEATURES)
    measure_scan()


if __name__ == "__main__":
    main()
