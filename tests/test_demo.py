"""The demo at a twentieth of its size: its numbers point the way that the README says."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DEMO = Path(__file__).parents[1] / "examples" / "demo.py"


@pytest.fixture(scope="module")
def demo() -> Any:
    spec = importlib.util.spec_from_file_location("demo", DEMO)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_batches_of_the_demo_mix_and_the_model_learns(demo: Any, capfd: pytest.CaptureFixture[str]) -> None:
    arguments = "--records 8000 --labels 40 --shards 24 --shuffle-buffer-size 800 --batch-size 64 --workers 4"
    (plain, mixed, alone), classic = demo.main(arguments.split())

    assert (plain.workers, mixed.workers, alone.workers) == (1.0, 4.0, 1.0)
    assert mixed.files > 3 * plain.files
    assert mixed.labels > 2 * plain.labels
    assert mixed.accuracy > plain.accuracy + 0.1
    assert (alone.files, alone.labels, alone.accuracy) == (mixed.files, mixed.labels, mixed.accuracy)  # the same batches
    assert mixed.labels >= 0.95 * classic

    printed, progress = capfd.readouterr()
    assert f"MixLoader, 4 workers{mixed.files:22.1f}{mixed.labels:9.1f}" in printed
    assert "8000/8000" in progress
