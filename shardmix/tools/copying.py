"""Copy consecutive records to new shards, in their order, framed as they are."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ..format.output import ShardOutput
from ..format.records import IntArray
from ..format.scan import FrameBlock, frame_offsets
from .findings import Finding
from .ranges import ShardRange, walk_range

OUTPUT_BUFFER_BYTES = 1 << 20


class CopyTask(NamedTuple):
    """Consecutive shards of the result, in the order of the corpus."""

    ranges: list[ShardRange]
    bounds: list[int]  # number of the record with which each shard begins, and where the last ends
    paths: list[str]
    compression: str
    on_corrupt: str


def copy_shards(task: CopyTask) -> tuple[list[IntArray], tuple[Finding, ...]]:
    """Write some shards one after the other: the lengths of the payloads of each, and what was left out."""
    findings: list[Finding] = []
    written: list[IntArray] = []
    blocks = _numbered_blocks(task, findings)
    number, block = next(blocks, (0, None))
    for path, stop in zip(task.paths, task.bounds[1:], strict=True):
        folder, name = os.path.split(path)
        output = ShardOutput(folder, name, task.compression, buffer_bytes=OUTPUT_BUFFER_BYTES)
        try:
            while block is not None and number < stop:
                room = stop - number
                cut = int(frame_offsets(block.lengths[:room])[-1])
                output.append_frames(block.data[:cut], block.lengths[:room])
                if len(block.lengths) > room:
                    number, block = stop, block._replace(data=block.data[cut:], lengths=block.lengths[room:])
                else:
                    number, block = next(blocks, (0, None))
            output.finish()
            output.publish(path)
        except BaseException:
            output.discard()
            raise
        written.append(np.array(output.lengths, np.int64))
    return written, tuple(findings)


def _numbered_blocks(task: CopyTask, findings: list[Finding]) -> Iterator[tuple[int, FrameBlock]]:
    """(number of its first record, counted over the corpus; block)."""
    for one in task.ranges:
        for block in walk_range(one, findings, task.on_corrupt):
            yield one.number + block.first - one.first, block
