"""Run all of `benchmarks.gpu` at a small size, since a GPU is rarely available to find its faults."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import gpu

ROOT = Path(__file__).parents[1]


@pytest.mark.slow
def test_every_part_runs_at_a_small_size(tmp_path):
    file = tmp_path / "gpu.json"
    command = [sys.executable, "-m", "benchmarks.gpu", "--tiny", "--output", str(file)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(file.read_text())
    assert found["tiny"] and found["device"] and found["versions"]["torch"]
    assert list(found["parts"]) == list(gpu.PARTS)
    numbers = {}
    for part, kept in found["parts"].items():
        assert kept["error"] is None and kept["seconds"] > 0, (part, kept["error"])
        for row in kept["rows"]:
            assert isinstance(row["value"], float) and row["unit"], row
            numbers[part, row["what"], row["unit"]] = row["value"]
            assert part in done.stdout and row["what"] in done.stdout
    measured = {what for part, what, _ in numbers if part == "trainer"}
    assert measured == {"released style", *gpu.VARIANTS}
    for name in (*gpu.losses.PURE, "gr, compiled"):
        assert numbers["losses", f"{name}, 64 x 80", "ms"] > 0
        assert numbers["losses", f"{name}, 64 x 80", "tensors beyond input and gradient"] >= 0
    assert numbers["loading", "prepared pixels", "images a second"] > 0
    assert numbers["features", "epoch of 2000 x 1280, 80 classes", "s"] > 0
    for part in ("DDP", "resume"):
        first, second = (value for (own, _, _), value in numbers.items() if own == part)
        assert first == pytest.approx(second, abs=1e-4)


@pytest.mark.slow
def test_a_part_that_fails_or_takes_too_long_says_so(tmp_path):
    *_, last = gpu.measure("losses", gpu.Work("nonsense", True, [], tmp_path), 100)
    assert "RuntimeError" in last["error"] and "nonsense" in last["error"]
    assert [*gpu.measure("losses", gpu.Work("cpu", True, [], tmp_path), 0.1)] == [
        {"error": "stopped after its 0 s"}
    ]
