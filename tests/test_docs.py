"""The site builds as `make docs` does it, without a warning and without the network."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

pytestmark = pytest.mark.once


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    environment = {**os.environ, "https_proxy": "http://127.0.0.1:9", "http_proxy": "http://127.0.0.1:9"}
    options = ("--quiet", "--fail-on-warning", "--keep-going", "--doctree-dir", str(folder / "trees"), "-b", "html")
    command = [sys.executable, "-m", "sphinx", *options, ROOT / "docs", folder / "html"]
    result = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert result.returncode == 0, result.stdout
    return folder / "html"


def test_every_page_is_built_and_loads_nothing_from_elsewhere(site: Path) -> None:
    pages = {path.stem for path in (ROOT / "docs").glob("*.md")}
    assert pages <= {path.stem for path in site.glob("*.html")}
    for path in site.glob("*.html"):
        assert re.findall(r'(?:src|<link[^>]* href)="(https?:[^"]*)"', path.read_text(encoding="utf-8")) == []


def test_the_reference_has_every_public_name(site: Path) -> None:
    import shardmix

    reference = (site / "api.html").read_text(encoding="utf-8")
    assert [name for name in shardmix.__all__ if f'id="shardmix.{name}"' not in reference] == ["backend"]
