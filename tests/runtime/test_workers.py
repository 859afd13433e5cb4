"""What crosses between processes, counted: messages, slabs, copies, system calls; and the threads that stand in for workers."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shardmix import FixedLenFeature, MixLoader, ShardDataset, ShardWriter, encode_example
from shardmix.runtime import gather
from shardmix.runtime.assemble import Assembler
from shardmix.runtime.processes import WatchedIterator
from shardmix.runtime.requests import Reply, Request
from shardmix.runtime.workers import AHEAD, AnsweringThread, attach, take_in_turn
from tests.runtime.loading import FEATURES, IDS, ids_of, plain, write_corpus

pytestmark = [pytest.mark.usefixtures("nothing_left")]

ROWS = 3200
PASSES = 10


def open_features(folder: Path, num_features: int) -> ShardDataset:
    """3200 equal records of so many floats in 8 shards."""
    names = [f"feature {j}" for j in range(num_features)]
    pattern = str(folder / f"{num_features}" / "{:05d}.tfrecord")
    Path(pattern).parent.mkdir()
    payload = encode_example({name: float(j) for j, name in enumerate(names)})
    with ShardWriter(pattern, num_shards=8) as writer:
        for _ in range(ROWS):
            writer.write(payload)
    features = {name: FixedLenFeature((), "float32") for name in names}
    return ShardDataset(str(Path(pattern).parent), features=features, shuffle_buffer_size=64)


@pytest.fixture(scope="module")
def by_features(tmp_path_factory: pytest.TempPathFactory) -> dict[int, ShardDataset]:
    folder = tmp_path_factory.mktemp("features")
    return {number: open_features(folder, number) for number in (2, 200)}


# --- Processes


@pytest.mark.parametrize("has_slots", [True, False], ids=["slots", "slabs"])
@pytest.mark.parametrize("num_features", [2, 200])
def test_after_the_first_rounds_nothing_is_allocated_or_sent_but_one_message_a_chunk(
    by_features: dict[int, ShardDataset], num_features: int, has_slots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows that workers write into slots are not copied at all, those in slabs once."""
    calls = {"messages": 0, "attached": 0, "copied rows": 0}

    def counted(name: str, function: Callable[..., Any], amount: Callable[..., int] = lambda *_: 1) -> Callable[..., Any]:
        def call(*arguments: Any) -> Any:
            calls[name] += amount(*arguments)
            return function(*arguments)

        return call

    monkeypatch.setattr("shardmix.runtime.requests.CHUNK_SECONDS", 1e9)  # chunks by bytes alone, however busy the machine
    monkeypatch.setattr(Assembler, "takes_slots", has_slots)
    monkeypatch.setattr(WatchedIterator, "_get_data", counted("messages", WatchedIterator._get_data))
    monkeypatch.setattr("shardmix.runtime.workers.attach", counted("attached", attach))
    monkeypatch.setattr(gather, "scatter_rows", counted("copied rows", gather.scatter_rows, rows_scattered))
    loader = MixLoader(by_features[num_features], batch_size=40, num_workers=2, persistent_workers=True)
    for number in range(6):  # the first rounds, of a user who takes his time and of one who does not
        for _ in loader:
            time.sleep(0.002 * (number % 2))
    memory: Any = loader._keeper.slots.pool if has_slots else loader._keeper.memory
    before, stats = dict(calls), loader.stats()
    assert sum(len(batch["feature 0"]) for _ in range(PASSES) for batch in loader) == PASSES * ROWS
    num_messages = loader.stats()["messages"] - stats["messages"]
    resumed = 2 * PASSES  # torch tells each persistent worker that another pass begins
    assert calls["messages"] - before["messages"] == num_messages + resumed
    assert calls["attached"] - before["attached"] == loader.stats()["slabs_attached"] - stats["slabs_attached"] == 0
    assert 0 < memory.num_allocated <= 16  # as much as was ever under way at one time, not more with each pass
    assert calls["copied rows"] - before["copied rows"] == (0 if has_slots else PASSES * ROWS)
    assert num_messages < PASSES * 2 * ROWS / 40 / 4  # a chunk is several batches
    del loader


def rows_scattered(parts: Any, positions: Any, *rest: Any) -> int:
    return sum(map(len, positions))


def test_a_row_is_copied_once_out_of_the_slab(by_features: dict[int, ShardDataset], monkeypatch: pytest.MonkeyPatch) -> None:
    """What the mixer scatters lies in the slabs themselves, what it makes in the memory of the batch."""
    seen: list[tuple[bool, bool]] = []
    scatter = gather.scatter_rows

    def look(parts: Any, *rest: Any) -> Any:
        columns = scatter(parts, *rest)
        slabs = list(loaders[0]._keeper.workers.views.values())
        from_slab = all(any(np.shares_memory(column.values, slab) for slab in slabs) for part in parts for column in part)
        into_slab = any(np.shares_memory(column.values, slab) for column in columns for slab in slabs)
        seen.append((from_slab, into_slab))
        return columns

    monkeypatch.setattr(gather, "scatter_rows", look)
    monkeypatch.setattr(Assembler, "takes_slots", False)
    loaders: list[Any] = [MixLoader(by_features[2], batch_size=400, num_workers=2, persistent_workers=True)]
    for _ in loaders[0]:
        pass
    assert set(seen) == {(True, False)}
    loaders.clear()


def test_reading_costs_far_fewer_system_calls_than_records(by_features: dict[int, ShardDataset]) -> None:
    """At most one a track and chunk; here the chunks are small, with 64 tracks, and their files are opened too."""

    def read_calls() -> int:
        lines = Path("/proc/self/io").read_text().splitlines()
        return int(dict(line.split(": ") for line in lines)["syscr"])

    for dataset in by_features.values():
        loader = MixLoader(dataset, batch_size=400)
        list(loader)
        before = read_calls()
        list(loader)
        assert read_calls() - before < ROWS / 2


# --- Threads


class Answers:
    """Answers every request with its own number; counts how many run at a time."""

    def __init__(self) -> None:
        self.asked: list[int] = []

    def __getitem__(self, request: Request) -> Reply:
        self.asked.append(request.slab)
        if request.slab == 13:
            raise KeyboardInterrupt  # no Exception: nothing may hang
        return Reply(0, 0, request.slab, None, 0, 0, 0.0, False, False, None, ())


def requests(*numbers: int) -> Iterator[Request]:
    return iter([Request(0, number, 0, None) for number in numbers])


def make_threads(count: int) -> tuple[list[Any], list[Any]]:
    sources = [Answers() for _ in range(count)]
    return sources, [AnsweringThread(source) for source in sources]  # type: ignore[arg-type]


@pytest.mark.parametrize("count", [1, 2, 3])
def test_threads_are_asked_in_turn_and_answer_in_order(count: int) -> None:
    sources, threads = make_threads(count)
    answers = [reply.slab for reply in take_in_turn(requests(*range(10)), threads)]
    for thread in threads:
        thread.close()
    assert answers == list(range(10))
    assert [source.asked for source in sources] == [list(range(10))[number::count] for number in range(count)]


def test_threads_are_asked_a_little_ahead() -> None:
    drawn: list[int] = []

    def draw() -> Iterator[Request]:
        for number in range(100):
            drawn.append(number)
            yield Request(0, number, 0, None)

    _, threads = make_threads(2)
    answers = take_in_turn(draw(), threads)
    next(answers)
    assert len(drawn) == 2 * AHEAD + 1
    answers.close()
    for thread in threads:
        thread.close()


def test_whatever_a_thread_raises_is_raised_to_who_asks() -> None:
    _, threads = make_threads(2)
    with pytest.raises(KeyboardInterrupt):
        list(take_in_turn(requests(1, 2, 13, 4), threads))
    for thread in threads:
        thread.close()


@pytest.mark.parametrize("num_threads", [1, 2, 3, 16])
def test_batches_are_the_same_for_any_number_of_threads(
    tmp_path: Path, num_threads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pattern = write_corpus(tmp_path / "corpus")
    batches = []
    for cores in (1, num_threads):
        monkeypatch.setattr("os.sched_getaffinity", lambda _, cores=cores: set(range(cores)))
        dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32, with_source=True)
        loader = MixLoader(dataset, batch_size=6, repeat=2)
        iterator = iter(loader)
        first = next(iterator)
        names = {thread.name for thread in threading.enumerate() if thread.name.startswith("shardmix")}
        assert ("shardmix-reader" in names) == (cores > 1)
        batches.append([plain(first), *map(plain, iterator)])
    assert batches[0] == batches[1]


def test_user_code_runs_in_one_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(4)))
    seen = set()

    def note(sample: Any) -> Any:
        seen.add(threading.current_thread().name)
        return sample

    dataset = ShardDataset(write_corpus(tmp_path / "corpus"), features=FEATURES, transform=note)
    assert sorted(ids_of(MixLoader(dataset, batch_size=6))) == IDS
    assert seen == {"shardmix-mixer"}


def test_files_are_closed_with_the_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shardmix.runtime.requests.CHUNK_SECONDS", 0)  # chunks of one batch: no file is read to its end ahead
    loader = MixLoader(ShardDataset(write_corpus(tmp_path / "corpus"), features=FEATURES, shuffle_buffer_size=16), batch_size=2)
    iterator = iter(loader)
    list(islice(iterator, 3))
    assert open_shards(tmp_path)
    iterator.close()
    assert open_shards(tmp_path) == []


def open_shards(folder: Path) -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(str(entry.readlink()))
        except OSError:
            continue
    return [link for link in links if link.startswith(str(folder)) and link.endswith(".tfrecord")]
