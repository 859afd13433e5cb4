"""However a program ends with a loader at work: promptly, in silence, and nothing is left. (The programs: endings.py.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock

from tests.runtime.endings import ENDINGS
from tests.runtime.leftovers import short_folder, temporary_files
from tests.runtime.loading import write_corpus

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.once

NAMES = [ending.__name__ for ending in ENDINGS]
INTERRUPTED = [name for name in NAMES if "control_c" in name]
FAILED = [name for name in NAMES if "exception" in name]
SILENT = [name for name in NAMES if name not in (*INTERRUPTED, *FAILED)]


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """(what the endings reported, the folder of what they printed); run once for all processes of pytest-xdist."""
    root = tmp_path_factory.getbasetemp()
    folder = (root.parent if "PYTEST_XDIST_WORKER" in os.environ else root) / "endings"
    with FileLock(f"{folder}.lock"):
        if not folder.exists():
            run_endings(folder)
    return json.loads((folder / "report.json").read_text()), folder


def run_endings(folder: Path) -> None:
    folder.mkdir()
    command = [sys.executable, "-m", "tests.runtime.endings", write_corpus(folder / "corpus"), str(folder)]
    with short_folder() as temporary:
        environment = {**os.environ, "TMPDIR": str(temporary)}
        result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
        assert result.stderr == ""
        assert temporary_files(temporary) == []
    (folder / "report.json").write_text(result.stdout)


def printed(folder: Path, name: str) -> str:
    return (folder / f"{name}.out").read_text() + (folder / f"{name}.err").read_text()


@pytest.mark.parametrize("name", SILENT)
def test_an_ordinary_end_is_silent(endings: tuple[Any, Path], name: str) -> None:
    report, folder = endings
    assert printed(folder, name) == ""
    assert report[name]["code"] == 0


@pytest.mark.parametrize("name", FAILED)
def test_an_exception_is_the_only_thing_printed(endings: tuple[Any, Path], name: str) -> None:
    report, folder = endings
    text = printed(folder, name)
    assert text.count("Traceback") == 1
    assert text.endswith("LookupError: the end\n")
    assert report[name]["code"] == 1


@pytest.mark.parametrize("name", INTERRUPTED)
def test_control_c_ends_the_program_and_no_worker_says_a_word(endings: tuple[Any, Path], name: str) -> None:
    report, folder = endings
    text = printed(folder, name)
    assert text.count("Traceback") == 1
    assert text.rstrip().endswith("KeyboardInterrupt")
    assert report[name]["code"] == -2


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_left_and_the_end_comes_soon(endings: tuple[Any, Path], name: str) -> None:
    report, _ = endings
    assert report[name]["left"] == []
    assert report[name]["seconds"] < 10  # torch would wait 5 s for each worker that does not answer, and then kill it
