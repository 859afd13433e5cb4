"""Workers and whole programs are killed at random moments: the death is told, nothing is left, and the next start is clean.

SHARDMIX_KILLS: how many of each kind, 5 if it is not set, so that each moment comes once; 50 take a quarter of an hour.
SHARDMIX_SEED: of the moments, 1 if it is not set. The programs: kill_workers.py, kill_parents.py.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.leftovers import short_folder, temporary_files
from tests.runtime.loading import write_corpus

ROOT = Path(__file__).parents[2]
KILLS = int(os.environ.get("SHARDMIX_KILLS", "5"))
SEED = os.environ.get("SHARDMIX_SEED", "1")

pytestmark = pytest.mark.once

every_start_method = pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
every_kind_of_worker = pytest.mark.parametrize("workers", ["fresh", "persistent"])


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return write_corpus(tmp_path_factory.mktemp("kills") / "corpus")


def run_kills(kind: str, *arguments: str) -> Any:
    """The report of a series; fails with what it says."""
    with short_folder() as folder:
        temporary = folder / "tmp"
        temporary.mkdir()
        command = [sys.executable, "-m", f"tests.runtime.kill_{kind}", *arguments, str(folder)]
        environment = {**os.environ, "TMPDIR": str(temporary)}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
        assert result.returncode == 0, result.stderr
        sys.stdout.write(f"{kind}, {arguments[0]}, {arguments[1]}: {result.stdout}")  # shown by pytest -rP
        assert temporary_files(temporary) == []
    return json.loads(result.stdout)


@every_kind_of_worker
@every_start_method
def test_a_killed_worker_is_named_and_nothing_is_left_of_it(pattern: str, method: str, workers: str) -> None:
    report = run_kills("workers", method, workers, str(KILLS), SEED, pattern)
    assert report["tried"] == KILLS
    assert report["hit"] > KILLS / 2  # one that ends as it is to be killed is not hit


@every_kind_of_worker
@every_start_method
def test_nothing_is_left_of_a_killed_program(pattern: str, method: str, workers: str) -> None:
    report = run_kills("parents", method, workers, str(KILLS), SEED, pattern)
    assert report["tried"] == KILLS
