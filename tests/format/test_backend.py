"""Which twin runs: chosen by what was built, and by SHARDMIX_BACKEND."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.once

needs_c = pytest.mark.skipif(find_spec("shardmix.format._core") is None, reason="the C extension was not built")

SHOW = "from shardmix.format import backend as b; print(b.name, b.crc32c.__module__, b.scan_frames.__module__)"
# An import of the extension fails as if it were not there, or does not load.
ABSENT = """
import sys
from importlib.machinery import PathFinder
class Absent(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        return None if name == "shardmix.format._core" else super().find_spec(name, path, target)
sys.meta_path = [Absent if finder is PathFinder else finder for finder in sys.meta_path]
"""
BROKEN = """
import sys
class Broken:
    def find_spec(self, name, path=None, target=None):
        if name == "shardmix.format._core":
            raise ImportError("undefined symbol: PyThing")
sys.meta_path.insert(0, Broken())
"""


def run(program: str, backend: str | None = None) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name != "SHARDMIX_BACKEND"}
    environment |= {"PYTHONPATH": str(ROOT)} | ({} if backend is None else {"SHARDMIX_BACKEND": backend})
    return subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True)


def last_line(program: str, backend: str | None = None) -> str:
    """The error that a program ends with."""
    result = run(program, backend)
    assert result.returncode == 1
    return result.stderr.strip().splitlines()[-1]


@needs_c
@pytest.mark.parametrize("backend", [None, "", "c"])
def test_c_runs_where_it_was_built(backend: str | None) -> None:
    assert run(SHOW, backend).stdout == "c shardmix.format.native shardmix.format.native\n"


def test_python_can_be_forced() -> None:
    assert run(SHOW, "python").stdout == "python shardmix.format.crc32c shardmix.format.framing\n"
    assert run("import shardmix; print(shardmix.backend)", "python").stdout == "python\n"


def test_without_the_extension_python_runs() -> None:
    assert "No module named 'shardmix.format._core'" in run(ABSENT + "import shardmix.format._core").stderr
    assert run(ABSENT + SHOW).stdout == "python shardmix.format.crc32c shardmix.format.framing\n"


def test_forcing_c_without_the_extension_names_the_remedy() -> None:
    assert last_line(ABSENT + SHOW, "c") == (
        "ImportError: SHARDMIX_BACKEND is 'c', and the C extension was not built; install a C compiler and then shardmix with "
        "SHARDMIX_BUILD_C=yes, which shows what is wrong, or set SHARDMIX_BACKEND=python"
    )


def test_an_extension_that_does_not_load_is_no_reason_to_be_slow_in_silence() -> None:
    text = (
        "ImportError: the C extension was built and does not load: undefined symbol: PyThing; "
        "install shardmix again, or set SHARDMIX_BACKEND=python"
    )
    assert last_line(BROKEN + SHOW) == last_line(BROKEN + SHOW, "c") == text
    assert run(BROKEN + SHOW, "python").stdout.startswith("python ")


def test_another_backend_is_refused() -> None:
    assert last_line(SHOW, "rust") == "ValueError: SHARDMIX_BACKEND is 'rust'; it is 'c', 'python', or not set"


@pytest.mark.parametrize("backend", ["python", pytest.param("c", marks=needs_c)])
def test_the_backend_loads_neither_torch_nor_protobuf(backend: str) -> None:
    program = "import sys; from shardmix.format import backend; print({'torch', 'google.protobuf'} & set(sys.modules))"
    assert run(program, backend).stdout == "set()\n"
