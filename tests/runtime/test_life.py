"""Loaders come and go: breaks, deaths, many in turn; processes, descriptors, threads, files and memory stay as they were."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmix import MixLoader, ShardDataset
from tests.runtime.endings import processes_of_session
from tests.runtime.loading import FEATURES, IDS, Squares, ids_of, plain, write_corpus

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.once]

METHODS = ["fork", "spawn", "forkserver"]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("life") / "corpus")


def open_loader(pattern: str, **settings: Any) -> MixLoader:
    dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32)
    return MixLoader(dataset, **{"batch_size": 4, "num_workers": 2, **settings})


def descriptors() -> Counter[str]:
    """What this process has open, by kind."""
    links: list[str] = []
    for entry in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):  # the one that this listing itself was
            links.append(os.readlink(f"/proc/self/fd/{entry}").split(":")[0])
    return Counter(links)


def open_since(before: Counter[str]) -> Counter[str]:
    """What is open and was not before, once nothing is, or after some seconds: the threads of closed queues end by themselves."""
    patience = time.monotonic() + 5
    while (left := descriptors() - before) and time.monotonic() < patience:
        time.sleep(0.01)
    return left


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.fixture
def same_descriptors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Fails when the test leaves a descriptor or a temporary file."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    gc.collect()  # what tests before left in exceptions is not to go in this one
    before = descriptors()
    yield
    assert not open_since(before)
    assert [path.name for path in folder.iterdir() if not path.name.startswith("shardmix-")] == []  # but the locks of indexes


# --- Breaks


@pytest.mark.usefixtures("same_descriptors")
@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_hundred_early_breaks_leave_nothing(pattern: str, is_persistent: bool) -> None:
    loader = open_loader(pattern, persistent_workers=is_persistent)
    slowest = 0.0
    for number in range(100 if not is_persistent else 50):
        iterator = iter(loader)
        assert len(list(islice(iterator, number % 5))) == number % 5
        started = time.monotonic()
        if number % 2:
            iterator.close()
        del iterator
        slowest = max(slowest, time.monotonic() - started)
    loader.set_epoch(0)
    assert sorted(ids_of(loader)) == IDS
    assert slowest < 5  # nobody waits for torch's 5 s
    del loader


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_early_breaks_under_other_start_methods_leave_nothing(pattern: str, method: str) -> None:
    before: Counter[str] = Counter()
    for is_persistent, breaks in ((False, 1), (False, 2), (True, 7)):
        loader = open_loader(pattern, num_workers=1, multiprocessing_context=method, persistent_workers=is_persistent)
        for number in range(breaks):
            iterator = iter(loader)
            assert len(list(islice(iterator, 1 + number % 3))) == 1 + number % 3
            iterator.close()
        del loader, iterator
        before = before or descriptors()  # Python's own helpers run since the first
    assert not open_since(before)


@pytest.mark.usefixtures("same_descriptors")
def test_a_break_does_not_wait_for_a_slow_worker_to_give_its_rows() -> None:
    loader = MixLoader(SlowLater(1000), batch_size=2, num_workers=1)
    iterator = iter(loader)
    next(iterator)
    threading.Timer(0.3, iterator.close).start()
    assert list(iterator) == []


class SlowLater(Squares):
    """Items from 2 on take half a second, and there are a thousand."""

    def __getitem__(self, i: int) -> Any:
        time.sleep(0 if i < 2 else 0.5)
        return super().__getitem__(i)


# --- Deaths


@pytest.mark.usefixtures("same_descriptors")
@pytest.mark.parametrize("is_persistent", [False, True])
def test_a_killed_worker_is_named_with_what_it_was_reading_and_the_next_pass_is_whole(pattern: str, is_persistent: bool) -> None:
    draw = random.Random(7)
    loader = open_loader(pattern, persistent_workers=is_persistent, repeat=None)
    for _ in range(20):
        iterator = iter(loader)
        next(iterator)
        victim = draw.choice(living_workers())
        killer = threading.Timer(draw.random() / 50, os.kill, (victim, signal.SIGKILL))
        killer.start()
        expected = rf"worker [01] \(pid {victim}\) was killed by SIGKILL, (reading its rows of epoch|with nothing asked)"
        with pytest.raises(RuntimeError, match=expected):
            for _ in iterator:
                pass
        killer.join()
    del iterator
    assert sorted(ids_of(islice(loader, 18))) == IDS
    del loader


def living_workers() -> list[int]:
    """The pids of the workers of this process."""
    return [process.pid for process in multiprocessing.active_children() if process.pid is not None]


class Leaving(Squares):
    """Item 5 ends its worker."""

    code = 0

    def __getitem__(self, i: int) -> Any:
        if i == 5:
            os._exit(self.code)
        return super().__getitem__(i)


@pytest.mark.parametrize("code", [0, 3])
def test_a_worker_that_leaves_is_named_with_its_code_and_items(code: int) -> None:
    dataset = Leaving(12)
    dataset.code = code
    with pytest.raises(RuntimeError, match=rf"worker 1 \(pid \d+\) exited with code {code}, loading 3 items, \[3, 4, 5\]"):
        list(MixLoader(dataset, batch_size=3, num_workers=2))


def run_for_ever(pattern: str, number: int) -> None:
    for _ in open_loader(pattern, repeat=None, num_workers=2, persistent_workers=number % 2 == 0):
        time.sleep(0.001)


def test_nothing_is_left_of_killed_parents(pattern: str) -> None:
    """Ten programs, killed at random moments from before their first batch on: their workers notice and end."""
    draw = random.Random(3)
    parents = [fork_session(lambda number=number: run_for_ever(pattern, number)) for number in range(10)]
    time.sleep(0.5)
    for parent in draw.sample(parents, len(parents)):
        time.sleep(draw.random() / 10)
        os.kill(parent, signal.SIGKILL)
        os.waitpid(parent, 0)
    patience = time.monotonic() + 30
    while (left := [pid for parent in parents for pid in processes_of_session(parent)]) and time.monotonic() < patience:
        time.sleep(0.1)
    assert left == []
    assert [name for name in os.listdir("/dev/shm") if any(f"_{parent}_" in name for parent in parents)] == []


def fork_session(run: Callable[[], None]) -> int:
    """The pid, which is the session too, of a process that runs this."""
    pid = os.fork()
    if pid:
        return pid
    os.setsid()
    run()
    os._exit(0)


# --- Many


@pytest.mark.usefixtures("same_descriptors")
@pytest.mark.parametrize("num_workers", [0, 2])
def test_loader_after_loader_takes_no_more(pattern: str, num_workers: int) -> None:
    before, resident = descriptors(), []
    for number in range(30):
        loader = open_loader(pattern, num_workers=num_workers)
        for step, _batch in enumerate(loader):
            if number % 3 == 0 and step == 2:
                break
        del loader, _batch  # a batch keeps its memory, and with it a descriptor
        assert not open_since(before)
        assert not [thread.name for thread in threading.enumerate() if thread.name.startswith("shardmix")]
        resident.append(resident_bytes())
    assert resident[-1] - resident[9] < 8 << 20


@pytest.mark.usefixtures("same_descriptors")
def test_two_datasets_on_one_folder_are_read_side_by_side(tmp_path: Path) -> None:
    pattern = write_corpus(tmp_path / "corpus")
    index = next((tmp_path / "corpus").glob(".*"), None)
    if index is not None:
        index.unlink()  # both build it
    loaders = [open_loader(pattern, persistent_workers=True) for _ in range(2)]
    pairs = list(zip(*loaders, strict=True))
    for batches in zip(*pairs, strict=True):
        assert sorted(ids_of(batches)) == IDS
    assert [plain(first) == plain(second) for first, second in pairs] == [True] * len(pairs)
    del loaders


def test_torch_signals_and_environment_are_left_as_they_were(pattern: str) -> None:
    def look() -> list[Any]:
        numbers = [number for number in signal.valid_signals() if number not in (signal.SIGKILL, signal.SIGSTOP)]
        return [
            torch.multiprocessing.get_sharing_strategy(),
            torch.multiprocessing.get_start_method(allow_none=True),
            torch.get_num_threads(),
            torch.initial_seed(),
            {number: signal.getsignal(number) for number in numbers},
            signal.pthread_sigmask(signal.SIG_BLOCK, ()),
            dict(os.environ),
            os.getcwd(),
            threading.excepthook,
        ]

    before = look()
    for num_workers in (0, 2):
        list(open_loader(pattern, num_workers=num_workers))
    assert look() == before
