"""What README and docs/ show runs: each document beside a small corpus, from top to bottom.

    ```python     the blocks of a document are one program; it says nothing on stderr
    ```console    `$ shardmix …`, and what it prints, where `…` stands for anything; `# exit code 1` where it is not 0
    ```py         needs what the tests do not have (TensorFlow, say): it compiles
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import shardmix
from shardmix.runtime import needs

ROOT = Path(__file__).parents[1]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


class Shown(NamedTuple):
    """A command and the text below it."""

    line: int
    command: str
    printed: str


def _fenced(document: Path, language: str) -> str:
    """The blocks of one language, each line on the line where the document has it: a traceback names the right one."""
    lines, is_inside = [], False
    for line in document.read_text(encoding="utf-8").splitlines():
        is_fence = line.startswith("```")
        lines.append(line if is_inside and not is_fence else "")
        if is_fence:
            is_inside = line == f"```{language}"
    return "\n".join(lines)


def _commands(document: Path) -> Iterator[Shown]:
    for found in re.finditer(r"^\$ (.*)$((?:\n(?!\$ ).*)*)", _fenced(document, "console"), re.MULTILINE):
        yield Shown(found.string.count("\n", 0, found.start()) + 1, found[1], found[2].strip("\n"))


def _name(document: Path) -> str:
    return str(document.relative_to(ROOT))


def _png(pixels: np.ndarray) -> bytes:
    """A PNG file of (height, width, 3) uint8."""
    height, width, _ = pixels.shape
    rows = np.insert(pixels.reshape(height, -1), 0, 0, axis=1).tobytes()

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + header + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b"")


def _write_corpora(folder: Path) -> None:
    """corpus/ with images and labels, lines/ with JSON, photos/ with PNG images sorted by label, damaged/ with one bad byte."""
    image = np.zeros((28, 28), np.uint8).tobytes()
    for name, num_shards, num_records in (("train", 4, 600), ("valid", 2, 60)):
        with shardmix.ShardWriter(folder / "corpus" / (name + "-{:05d}.tfrecord"), num_shards=num_shards) as writer:
            for i in range(num_records):
                writer.write({"image": image, "label": i % 10})
    with shardmix.ShardWriter(folder / "lines" / "part-{:05d}.tfrecord", num_shards=2) as writer:
        for i in range(40):
            writer.write(json.dumps({"number": i, "text": "x" * i}).encode())
    rng = np.random.default_rng(0)
    with shardmix.ShardWriter(folder / "photos" / "part", max_shard_records=250) as writer:
        for i in range(2000):
            label = i // 50
            photo = _png(np.clip(rng.normal(6 * label, 20, (8, 8, 3)), 0, 255).astype(np.uint8))
            boxes = rng.random(4 * (i % 3)).astype(np.float32)
            writer.write({"image/encoded": photo, "label": label, "caption": f"photo {i}", "boxes": boxes})
    shutil.rmtree(folder / "damaged", ignore_errors=True)
    shutil.copytree(folder / "lines", folder / "damaged")
    with open(folder / "damaged" / "part-00001.tfrecord", "r+b") as file:
        file.seek(20)
        file.write(b"?")


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the documents assume to be there."""
    folder = tmp_path_factory.mktemp("documents")
    _write_corpora(folder)
    return folder


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if _fenced(path, "python").strip()], ids=_name)
def test_the_python_blocks_run(document: Path, workplace: Path, run_script: Any) -> None:
    script = workplace / f"{document.stem}.py"
    script.write_text(_fenced(document, "python"), encoding="utf-8")
    result = run_script(script, workplace)
    assert result.returncode == 0, result.stderr
    assert result.stderr == ""


@pytest.mark.parametrize("document", [path for path in DOCUMENTS if _fenced(path, "py").strip()], ids=_name)
def test_the_blocks_for_other_packages_compile(document: Path) -> None:
    compile(_fenced(document, "py"), str(document), "exec")


@pytest.mark.once
def test_the_memory_formula_is_that_of_the_code() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    lane, most = needs.LANE_BYTES >> 20, needs.MAX_CHUNK_BYTES >> 20
    assert f"{lane} MiB for each of its lanes if that is more, {most} MiB at most" in readme
    assert f"{needs.BATCHES_IN_MEMORY} · bytes of a batch" in readme
    assert f"2 · num_workers · {needs.READ_SLACK_BYTES >> 20} MiB at most" in readme


@pytest.mark.once
@pytest.mark.parametrize("document", [path for path in DOCUMENTS if _fenced(path, "console").strip()], ids=_name)
def test_the_commands_print_what_is_shown(document: Path, workplace: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "COLUMNS": "80"}
    for shown in _commands(document):
        name, *arguments = shlex.split(shown.command, comments=True)
        assert name == "shardmix", f"{document.name}:{shown.line}: only shardmix commands are run"
        code = int((re.findall(r"# exit code (\d)", shown.command) or ["0"])[0])
        command = [sys.executable, "-m", "shardmix", *arguments]
        result = subprocess.run(command, cwd=workplace, env=environment, capture_output=True, text=True)
        assert result.returncode == code, f"{document.name}:{shown.line}: {result.stdout}{result.stderr}"
        expected = ".*".join(map(re.escape, shown.printed.split("…")))
        printed = result.stdout.rstrip() if code == 0 else (result.stdout + result.stderr).rstrip()
        assert re.fullmatch(expected, printed, re.DOTALL), f"{document.name}:{shown.line}: {printed}"
