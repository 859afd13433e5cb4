"""The worker processes: what they die of is told, and they end whatever they were at."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from multiprocessing import active_children, forkserver
from pathlib import Path
from typing import Any

import pytest

from shardmix import MixLoader
from tests.runtime.leftovers import wait_for_none
from tests.runtime.loading import Squares

pytestmark = [pytest.mark.usefixtures("nothing_left"), pytest.mark.once]


class DyingWithTheLock(Squares):
    """Once its items are given, the worker takes every lock that it shares with the main process when it ends, and is killed."""

    def __getitem__(self, i: int) -> Any:
        if i == self.num_items - 1:
            frame: Any = sys._getframe()
            while "done_event" not in frame.f_locals:
                frame = frame.f_back
            threading.Thread(target=self.die, args=(frame.f_locals["done_event"],), daemon=True).start()
        return super().__getitem__(i)

    def die(self, event: Any) -> None:
        time.sleep(0.3)
        lock = getattr(event, "_cond", None)  # of torch's event
        if lock is not None:
            lock.acquire()
        os.kill(os.getpid(), signal.SIGKILL)


def test_processes_end_when_one_died_with_a_lock() -> None:
    loader = MixLoader(DyingWithTheLock(4), batch_size=2, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == 2
    workers = loader._keeper.workers
    assert workers is not None
    for process in active_children():
        process.join()
    closing = threading.Thread(target=workers.close, daemon=True)
    closing.start()
    closing.join(20)
    assert not closing.is_alive()


class Large(Squares):
    """More than a pipe holds."""

    def __init__(self, num_items: int) -> None:
        super().__init__(num_items)
        self.ballast = bytes(1 << 20)


def test_a_worker_that_dies_as_it_is_started_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Under forkserver the process is there before it is sent its arguments."""
    connect = forkserver.connect_to_new_process

    def connect_and_kill(descriptors: list[int]) -> tuple[int, int]:
        told, data = connect(descriptors)
        victim = forkserver.read_signed(told)
        os.kill(victim, signal.SIGKILL)
        time.sleep(0.2)
        return told, data

    list(MixLoader(Squares(2), batch_size=2, num_workers=1, multiprocessing_context="forkserver"))
    with monkeypatch.context() as patch:
        patch.setattr(forkserver, "connect_to_new_process", connect_and_kill)
        with pytest.raises(RuntimeError, match="worker 0 died while it was started") as caught:
            list(MixLoader(Large(2), batch_size=2, num_workers=1, multiprocessing_context="forkserver"))
        assert isinstance(caught.value.__cause__, BrokenPipeError)


def test_workers_end_with_their_fork_server_and_the_next_start_is_clean() -> None:
    loader = MixLoader(Squares(1000), batch_size=2, num_workers=1, multiprocessing_context="forkserver")
    iterator = iter(loader)
    next(iterator)
    worker = active_children()[0].pid
    server: Any = forkserver._forkserver
    os.kill(server._forkserver_pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match=rf"worker 0 \(pid {worker}\) exited with code 255, loading "):
        list(iterator)
    assert not wait_for_none(lambda: Path(f"/proc/{worker}").exists(), 30)
    assert len(list(loader)) == 500


def note_mask(folder: Path) -> None:
    signal.raise_signal(signal.SIGINT)
    (folder / str(os.getpid())).write_text(str(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


class Noting(Squares):
    """Notes in its worker which signals are held back, after it was interrupted."""

    folder: Path

    def __getitem__(self, i: int) -> Any:
        note_mask(self.folder)
        return super().__getitem__(i)


def test_workers_hold_no_signal_back_from_what_they_start(tmp_path: Path) -> None:
    dataset = Noting(2)
    dataset.folder = tmp_path
    list(MixLoader(dataset, batch_size=2, num_workers=1))
    assert [path.read_text() for path in tmp_path.iterdir()] == ["set()"]
