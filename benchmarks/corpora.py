"""The five corpora that shardmix is measured on.

    small     784 bytes and two ints             an image of MNIST's size
    ctr       13 floats and 27 ints, each alone  a row of a click log: forty features
    emb       1024 floats and a label            an embedding
    tokens    1024 ints below 50,000             a text
    image     about 110 kB of bytes and a label  a JPEG

The values are random, and the same on every machine. Map entries are in the order of their names: other orders cost the C decoder
a hash a key, which `decode.py` shows as "shuffled keys".
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from shardmix import FixedLenFeature, ShardWriter, VarLenFeature
from shardmix.format.messages import load_messages

Values = dict[str, Any]

FEATURES: dict[str, dict[str, Any]] = {
    "small": {
        "image": FixedLenFeature((), "bytes"),
        "label": FixedLenFeature((), "int64"),
        "id": FixedLenFeature((), "int64"),
    },
    "ctr": {f"I{i}": FixedLenFeature((), "float32") for i in range(13)}
    | {f"C{i}": FixedLenFeature((), "int64") for i in range(27)},
    "emb": {"embedding": FixedLenFeature((1024,), "float32"), "label": FixedLenFeature((), "int64")},
    "tokens": {"tokens": FixedLenFeature((1024,), "int64")},
    "image": {"image": FixedLenFeature((), "bytes"), "label": FixedLenFeature((), "int64")},
}
RAGGED_FEATURES = {"tokens": VarLenFeature("int64")}


def draw_values(name: str, rng: np.random.Generator) -> Values:
    """The values of one record."""
    if name == "small":
        return {"image": [rng.bytes(784)], "label": [int(rng.integers(10))], "id": [int(rng.integers(10**6))]}
    if name == "ctr":
        sizes = rng.integers(1, 25, 27)  # identifiers of one to four bytes
        ids = rng.integers(0, 2**sizes).tolist()
        floats = rng.random(13, np.float32).tolist()
        return {f"I{i}": [x] for i, x in enumerate(floats)} | {f"C{i}": [x] for i, x in enumerate(ids)}
    if name == "emb":
        return {"embedding": rng.random(1024, np.float32).tolist(), "label": [int(rng.integers(1000))]}
    if name == "tokens":
        return {"tokens": rng.integers(0, 50_000, 1024).tolist()}
    return {"image": [rng.bytes(int(rng.integers(100_000, 120_000)))], "label": [int(rng.integers(1000))]}


def encode(values: Values, names: list[str]) -> bytes:
    """One record by protobuf, its map entries in the order of `names`."""
    messages = load_messages()
    entries = []
    for name in names:
        message = messages.Example()
        feature = message.features.feature[name]
        kind = {bytes: feature.bytes_list, float: feature.float_list, int: feature.int64_list}[type(values[name][0])]
        kind.value.extend(values[name])
        entries.append(message.features.SerializeToString())
    body = b"".join(entries)
    return b"\x0a" + _varint(len(body)) + body


def _varint(number: int) -> bytes:
    out = bytearray()
    while number >= 0x80:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*out, number])


def make_payloads(name: str, count: int, *, seed: int = 0, shuffled: bool = False) -> Iterator[bytes]:
    """Some records of a corpus. `shuffled`: each has its map entries in an order of its own."""
    rng = np.random.default_rng(seed)
    names = sorted(FEATURES[name])
    for _ in range(count):
        yield encode(draw_values(name, rng), rng.permutation(names).tolist() if shuffled else names)


def write_corpus(name: str, folder: Path, count: int, num_shards: int = 16) -> str:
    """Write a corpus; returns its pattern."""
    folder.mkdir(parents=True, exist_ok=True)
    with ShardWriter(folder / f"{name}-{{:05d}}.tfrecord", num_shards=num_shards) as writer:
        for payload in make_payloads(name, count):
            writer.write(payload)
    return str(folder / f"{name}-*.tfrecord")
