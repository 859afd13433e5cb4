"""Real ranks for tests: processes of a gloo group on this machine, each running one function."""

from __future__ import annotations

import multiprocessing
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

PATIENCE_SECONDS = 120.0  # a hang is a failure, not a wait for ever


def run_ranks(function: Callable[..., Any], world_size: int, folder: Path, *arguments: Any) -> list[Any]:
    """What `function(rank, world_size, join, *arguments)` returns on each rank; it enters the group by `with join():`.

    The environment says nothing of ranks.
    """
    fork = multiprocessing.get_context("fork")
    meeting = folder / f"meeting-{function.__name__}-{world_size}"
    ends, processes = [], []
    for rank in range(world_size):
        receiving, sending = fork.Pipe(duplex=False)
        process = fork.Process(target=_run_rank, args=(function, rank, world_size, meeting, sending, arguments))
        process.start()
        sending.close()
        ends.append(receiving)
        processes.append(process)
    try:
        return [_receive(rank, end) for rank, end in enumerate(ends)]
    finally:
        for process, end in zip(processes, ends, strict=True):
            end.close()
            process.join(10)
            process.kill()
            process.join()
            process.close()


def _receive(rank: int, end: Connection) -> Any:
    if not end.poll(PATIENCE_SECONDS):
        raise TimeoutError(f"rank {rank} hangs")
    result, error = end.recv()
    if error is not None:
        raise AssertionError(f"rank {rank}: {error}")
    return result


def _run_rank(
    function: Callable[..., Any], rank: int, world_size: int, meeting: Path, sending: Connection, arguments: tuple[Any, ...]
) -> None:
    torch.set_num_threads(1)

    @contextmanager
    def join() -> Iterator[None]:
        dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=world_size)
        try:
            yield
            dist.barrier()
        finally:
            dist.destroy_process_group()

    try:
        sending.send((function(rank, world_size, join, *arguments), None))
    except BaseException:
        sending.send((None, traceback.format_exc()))
