"""Under each start method: errors, breaks, a second iterator, and a program that stays as it was."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from shardmix import MixLoader, ParseError, ShardDataset
from tests.runtime.leftovers import processes_of_session, wait_for_none
from tests.runtime.loading import FEATURES, IDS, FailingDataset, Squares, ids_of, plain, write_corpus

ROOT = Path(__file__).parents[2]

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.once]

every_start_method = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("methods") / "corpus")


def open_loader(pattern: str, method: str | None, **settings: Any) -> MixLoader:
    dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32)
    return MixLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=method, **settings)


@every_start_method
def test_a_worker_that_raises_is_heard_and_works_on(pattern: str, method: str) -> None:
    dataset = FailingDataset(pattern, shuffle=False)
    loader = MixLoader(dataset, batch_size=4, num_workers=1, multiprocessing_context=method, persistent_workers=True)
    pids = set()
    for _ in range(2):
        iterator = iter(loader)
        next(iterator)
        pids |= {worker.pid for worker in loader._keeper.workers._inner.processes._workers}  # type: ignore[union-attr]
        with pytest.raises(ParseError, match="is odd"):
            list(iterator)
    assert len(pids) == 1
    del iterator, loader


@every_start_method
def test_two_live_iterators_are_two_whole_passes(pattern: str, method: str) -> None:
    loader = open_loader(pattern, method, persistent_workers=True)
    first, second = iter(loader), iter(loader)
    pairs = list(zip(first, second, strict=True))
    epochs = [list(batches) for batches in zip(*pairs, strict=True)]
    assert [sorted(ids_of(epoch)) for epoch in epochs] == [IDS, IDS]
    assert plain(epochs[0]) != plain(epochs[1])
    del loader, first, second


@every_start_method
def test_an_exception_in_the_loop_of_the_user_ends_the_pass(pattern: str, method: str) -> None:
    """Even while the exception, whose traceback has the frame of the loop, is kept."""

    def train() -> None:
        for _ in open_loader(pattern, method, repeat=None):
            raise LookupError("of the user")

    with pytest.raises(LookupError, match="of the user") as caught:
        train()
    caught.value.__traceback__ = None


# --- Orphans


class Stuck(Squares):
    """Its first item tells the pid of the worker, and takes longer than anybody waits."""

    path: Path

    def __getitem__(self, i: int) -> Any:
        self.path.write_text(str(os.getpid()))
        time.sleep(1000)


def iterate_stuck(folder: str, method: str) -> None:
    dataset = Stuck(4)
    dataset.path = Path(folder, "pid")
    list(MixLoader(dataset, batch_size=2, num_workers=1, multiprocessing_context=method))


def test_orphans_inside_of_user_code_end(tmp_path: Path) -> None:
    parents, paths = [], []
    for method in ("fork", "spawn", "forkserver"):
        (tmp_path / method).mkdir()
        paths.append(tmp_path / method / "pid")
        call = f"iterate_stuck({str(tmp_path / method)!r}, {method!r})"
        parents.append(start_program(f"from tests.runtime.test_life_methods import iterate_stuck; {call}"))
    wait_for_none(lambda: not all(path.exists() and path.read_text() for path in paths), 60)
    workers = [int(path.read_text()) for path in paths]
    for parent, worker in zip(parents, workers, strict=True):
        assert worker in processes_of_session(parent.pid)
        with parent:
            parent.kill()
    left = wait_for_none(lambda: [pid for parent in parents for pid in processes_of_session(parent.pid)], 60)
    assert left == []


def start_program(code: str) -> subprocess.Popen[str]:
    """A Python program in a session of its own."""
    command = [sys.executable, "-c", code]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    )


# --- What is the program's


@pytest.mark.parametrize("method", [None, "fork", "spawn", "forkserver"])
def test_importing_and_using_the_package_leaves_the_program_as_it_was(pattern: str, method: str | None) -> None:
    command = [sys.executable, "-m", "tests.runtime.untouched", pattern, str(method)]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert result.stderr == ""
    first, *others = json.loads(result.stdout)
    assert first["start method"] is None
    assert len(others) == 4
    for seen in others:
        assert seen == first


def test_the_start_method_can_be_set_after_a_loader_was_used(pattern: str) -> None:
    code = (
        "import multiprocessing\n"
        "from tests.runtime.test_life_methods import open_loader\n"
        f"list(open_loader({pattern!r}, None))\n"
        "multiprocessing.set_start_method('spawn')\n"
        "print(multiprocessing.get_start_method())"
    )
    with start_program(code) as run:
        assert run.stdout is not None
        assert run.stdout.read() == "spawn\n"
