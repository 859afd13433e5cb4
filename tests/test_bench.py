"""The benchmark, on a few records: that it runs, that contenders deliver the same, and that who is absent is a line."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from benchmarks.report import cpu_per_million, draw_chart, print_report, rate, ratios
from benchmarks.workload import digest, prepare

ROOT = Path(__file__).parents[1]
ROWS = {"image": [b"a", b"bc", b""], "label": np.array([1, 2, 3])}


def result(**rates: float) -> dict[str, Any]:
    """What bench.py would have written of one corpus: for each contender three rounds of a second, around its rate."""
    contenders = {
        key.replace("_", "-"): {
            "describe": key,
            "checks": "none",
            "digest": "00",
            "first_batch_seconds": 0.1,
            "memory": {"peak_bytes": 1, "peak_files": 1},
            "rounds": [{"rows": speed * factor, "seconds": 1.0, "cpu_seconds": 2.0} for factor in (0.5, 1, 3)],
        }
        for key, speed in rates.items()
    }
    machine = {"processor": "p", "cores": 2, "system": "s", "python": "3"}
    settings = {"batch_size": 256, "buffer_size": 2048, "rounds": 3}
    corpora = {"small": {"records": 10, "bytes": 100, "contenders": contenders}}
    return {"machine": machine, "settings": settings, "corpora": corpora}


def test_digest_depends_on_the_rows_alone() -> None:
    turned = {"label": torch.tensor([3, 1]), "image": [np.array([], np.uint8), np.array([97], np.uint8)]}
    other = {"image": [b"bc"], "label": np.array([2])}
    assert digest([turned, other]) == digest([ROWS])
    assert digest([ROWS])[0] == 3


def test_digest_tells_a_value_in_another_row() -> None:
    assert digest([ROWS | {"label": np.array([2, 1, 3])}]) != digest([ROWS])


def test_digest_refuses_other_dtypes() -> None:
    with pytest.raises(TypeError, match="float64"):
        digest([{"x": np.zeros(2)}])


def test_a_corpus_is_written_once(tmp_path: Path) -> None:
    paths = prepare("small", tmp_path, 0.0001).paths
    assert len(paths) == 16
    written = [Path(path).stat().st_mtime_ns for path in paths]
    assert [Path(path).stat().st_mtime_ns for path in prepare("small", tmp_path, 0.0001).paths] == written


def test_figures_are_medians() -> None:
    one = result(bound=1000)["corpora"]["small"]["contenders"]["bound"]
    assert rate(one) == 1000
    assert cpu_per_million(one) == 2000


def test_report_shows_ratios_beside_targets_and_who_is_absent(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(shardmix_2=900, tfrecord_2=100, bound=1000)
    found["corpora"]["small"]["contenders"]["tf.data"] = {"absent": "starts: no tensorflow"}
    assert ratios(found) == {"tfrecord-2": {"small": 9.0}, "bound": {"small": 0.9}}
    print_report(found)
    text = capsys.readouterr().out
    assert "9x (50)" in text
    assert "90% (15%)" in text
    assert "not measured: starts: no tensorflow" in text


def test_a_round_that_took_no_cpu_time_has_no_ratio_of_it(capsys: pytest.CaptureFixture[str]) -> None:
    found = result(shardmix_2=900, tfrecord_2=100)
    for turn in found["corpora"]["small"]["contenders"]["shardmix-2"]["rounds"]:
        turn["cpu_seconds"] = 0.0
    print_report(found)
    assert "CPU time / shardmix-2's" in capsys.readouterr().out


def test_chart_is_drawn_where_it_can_be(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    path = draw_chart(result(shardmix_2=900, tfrecord_2=100), tmp_path / "chart.png")
    assert path is not None
    assert path.read_bytes().startswith(b"\x89PNG")


@pytest.mark.once
def test_contenders_deliver_the_same_rows(tmp_path: Path) -> None:
    keys = "shardmix-2,shardmix-0,tfrecord-2,tf.data,bound"
    settings = "--size 0.001 --check-size 0.001 --corpora ctr --rounds 1 --least 0 --limit 1".split()
    command = [sys.executable, str(ROOT / "benchmarks" / "bench.py"), "--folder", str(tmp_path), "--contenders", keys, *settings]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    contenders = json.loads((tmp_path / "result.json").read_text())["corpora"]["ctr"]["contenders"]
    assert "ctr: 200 records" in text
    assert "all delivered the same rows" in text
    measured = [key for key, one in contenders.items() if "absent" not in one]
    assert {"shardmix-2", "shardmix-0", "tfrecord-2", "bound"} <= set(measured)
    assert len({contenders[key]["digest"] for key in measured if key != "bound"}) == 1
    assert "tf.data" in measured or "tf.data                 not measured: starts: No module named 'tensorflow'" in text
