"""However a program ends with a loader at work: promptly, in silence, and nothing is left. (The programs: endings.py.)"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.endings import ENDINGS
from tests.runtime.loading import write_corpus

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.once

SILENT = [ending.__name__ for ending in ENDINGS if "exception" not in ending.__name__ and "control_c" not in ending.__name__]


@pytest.fixture(scope="module")
def endings(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """(what the endings reported, the folder of what they printed)."""
    folder = tmp_path_factory.mktemp("endings")
    pattern = write_corpus(folder / "corpus")
    temporary = folder / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "tests.runtime.endings", pattern, str(folder)]
    environment = {**os.environ, "TMPDIR": str(temporary)}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    assert result.stderr == ""
    return json.loads(result.stdout), folder


def printed(folder: Path, name: str) -> str:
    return (folder / f"{name}.out").read_text() + (folder / f"{name}.err").read_text()


@pytest.mark.parametrize("name", SILENT)
def test_an_ordinary_end_is_silent(endings: tuple[Any, Path], name: str) -> None:
    report, folder = endings
    assert printed(folder, name) == ""
    assert report[name]["code"] == 0


def test_an_exception_is_the_only_thing_printed(endings: tuple[Any, Path]) -> None:
    report, folder = endings
    text = printed(folder, "end_with_an_exception")
    assert text.count("Traceback") == 1
    assert text.endswith("LookupError: the end\n")
    assert report["end_with_an_exception"]["code"] == 1


@pytest.mark.parametrize("name", ["end_by_control_c", "end_by_control_c_while_waiting"])
def test_control_c_ends_the_program_and_no_worker_says_a_word(endings: tuple[Any, Path], name: str) -> None:
    report, folder = endings
    text = printed(folder, name)
    assert text.count("Traceback") == 1
    assert text.rstrip().endswith("KeyboardInterrupt")
    assert report[name]["code"] == -2


@pytest.mark.parametrize("ending", ENDINGS)
def test_nothing_is_left_and_the_end_comes_soon(endings: tuple[Any, Path], ending: Any) -> None:
    report, folder = endings
    assert report[ending.__name__]["left"] == []
    assert report[ending.__name__]["seconds"] < 10  # torch would wait 5 s for each worker that does not answer, and then kill it
    assert [path.name for path in (folder / "tmp").iterdir() if not path.name.startswith("shardmix-")] == []  # but its locks
