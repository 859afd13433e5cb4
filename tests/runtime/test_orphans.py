"""A worker knows its parent, even one that is gone before it looks."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from multiprocessing.connection import Connection

import pytest

from shardmix.runtime.orphans import ParentWatch


def look_late(told: Connection) -> None:
    """A worker that begins to look when its parent has been killed."""
    told.send(os.getpid())
    while os.getppid() != 1 and multiprocessing.parent_process().is_alive():  # type: ignore[union-attr]
        time.sleep(0.01)
    told.send(ParentWatch().is_alive())


def start_and_wait(told: Connection) -> None:
    multiprocessing.get_context("fork").Process(target=look_late, args=(told,)).start()
    time.sleep(60)


def test_a_parent_that_died_before_is_seen_to_be_dead() -> None:
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe()
    parent = context.Process(target=start_and_wait, args=(theirs,))
    parent.start()
    assert ours.recv() > 0
    os.kill(parent.pid or 0, signal.SIGKILL)
    parent.join()
    assert ours.poll(20)
    assert ours.recv() is False


def look_now(told: Connection) -> None:
    told.send(ParentWatch().is_alive())


@pytest.mark.parametrize("method", ["fork", "forkserver"])
def test_a_living_parent_is_seen_to_live(method: str) -> None:
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe()
    process = context.Process(target=look_now, args=(theirs,))
    process.start()
    assert ours.recv() is True
    process.join()


def test_it_is_for_worker_processes_only() -> None:
    with pytest.raises(RuntimeError, match="multiprocessing"):
        ParentWatch()
