"""Law 6: from every step, on other workers and ranks, the rest of the run is equal, and the epochs after it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

from shardmix import FixedLenFeature, MixLoader, ShardDataset, ShardWriter

pytestmark = [pytest.mark.once, pytest.mark.usefixtures("nothing_left"), pytest.mark.filterwarnings("ignore:an epoch inflates")]

NUM_EPOCHS = 3
FEATURES = {"id": FixedLenFeature((), "int64")}
Batches = list[list[int]]
State = dict[str, Any]


def write_shards(folder: Path, counts: list[int], compressed: Callable[[int], bool]) -> str:
    """Shards of so many examples; `id` is shard · 1000 + record."""
    folder.mkdir()
    for shard, count in enumerate(counts):
        compression = "gzip" if compressed(shard) else None
        with ShardWriter(folder / f"{shard:05d}-{{}}.tfrecord", num_shards=1, compression_type=compression) as writer:
            for record in range(count):
                writer.write({"id": shard * 1000 + record})
    return str(folder / "*.tfrecord")


@pytest.fixture(scope="module")
def corpora(tmp_path_factory: pytest.TempPathFactory, golden_dir: Path) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("corpora")
    many = [(shard * 7) % 13 for shard in range(40)]
    return {
        "golden": str(golden_dir / "uneven-*"),
        "forty shards": write_shards(folder / "forty", many, lambda shard: shard == 11),
        "all gzip": write_shards(folder / "gzip", [9, 0, 41, 1, 30, 16], lambda shard: True),
    }


def ids(loader: MixLoader) -> Batches:
    return [batch["id"].tolist() for batch in loader]


def run_with_states(loader: MixLoader) -> tuple[Batches, list[State]]:
    """The batches of some epochs, and the state before each, as JSON gives it back; the last state is that after all."""
    batches, states = [], []
    for _ in range(NUM_EPOCHS):
        for batch in loader:
            batches.append(batch["id"].tolist())
            states.append(json.loads(json.dumps(loader.state_dict())))
    return batches, states


def rest_of_run(loader: MixLoader, state: State) -> Batches:
    """What is left of the epochs of `run_with_states`."""
    loader.load_state_dict(state)
    return list(chain.from_iterable(ids(loader) for _ in range(state["epoch"], NUM_EPOCHS)))


@contextmanager
def loaders_with_workers(dataset: ShardDataset, batch_size: int) -> Iterator[list[MixLoader]]:
    """One loader with 0, 1 and 2 workers each; the workers stay from pass to pass."""
    loaders = [MixLoader(dataset, batch_size, num_workers=n, persistent_workers=n > 0) for n in range(3)]
    yield loaders
    for loader in loaders:
        if loader._keeper.workers is not None:
            loader._keeper.workers.close()


@pytest.mark.parametrize("name", ["golden", "forty shards", "all gzip"])
@pytest.mark.parametrize(("batch_size", "settings"), [(24, {}), (20, {"lanes": 32, "shuffle_buffer_size": 96})])
def test_the_rest_is_equal_from_every_step_on_other_workers(
    corpora: dict[str, str], name: str, batch_size: int, settings: dict[str, Any]
) -> None:
    dataset = ShardDataset(corpora[name], features=FEATURES, **{"shuffle_buffer_size": 64, **settings})
    whole, states = run_with_states(MixLoader(dataset, batch_size))
    assert len({tuple(chain(*whole[i::NUM_EPOCHS])) for i in range(NUM_EPOCHS)}) == NUM_EPOCHS
    with loaders_with_workers(dataset, batch_size) as loaders:
        for step, state in enumerate(states, 1):
            assert rest_of_run(loaders[step % 3], state) == whole[step:], (step, state)


@pytest.mark.parametrize("num_workers", [0, 2])
def test_the_first_state_is_the_whole_run(corpora: dict[str, str], num_workers: int) -> None:
    dataset = ShardDataset(corpora["golden"], features=FEATURES, shuffle_buffer_size=64)
    loader = MixLoader(dataset, 24)
    state = loader.state_dict()
    whole, _ = run_with_states(loader)
    assert rest_of_run(MixLoader(dataset, 24, num_workers=num_workers), state) == whole


# --- Other numbers of ranks: the rows of a global step, whoever has them


def run_on_ranks(
    pattern: str, world_size: int, global_batch: int, state: State | None
) -> tuple[list[set[int]], list[list[State]]]:
    """The records of every global step of the rest of the run, and the states of all ranks after it."""
    steps, states = [], []
    runs = []
    for rank in range(world_size):
        ranks = {"rank": rank, "world_size": world_size, "lanes": 16 if state is None else None}
        dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=64, with_source=True, **ranks)
        loader = MixLoader(dataset, global_batch // world_size)
        if state is not None:
            loader.load_state_dict(state)
        runs.append(_steps_of_rank(loader, state["epoch"] if state else 0))
    for of_ranks in zip(*runs, strict=True):
        steps.append(set().union(*(rows for rows, _ in of_ranks)))
        states.append([state for _, state in of_ranks])
    return steps, states


def _steps_of_rank(loader: MixLoader, epoch: int) -> Iterator[tuple[set[int], State]]:
    for _ in range(epoch, NUM_EPOCHS):
        for batch in loader:
            is_own = ~batch["source"].is_pad
            yield set(batch["id"][is_own].tolist()), loader.state_dict()


@pytest.mark.parametrize(("name", "global_batch"), [("golden", 24), ("forty shards", 8)])
def test_the_rest_is_equal_from_every_step_on_other_ranks(corpora: dict[str, str], name: str, global_batch: int) -> None:
    steps, states = run_on_ranks(corpora[name], 2, global_batch, None)
    for step in range(0, len(steps), 1 if name == "golden" else 7):
        first, second = states[step]
        assert first == second
        for world_size in (1, 4):
            rest, rest_states = run_on_ranks(corpora[name], world_size, global_batch, first)
            assert rest == steps[step + 1 :], (step, world_size)
            assert [of_ranks[0] for of_ranks in rest_states] == [of_ranks[0] for of_ranks in states[step + 1 :]]


def test_two_ranks_one_rank_four_ranks_give_each_record_once_an_epoch(corpora: dict[str, str]) -> None:
    whole, states = run_on_ranks(corpora["golden"], 2, 24, None)
    per_epoch = len(whole) // NUM_EPOCHS
    _, on_one = run_on_ranks(corpora["golden"], 1, 24, states[1][0])
    on_four, _ = run_on_ranks(corpora["golden"], 4, 24, on_one[1][0])
    assert on_four == whole[4:]
    assert len(set().union(*whole[:4], *on_four[: per_epoch - 4])) == 171
