"""The Python blocks of README and docs/ run: each document is one program, run from top to bottom beside a small corpus.

A block that cannot run where the tests run is fenced as something other than `python`.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shardmix

ROOT = Path(__file__).parents[1]

def _program(document: Path) -> str:
    """The Python blocks of a document, each line on the line where the document has it: a traceback names the right one."""
    lines, is_code = [], False
    for line in document.read_text(encoding="utf-8").splitlines():
        is_fence = line.startswith("```")
        lines.append(line if is_code and not is_fence else "")
        if is_fence:
            is_code = line == "```python"
    return "\n".join(lines)


DOCUMENTS = [path for path in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))) if _program(path).strip()]


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents assume to be there: corpus/ with images and labels, lines/ with JSON."""
    folder = tmp_path_factory.mktemp("documents")
    image = np.zeros((28, 28), np.uint8).tobytes()
    for name, num_shards, num_records in (("train", 4, 600), ("valid", 2, 60)):
        with shardmix.ShardWriter(folder / "corpus" / (name + "-{:05d}.tfrecord"), num_shards=num_shards) as writer:
            for i in range(num_records):
                writer.write({"image": image, "label": i % 10})
    with shardmix.ShardWriter(folder / "lines" / "part-{:05d}.tfrecord", num_shards=2) as writer:
        for i in range(40):
            writer.write(json.dumps({"number": i, "text": "x" * i}).encode())
    return folder


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_the_python_blocks_run(document: Path, workplace: Path, run_script: Any) -> None:
    script = workplace / f"{document.stem}.py"
    script.write_text(_program(document), encoding="utf-8")
    result = run_script(script, workplace)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""
