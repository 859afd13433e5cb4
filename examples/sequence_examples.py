"""SequenceExamples: a context of fixed features, and feature lists with a step for each frame, word or event.

Prints

    topic: [0, 1, 2, 3]
    clicks: lengths [0, 1, 2, 3]
    clicks, padded: [[-1, -1, -1], [0, -1, -1], [0, 10, -1], [0, 10, 20]]
    position: 6 steps of shape (2,)
    words of row 3: [[b'a'], [b'a', b'b'], [b'a', b'b', b'c']]
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

import shardmix


def write_sessions(folder: Path) -> None:
    """Session i has i steps."""
    with shardmix.ShardWriter(folder / "sessions-{:05d}.tfrecord", num_shards=2) as writer:
        for i in range(4):
            context = {"topic": i}
            steps = {
                "clicks": [[10 * step] for step in range(i)],
                "position": np.zeros((i, 2), np.float32),
                "words": [[b"a", b"b", b"c"][: step + 1] for step in range(i)],
            }
            writer.write(shardmix.encode_sequence_example(context, steps))


def load(folder: Path) -> None:
    dataset = shardmix.ShardDataset(
        folder / "sessions-*.tfrecord",
        features={"topic": shardmix.FixedLenFeature((), "int64")},
        sequence_features={
            "clicks": shardmix.FixedLenFeature((), "int64"),  # one number a step: Ragged over steps
            "position": shardmix.FixedLenFeature((2,), "float32"),  # two numbers a step
            "words": shardmix.VarLenFeature("bytes"),  # any number of words a step
        },
        shuffle=False,
        lanes=1,
        cycle_length=1,  # with one lane and one open file: the order of the files
    )
    (batch,) = shardmix.MixLoader(dataset, batch_size=4)
    by_topic = batch["topic"].argsort().tolist()
    clicks = [batch["clicks"].to_list()[row] for row in by_topic]
    print("topic:", sorted(batch["topic"].tolist()))
    print("clicks: lengths", [len(row) for row in clicks])
    print("clicks, padded:", batch["clicks"].to_padded(-1)[by_topic].tolist())
    print(f"position: {len(batch['position'].values)} steps of shape {tuple(batch['position'].values.shape[1:])}")
    print("words of row 3:", batch["words"][by_topic[3]])


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        write_sessions(Path(folder))
        load(Path(folder))
