"""The examples under torchrun, Lightning and Accelerate, with the real packages, on two gloo ranks; they print what they say."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2")

pytestmark = pytest.mark.once


def run_example(name: str, folder: Path, *launcher: str) -> tuple[str, str]:
    """What an example printed, and what its docstring says that it prints."""
    path = ROOT / "examples" / name
    environment = {name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")}
    environment |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TMPDIR": str(folder)}
    command = [sys.executable, *launcher, str(path)]
    result = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    return result.stdout.strip(), textwrap.dedent(docstring.partition("Prints\n\n")[2]).strip()


def test_torchrun_trains_and_resumes_in_mid_epoch(tmp_path: Path) -> None:
    printed, said = run_example("torchrun_training.py", tmp_path, *TORCHRUN)
    assert printed == said


def test_lightning_fits_validates_predicts_and_resumes_in_mid_epoch(tmp_path: Path) -> None:
    pytest.importorskip("lightning")
    printed, said = run_example("lightning_training.py", tmp_path)
    assert printed == said


def test_accelerate_accumulates_gathers_and_restores(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    printed, said = run_example("accelerate_training.py", tmp_path, *TORCHRUN)
    assert printed == said
