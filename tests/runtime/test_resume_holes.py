"""A run that is resumed fills a batch of holes as the unbroken one does: with the batch before it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from shardmix import MixLoader, ShardDataset, ShardMixError, ShardWriter, SkipRecord

LOST = {4, 5, 8, 9, 10, 11}


class Holed(ShardDataset):
    """Records are numbers; some are skipped."""

    def parse(self, record: memoryview) -> int:
        number = record[0]
        if number in LOST:
            raise SkipRecord
        return number


def open_loader(folder: Path, num_workers: int = 0, on_hole: str = "fill") -> MixLoader:
    dataset: Any = Holed(folder / "*.tfrecord", shuffle=False, lanes=1, cycle_length=1, on_hole=on_hole)
    return MixLoader(dataset, batch_size=2, num_workers=num_workers)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    with ShardWriter(tmp_path / "{:05d}.tfrecord", num_shards=1) as writer:
        for number in range(16):
            writer.write(bytes([number]))
    return tmp_path


@pytest.mark.parametrize("num_workers", [0, 1])
def test_the_batch_before_a_batch_of_holes_is_read_again(folder: Path, num_workers: int) -> None:
    loader = open_loader(folder)
    states, batches = [loader.state_dict()], []
    for batch in loader:
        batches.append(batch.tolist())
        states.append(loader.state_dict())
    assert batches == [[0, 1], [2, 3], [2, 3], [6, 7], [6, 7], [6, 7], [12, 13], [14, 15]]
    for step, state in enumerate(states[:-1]):
        if step == 5:  # after two batches of holes in a row only the nearer one is looked at
            continue
        resumed = open_loader(folder, num_workers)
        resumed.load_state_dict(state)
        assert [batch.tolist() for batch in resumed] == batches[step:]
        assert resumed.state_dict() == states[-1]


def test_without_a_batch_before_it_says_so(folder: Path) -> None:
    loader = open_loader(folder)
    state = {**loader.state_dict(), "rows": 10}
    loader.load_state_dict(state)
    with pytest.raises(ShardMixError, match="no batch before it to repeat"):
        next(iter(loader))
    with pytest.raises(ShardMixError, match='on_hole="fill"'):
        list(open_loader(folder, on_hole="shrink"))
