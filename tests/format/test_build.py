"""SHARDMIX_BUILD_C: what a build does with a compiler that fails, and when it is told not to try. (With one that works:
tests/test_dist.py.)"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CSRC = Path("shardmix", "format", "csrc")

pytestmark = [pytest.mark.once, pytest.mark.skipif(sys.platform == "win32", reason="CC is not what chooses the compiler there")]


def build(tree: Path, switch: str | None) -> subprocess.CompletedProcess[str]:
    """Build in a copy of setup.py and the C sources, by a compiler that fails."""
    shutil.copytree(ROOT / CSRC, tree / CSRC)
    shutil.copy(ROOT / "setup.py", tree)
    environment = {name: value for name, value in os.environ.items() if name != "SHARDMIX_BUILD_C"}
    environment |= {"CC": "false"} | ({} if switch is None else {"SHARDMIX_BUILD_C": switch})
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    return subprocess.run(command, cwd=tree, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def test_unset_goes_on_without_the_extension_and_says_so(tmp_path: Path) -> None:
    result = build(tmp_path, None)
    assert result.returncode == 0, result.stdout
    assert 'building extension "shardmix.format._core" failed' in result.stdout
    assert not list(tmp_path.rglob("*.so"))


def test_yes_makes_a_failure_fatal(tmp_path: Path) -> None:
    result = build(tmp_path, "yes")
    assert result.returncode != 0
    assert "building 'shardmix.format._core' extension\nfalse " in result.stdout


def test_no_does_not_try(tmp_path: Path) -> None:
    result = build(tmp_path, "no")
    assert result.returncode == 0, result.stdout
    assert "false" not in result.stdout
    assert "failed" not in result.stdout


def test_another_value_is_refused(tmp_path: Path) -> None:
    result = build(tmp_path, "maybe")
    assert result.returncode != 0
    assert "SHARDMIX_BUILD_C is 'maybe'; it is yes, no, or not set" in result.stdout
