"""Programs that fork by themselves, and workers that give up their rights: nobody ends or changes what is another's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from shardmix import MixLoader, ShardDataset
from tests.runtime.loading import FEATURES, IDS, ids_of, plain, write_corpus

pytestmark = [
    pytest.mark.usefixtures("nothing_left"),
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

WORKERS = pytest.mark.parametrize(("num_workers", "persistent"), [(0, False), (2, False), (2, True)])


@pytest.fixture
def pattern(tmp_path: Path) -> str:
    return write_corpus(tmp_path / "corpus")


def make_loader(pattern: str, num_workers: int, persistent: bool) -> MixLoader:
    dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32)
    return MixLoader(dataset, 4, num_workers=num_workers, persistent_workers=persistent)


def in_a_child(work: Callable[[], Any]) -> int:
    """The exit code of a forked process that does the work, and ends as Python programs do."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            sys.stdout.flush()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


@WORKERS
def test_a_forked_child_that_iterates_writes_into_no_batch_of_its_parent(
    pattern: str, num_workers: int, persistent: bool
) -> None:
    loader = make_loader(pattern, num_workers, persistent)
    held = list(loader)
    expected = [plain(batch) for batch in held]

    def iterate() -> None:
        held.clear()
        for _ in range(2):
            assert sorted(ids_of(loader)) == IDS

    assert in_a_child(iterate) == 0
    assert [plain(batch) for batch in held] == expected
    assert sorted(ids_of(loader)) == IDS


@WORKERS
def test_a_forked_child_that_drops_its_copy_ends_no_pass_of_its_parent(
    pattern: str, num_workers: int, persistent: bool
) -> None:
    loader = make_loader(pattern, num_workers, persistent)
    iterator: list[Any] = [iter(loader)]
    batches = [next(iterator[0]) for _ in range(3)]

    def drop() -> None:
        iterator.clear()
        loader._keeper.workers = None

    assert in_a_child(drop) == 0
    batches += iterator[0]
    assert sorted(ids_of(batches)) == IDS
    iterator.clear()


def nobody(worker: int) -> None:
    os.setuid(65534)


@pytest.mark.skipif(not hasattr(os, "geteuid") or os.geteuid() != 0, reason="only root can become another")
def test_workers_that_give_up_their_rights_send_their_rows_another_way(tmp_path: Path) -> None:
    folder = Path("/tmp") / f"shardmix-test-{os.getpid()}"  # pytest's own folders are closed to others
    try:
        pattern = write_corpus(folder)
        dataset = ShardDataset(pattern, features=FEATURES, shuffle_buffer_size=32)
        expected = [plain(batch) for batch in MixLoader(dataset, 4)]
        dataset.set_epoch(0)
        loader = MixLoader(dataset, 4, num_workers=2, worker_init_fn=nobody, multiprocessing_context="fork")
        assert [plain(batch) for batch in loader] == expected
    finally:
        for path in [*folder.iterdir()]:
            path.unlink()
        folder.rmdir()


def test_a_batch_kept_over_a_fork_is_whole_in_both(pattern: str) -> None:
    loader = make_loader(pattern, 2, persistent=False)
    batch = next(iter(loader))
    expected = plain(batch)
    assert in_a_child(lambda: torch.testing.assert_close(plain(batch)["id"][1], expected["id"][1])) == 0
    assert plain(batch) == expected
