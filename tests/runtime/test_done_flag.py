"""Workers are told to end without a lock, and a spawned one ends at once, after what it has registered."""

from __future__ import annotations

import atexit
import multiprocessing
import sys
from pathlib import Path

import pytest

from shardmix.runtime.done_flag import DoneFlag


def test_it_is_seen_by_a_process_that_runs() -> None:
    flag = DoneFlag()
    assert not flag.is_set()
    process = multiprocessing.get_context("fork").Process(target=wait_for, args=(flag,))
    process.start()
    flag.set()
    process.join(20)
    assert process.exitcode == 0
    assert flag.is_set()


def wait_for(flag: DoneFlag) -> None:
    while not flag.is_set():
        pass


def see(flag: DoneFlag, path: Path, is_told: bool) -> None:
    """A worker with something to do at its end, before and after it is told of it."""
    atexit.register(write, path, "first\n")
    atexit.register(sys.stdout.write, "")
    if is_told:
        flag.is_set()
    sys.stdout = path.with_suffix(".out").open("w")
    sys.stdout.write("flushed")


def write(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("is_told", [False, True])
def test_a_spawned_worker_does_what_it_has_registered(tmp_path: Path, is_told: bool) -> None:
    flag = DoneFlag()
    flag.set()
    process = multiprocessing.get_context("spawn").Process(target=see, args=(flag, tmp_path / "end", is_told))
    process.start()
    process.join()
    assert process.exitcode == 0
    assert (tmp_path / "end").read_text() == "first\n"
    assert (tmp_path / "end.out").read_text() == "flushed"


def test_the_process_that_sets_it_goes_on() -> None:
    flag = DoneFlag()
    flag.set()
    assert flag.is_set()
    assert not flag._ends_here
