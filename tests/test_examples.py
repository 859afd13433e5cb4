"""Each example runs, says nothing on stderr, and prints what its docstring says it prints."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
# tests/test_demo.py; tests/runtime/test_frameworks.py, on two ranks
ELSEWHERE = {"demo.py", "torchrun_training.py", "lightning_training.py", "accelerate_training.py"}
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name not in ELSEWHERE)


def test_there_are_examples() -> None:
    assert EXAMPLES != []


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_example_prints_what_it_says(path: Path, tmp_path: Path, run_script: Any) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
    _, found, expected = docstring.partition("Prints\n\n")
    assert found, f"{path.name}: its docstring ends without saying what it prints"
    result = run_script(path, tmp_path)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
    assert result.stdout.rstrip() == textwrap.dedent(expected).rstrip()
    assert list(tmp_path.iterdir()) == []
