"""The demo at a fifth of its size: its numbers point the way that the README says."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.once

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "demo", module)  # where its dataclasses, and workers, look for it
        spec.loader.exec_module(module)
        yield module


def test_batches_of_the_demo_mix_and_the_model_learns(demo: Any, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = "--records 10000 --labels 100 --shards 24 --shuffle-buffer-size 1000 --batch-size 64 --workers 4"
    (plain, mixed, alone), classic = demo.main(arguments.split())

    assert (plain.workers, mixed.workers, alone.workers) == (1.0, 4.0, 1.0)
    assert mixed.files > 3 * plain.files
    assert mixed.labels > 2 * plain.labels
    assert mixed.accuracy > plain.accuracy + 0.1
    assert (alone.files, alone.labels, alone.accuracy) == (mixed.files, mixed.labels, mixed.accuracy)  # the same batches
    assert mixed.labels >= 0.95 * classic

    printed, progress = capfd.readouterr()
    assert f"MixLoader, 4 workers{mixed.files:22.1f}{mixed.labels:9.1f}" in printed
    assert "10000/10000" in progress
