"""What the tests share: reference data, small corpora, and a look at what a test left behind.

What TensorFlow wrote is in tests/golden. Larger reference data lies beside the repository, in ../shared (see its README
files); tests that need it are skipped where it is absent.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

ROOT = Path(__file__).parents[1]
SHARED = ROOT.parent / "shared"
GOLDEN = Path(__file__).parent / "golden"

# No test is timed: machines differ, and tests share them. CI draws the same examples each time.
settings.register_profile("suite", deadline=None, derandomize="CI" in os.environ)
settings.load_profile("suite")


def _shared_folder(name: str) -> Path:
    folder = SHARED / name
    if not folder.is_dir():
        pytest.skip(f"reference data ../shared/{name} is not there")
    return folder


@pytest.fixture(scope="session", autouse=True)
def _reachable_temporary_folders(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Let tests that become another user reach their folder: those of pytest, and of each xdist worker in it, are private."""
    folder = tmp_path_factory.getbasetemp()
    while folder.parent != folder and folder.stat().st_uid == os.getuid() and folder.stat().st_mode & 0o777 == 0o700:
        folder.chmod(0o755)
        folder = folder.parent


@pytest.fixture(scope="session")
def golden_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files that TensorFlow wrote, with the expected values beside them: a copy, as an index is left beside what is opened."""
    folder = tmp_path_factory.mktemp("reference") / "golden"
    shutil.copytree(GOLDEN, folder)
    return folder


@pytest.fixture(scope="session")
def realdata_dir() -> Path:
    """Files of public projects, with manifest.json."""
    return _shared_folder("realdata")


@pytest.fixture(scope="session")
def manifest(realdata_dir: Path) -> Any:
    """The manifest of the real files: counts and digests."""
    return json.loads((realdata_dir / "manifest.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def order_model() -> Any:
    """The slow, plain model of the order: the oracle for order/."""
    if not (SHARED / "order_model.py").is_file():
        pytest.skip("the model ../shared/order_model.py is not there")
    sys.path.insert(0, str(SHARED))
    try:
        import order_model
    finally:
        sys.path.remove(str(SHARED))
    return order_model


@pytest.fixture(scope="session")
def run_script() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run_script(path, cwd) runs a program as a user would, warnings being errors."""
    quiet = ("-W", "error", "-W", "ignore:This DataLoader will create:UserWarning")  # as in pyproject.toml

    def run(script: Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run([sys.executable, *quiet, script], cwd=cwd, env=environment, capture_output=True, text=True)

    return run


@pytest.fixture
def make_corpus(tmp_path: Path) -> Callable[..., str]:
    """make_corpus([3, 0, 2]) writes shards of so many Examples and returns their pattern; feature `id` is shard * 1000 + record.

    `compression_type` as in ShardWriter.
    """
    from shardmix import ShardWriter

    def write(counts: list[int], *, compression_type: str | None = None, name: str = "corpus") -> str:
        folder = tmp_path / name
        folder.mkdir()
        for shard, count in enumerate(counts):
            path = folder / f"{shard:05d}-{{}}.tfrecord"
            with ShardWriter(path, num_shards=1, compression_type=compression_type) as writer:
                for record in range(count):
                    writer.write({"id": shard * 1000 + record})
        return str(folder / "*.tfrecord")

    return write


# --- What a test left behind -------------------------------------------------------------------------------------------------
#
# A test that starts processes, threads or opens files ends them. Python's own helpers live as long as the interpreter:
# the resource tracker and the fork server, each started once.

HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver")
PATIENCE_SECONDS = 5.0


def _children() -> set[int]:
    """Processes that this one started, less Python's helpers. Empty where /proc is not."""
    found = {process.pid for process in multiprocessing.active_children() if process.pid is not None}
    for tasks in Path("/proc/self/task").glob("*/children"):
        try:
            found |= {int(pid) for pid in tasks.read_text().split()}
        except OSError:  # the thread has ended
            continue
    return {pid for pid in found if not _is_helper(pid)}


def _is_helper(pid: int) -> bool:
    try:
        command = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(helper in command for helper in HELPERS)


def _threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.is_alive()}


def _shared_memory() -> set[str]:
    """Named shared memory of this process: torch writes the pid into the name."""
    try:
        return {name for name in os.listdir("/dev/shm") if f"_{os.getpid()}_" in name}
    except OSError:
        return set()


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails the test when a process, a thread or named shared memory that it began is there a few seconds later."""
    processes, threads, memory = _children(), _threads(), _shared_memory()
    yield
    end = time.monotonic() + PATIENCE_SECONDS
    while True:
        left = (_children() - processes, _threads() - threads, _shared_memory() - memory)
        if not any(left) or time.monotonic() > end:
            break
        gc.collect()
        time.sleep(0.02)
    assert left == (set(), set(), set()), "processes, threads, shared memory that the test left behind"
