"""The sdist and the wheel: built as `make dist` does, installed into another environment, imported there."""

from __future__ import annotations

import os
import shutil
import site
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
BUILT = ("build", "dist", "*.egg-info", "__pycache__", "*.so", ".venv*", ".git", ".*_cache", ".hypothesis")

pytestmark = pytest.mark.once

# Writes two shards, reads them again, loads them; prints which backend did it and where the package was found.
USE = """
import shardmix
with shardmix.ShardWriter("a-{:05d}.tfrecord", num_shards=2) as writer:
    for i in range(5):
        writer.write({"id": i})
dataset = shardmix.ShardDataset("a-*.tfrecord", features={"id": shardmix.FixedLenFeature((), "int64")})
loader = shardmix.MixLoader(dataset, batch_size=2, num_workers=1)
assert sorted(i for batch in loader for i in batch["id"].tolist()) == [0, 1, 2, 3, 4]
print(shardmix.backend, shardmix.__file__)
"""


def _run(*command: str | Path, cwd: Path, build_c: str = "no") -> str:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("SHARDMIX_", "PYTHONPATH"))}
    environment["SHARDMIX_BUILD_C"] = build_c
    result = subprocess.run(command, cwd=cwd, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
    return result.stdout


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist, built from a copy of the tree, so that nothing is left in the tree."""
    tree = tmp_path_factory.mktemp("sdist") / "tree"
    shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(*BUILT))
    _run(sys.executable, "-m", "build", "--no-isolation", "--sdist", "--outdir", "dist", cwd=tree)
    (path,) = (tree / "dist").iterdir()
    return path


def _build_wheel(sdist: Path, folder: Path, build_c: str) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (tree,) = folder.iterdir()
    _run(sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", "dist", cwd=tree, build_c=build_c)
    (path,) = (tree / "dist").iterdir()
    return path


def _make_environment(folder: Path) -> Path:
    """A new environment that sees what is installed here, except this project: a .pth file brings in no further .pth files."""
    venv.create(folder, with_pip=False)
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "borrowed.pth").write_text("\n".join(site.getsitepackages()), encoding="utf-8")
    return folder / "bin" / "python"


def test_the_sdist_carries_what_a_build_and_the_suite_need(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    sources = {str(path.relative_to(ROOT)) for path in (ROOT / "shardmix" / "format" / "csrc").glob("*.[ch]")}
    assert sources
    assert sources | {"LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt", "tests/conftest.py"} <= names


@pytest.mark.parametrize(("build_c", "backend"), [("yes", "c"), ("no", "python")])
def test_the_wheel_works_in_another_environment(sdist: Path, tmp_path: Path, build_c: str, backend: str) -> None:
    wheel = _build_wheel(sdist, tmp_path / "source", build_c)
    python = _make_environment(tmp_path / "environment")
    # --ignore-installed: pip sees the borrowed packages too, and there an editable install of this project
    _run(python, "-m", "pip", "install", "--no-deps", "--no-index", "--ignore-installed", wheel, cwd=tmp_path)
    live, _, where = _run(python, "-c", USE, cwd=tmp_path).strip().partition(" ")
    assert live == backend
    assert Path(where).is_relative_to(tmp_path / "environment")


def test_the_wheel_holds_the_package_its_types_and_no_sources_in_c(sdist: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(_build_wheel(sdist, tmp_path, "no")) as archive:
        names = archive.namelist()
    assert {"shardmix/__init__.py", "shardmix/py.typed"} <= set(names)
    assert {name.partition("/")[0].partition("-")[0] for name in names} == {"shardmix"}
    assert [name for name in names if name.endswith((".c", ".h", ".so"))] == []
