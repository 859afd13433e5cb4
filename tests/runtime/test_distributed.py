"""Real ranks: gloo processes that are told nothing, share every epoch alike, and never wait for each other in vain."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader

from shardmix import FixedLenFeature, MixLoader, ShardDataset, ShardWriter
from shardmix.format import index
from tests.runtime.gloo import run_ranks

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("nothing_left")]

FEATURES = {"id": FixedLenFeature((), "int64")}
COUNTS = [9, 0, 23, 1, 14]  # 47 records
Steps = list[list[int]]


def open_corpus(pattern: str) -> ShardDataset:
    return ShardDataset(pattern, features=FEATURES, lanes=16, shuffle_buffer_size=64, with_source=True)


# --- One order, whoever is there


def load_epochs(rank: int, world_size: int, join: Any, pattern: str, global_batch: int) -> list[Steps]:
    """The rank's batches of two epochs, pads left out. The data set is older than the group."""
    loader = MixLoader(open_corpus(pattern), global_batch // world_size, num_workers=world_size % 4 // 2)
    with join():
        epochs = [[batch["id"][~batch["source"].is_pad].tolist() for batch in loader] for _ in range(2)]
        assert [len(epoch) for epoch in epochs] == 2 * [len(loader)]
        return epochs


@pytest.mark.parametrize("global_batch", [16, 8])
def test_global_batches_are_the_same_for_one_two_and_four_ranks(
    make_corpus: Callable[..., str], tmp_path: Path, global_batch: int
) -> None:
    pattern = make_corpus(COUNTS)
    worlds = [run_ranks(load_epochs, world_size, tmp_path, pattern, global_batch) for world_size in (1, 2, 4)]
    of_worlds = [
        [sorted(chain(*of_ranks)) for epoch in zip(*ranks, strict=True) for of_ranks in zip(*epoch, strict=True)]
        for ranks in worlds
    ]
    assert of_worlds[0] == of_worlds[1] == of_worlds[2]
    assert sorted(chain(*of_worlds[0])) == sorted(2 * [1000 * shard + i for shard, n in enumerate(COUNTS) for i in range(n)])
    assert of_worlds[0][: len(of_worlds[0]) // 2] != of_worlds[0][len(of_worlds[0]) // 2 :]


# --- Workers are told, whatever starts them


def load_with_a_worker(rank: int, world_size: int, join: Any, pattern: str, method: str) -> list[int]:
    """The ids of an epoch in a plain DataLoader. (MixLoader's workers are told with each request.)"""
    loader = DataLoader(open_corpus(pattern), 16, num_workers=1, multiprocessing_context=method)
    with join():
        return [number for batch in loader for number in batch["id"].tolist()]


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_worker_hosts_the_lanes_of_its_rank(make_corpus: Callable[..., str], tmp_path: Path, method: str) -> None:
    of_ranks = run_ranks(load_with_a_worker, 2, tmp_path, make_corpus(COUNTS), method)
    assert sorted(chain(*of_ranks)) == [1000 * shard + i for shard, n in enumerate(COUNTS) for i in range(n)]
    assert [len(ids) for ids in of_ranks] == [24, 23]


# --- What cannot be


def contradict(rank: int, world_size: int, join: Any, pattern: str) -> list[str]:
    """What a loader says in an environment of other ranks."""
    patch = pytest.MonkeyPatch()
    patch.setenv("RANK", str(1 - rank))
    patch.setenv("WORLD_SIZE", "2")
    texts = []
    with join():
        loader = MixLoader(open_corpus(pattern), 4)
        for use in (len, lambda loader: next(iter(loader)), MixLoader.state_dict):
            with pytest.raises(ValueError) as caught:
                use(loader)
            texts.append(str(caught.value))
    patch.undo()
    return texts


def test_a_group_against_the_environment_is_an_error_that_names_both(make_corpus: Callable[..., str], tmp_path: Path) -> None:
    for rank, texts in enumerate(run_ranks(contradict, 2, tmp_path, make_corpus(COUNTS))):
        for text in texts:
            assert f"rank {rank} of 2, the environment says RANK={1 - rank}, WORLD_SIZE=2" in text


# --- One of them builds the index


def build_at_once(rank: int, world_size: int, join: Any, pattern: str, is_grouped: bool) -> tuple[int, list[int]]:
    """How often this rank scanned, and what it then knew."""
    scans = []
    build_columns = index.build_columns

    def build_slowly(*arguments: Any, **settings: Any) -> Any:
        scans.append(rank)
        time.sleep(0.3)
        return build_columns(*arguments, **settings)

    index.build_columns = build_slowly
    if not is_grouped:
        return _scan(pattern, scans)
    with join():
        return _scan(pattern, scans)


def _scan(pattern: str, scans: list[int]) -> tuple[int, list[int]]:
    counts = open_corpus(pattern)._counts.tolist()
    return len(scans), counts


@pytest.mark.parametrize("is_grouped", [True, False])
def test_one_process_builds_the_index_while_others_wait(
    make_corpus: Callable[..., str], tmp_path: Path, is_grouped: bool
) -> None:
    pattern = make_corpus(COUNTS)
    for hidden in (tmp_path / "corpus").glob(".*"):
        hidden.unlink()
    scans, counts = zip(*run_ranks(build_at_once, 4, tmp_path, pattern, is_grouped), strict=True)
    assert sum(scans) == 1
    assert counts == (COUNTS,) * 4


# --- Nobody waits for a batch that never comes


class Sizes(ShardDataset):
    """A sample is the size of its record."""

    def parse(self, record: memoryview) -> int:
        return len(record)


def write_corpora(folder: Path, random: Random) -> dict[str, int]:
    """Folders of shards, and how many records each has."""
    corpora = {}
    for number in range(40):
        counts = [random.choice((0, 1, 2, 5, 13)) for _ in range(random.randint(0, 3))] + [random.randint(1, 9)]
        (folder / str(number)).mkdir()
        for shard, count in enumerate(counts):
            with ShardWriter(folder / str(number) / f"{shard}-{{}}.tfrecord", num_shards=1) as writer:
                for record in range(count):
                    writer.write(b"x" * record)
        corpora[str(folder / str(number))] = sum(counts)
    return corpora


def draw_settings(random: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    """Settings of a data set, and of a loader."""
    lanes = random.choice((2, 4, 6, 16))
    settings = {"lanes": lanes, "shuffle_buffer_size": random.choice((0, 2 * lanes)), "cycle_length": random.randint(1, 4)}
    uneven, drop_last = random.choice(("pad", "drop", "allow")), random.random() < 0.3
    return settings, {"batch_size": random.randint(1, 9), "uneven": uneven, "drop_last": drop_last}


def reduce_each_batch(rank: int, world_size: int, join: Any, cases: list[Any]) -> list[tuple[int, int, int]]:
    """(batches, global steps, records over all ranks) of an epoch of each case; every step is reduced over the ranks."""
    told = []
    with join():
        for pattern, settings, batching in cases:
            loader = MixLoader(Sizes(pattern, **settings), **batching)
            num_steps = torch.tensor([len(loader)])
            if batching["uneven"] == "allow":
                dist.all_reduce(num_steps, dist.ReduceOp.MAX)
            batches, num_batches, num_records = iter(loader), 0, 0
            for _ in range(int(num_steps)):
                batch = next(batches, None)
                num_batches += batch is not None
                rows = torch.tensor([0 if batch is None else len(batch)])
                dist.all_reduce(rows)
                num_records += int(rows)
            assert next(batches, None) is None
            told.append((num_batches, int(num_steps), num_records))
    return told


def count_rows(num_records: int, batch_size: int, uneven: str, drop_last: bool) -> int:
    """Rows that two ranks deliver in an epoch, pads included."""
    rest = num_records % (2 * batch_size)
    if drop_last or (uneven == "drop" and rest == 1):
        return num_records - rest
    return num_records + (uneven == "pad" and rest % 2)


def test_ranks_that_reduce_each_batch_finish_their_epochs(tmp_path: Path) -> None:
    random = Random(5)
    corpora = write_corpora(tmp_path, random)
    cases = [(pattern, *draw_settings(random)) for _ in range(5) for pattern in corpora]
    first, second = run_ranks(reduce_each_batch, 2, tmp_path, cases)
    assert len(first) == 200
    for one, other, (pattern, _, batching) in zip(first, second, cases, strict=True):
        assert one[1:] == other[1:]
        assert one[0] == other[0] == one[1] or batching["uneven"] == "allow"
        assert one[2] == count_rows(corpora[pattern], **batching), batching
