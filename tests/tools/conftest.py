"""A command line to call, and folders as users have them."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from shardmix.tools import main
from tests.conftest import ROOT


class Ran(NamedTuple):
    """What a command did."""

    code: int
    out: str
    err: str

    @property
    def data(self) -> Any:
        return json.loads(self.out)


@pytest.fixture
def shardmix(capsys: pytest.CaptureFixture[str]) -> Callable[..., Ran]:
    """shardmix("info", path, "--json") runs the command in this process."""

    def run(*arguments: Any) -> Ran:
        capsys.readouterr()
        code = main.run([str(argument) for argument in arguments])
        return Ran(code, *capsys.readouterr())

    return run


@pytest.fixture
def run_as_nobody() -> Callable[..., subprocess.CompletedProcess[str]]:
    """run_as_nobody("info", path) runs it in a process that has given up root's right to read every file."""

    def run(*arguments: Any) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-W", "error", "-m", "tests.tools.as_nobody", *map(str, arguments)]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT)

    return run


@pytest.fixture
def golden(golden_dir: Path, tmp_path: Path) -> Path:
    """A copy of the golden files, without indexes."""
    return _copy(golden_dir, tmp_path / "golden")


@pytest.fixture
def realdata(realdata_dir: Path, tmp_path: Path) -> Path:
    """A copy of the real files, without indexes."""
    return _copy(realdata_dir, tmp_path / "realdata")


def _copy(source: Path, target: Path) -> Path:
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".index*"))
    for path in [target, *target.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return target


@pytest.fixture
def mixed_folder(tmp_path: Path, golden: Path) -> Path:
    """Two shards, an empty file, a JPEG, a text file and a file that nobody but root can read; as somebody unpacked them."""
    folder = tmp_path / "mixed"
    folder.mkdir()
    for name in ("uneven-00000-of-00005", "uneven-00003-of-00005"):
        shutil.copy(golden / name, folder / name)
    (folder / "empty").touch()
    (folder / "photo.jpg").write_bytes(b"\xff\xd8\xff\xe0\x00\x10JFIF\x00" + bytes(range(256)) * 4)
    (folder / "notes.txt").write_text("these are my records\n")
    shutil.copy(golden / "uneven-00004-of-00005", folder / "secret")
    (folder / "secret").chmod(0)
    return folder
