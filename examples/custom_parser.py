"""Records of a format of your own, here a line of JSON each: subclass ShardDataset and say how one record is parsed.

Samples of one structure arrive as a batch of tensors. SkipRecord drops a record. What else a parser raises reaches the main
process with the place of the record.

Prints

    {'words': tensor([2, 3, 1, 4]), 'text': ['a b', 'a b c', 'a', 'a b c d']}
    4 of 5 records; the one that is marked as spam was dropped
    ParseError, at record 1 of reviews-00000.tfrecord
    caused by JSONDecodeError
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import shardmix


class LineDataset(shardmix.ShardDataset):
    """One JSON object a record."""

    def parse(self, record: memoryview) -> dict[str, Any]:
        line = json.loads(bytes(record))
        if line.get("spam"):
            raise shardmix.SkipRecord
        return {"words": len(line["text"].split()), "text": line["text"]}


def write_lines(pattern: Path, lines: list[bytes]) -> None:
    with shardmix.ShardWriter(pattern, num_shards=1) as writer:
        for line in lines:
            writer.write(line)


def load(folder: Path) -> None:
    texts = [{"text": "a b"}, {"text": "a b c"}, {"text": "buy", "spam": True}, {"text": "a"}, {"text": "a b c d"}]
    write_lines(folder / "reviews-{:05d}.tfrecord", [json.dumps(text).encode() for text in texts])
    dataset = LineDataset(folder / "reviews-*.tfrecord", shuffle=False)
    for batch in shardmix.MixLoader(dataset, batch_size=5):
        print(batch)
        print(f"{len(batch['text'])} of 5 records; the one that is marked as spam was dropped")


def load_damaged(folder: Path) -> None:
    write_lines(folder / "reviews-{:05d}.tfrecord", [b'{"text": "a b"}', b"no JSON"])
    dataset = LineDataset(folder / "reviews-*.tfrecord", shuffle=False)
    try:
        list(shardmix.MixLoader(dataset, batch_size=2, num_workers=1))
    except shardmix.ParseError as error:
        print(f"{type(error).__name__}, at record {error.record} of {Path(error.path).name}")
        print(f"caused by {type(error.__cause__).__name__}")


if __name__ == "__main__":
    for run in (load, load_damaged):
        with tempfile.TemporaryDirectory() as folder:
            run(Path(folder))
