"""Loaders come and go: breaks, deaths, many in turn; processes, descriptors, threads, files and memory stay as they were."""

from __future__ import annotations

import gc
import multiprocessing
import os
import random
import signal
import tempfile
import threading
import weakref
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmix import MixLoader, ShardDataset
from shardmix.runtime.passes import ThreadMixer
from tests.runtime.leftovers import descriptors, open_since, temporary_files
from tests.runtime.loading import FEATURES, IDS, Squares, ids_of, plain, write_corpus

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.once]


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("life") / "corpus")


def open_loader(pattern: str, **settings: Any) -> MixLoader:
    dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32)
    return MixLoader(dataset, **{"batch_size": 4, "num_workers": 2, **settings})


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
    assert temporary_files(folder) == []


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


class Open:
    """Stands for what a pass has open."""


def test_an_error_that_nobody_takes_keeps_nothing_open() -> None:
    """Not even until the garbage collector comes."""
    opened: list[weakref.ref[Open]] = []

    def fail() -> Any:
        held = Open()
        opened.append(weakref.ref(held))
        yield from ()
        raise LookupError("of a pass that is closed before its batch is due")

    gc.disable()
    try:
        mixer = ThreadMixer(fail(), release=list, hurry=list)  # type: ignore[arg-type]
        mixer._thread.join()
        assert opened[0]() is not None
        mixer.close()
        assert mixer.get() is None
        del mixer
        assert opened[0]() is None
    finally:
        gc.enable()


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
