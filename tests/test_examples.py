"""Each example runs, says nothing on stderr, and prints what its docstring says it prints."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[1]
EXAMPLES = sorted(path for path in (ROOT / "examples").glob("*.py") if path.name != "demo.py")  # tests/test_demo.py


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
