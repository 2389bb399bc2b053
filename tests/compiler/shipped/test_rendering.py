from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).with_name("rendered.py")


def run(lane: str, folder: Path) -> dict[str, float]:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3]),
                   "TRITON_CACHE_DIR": str(folder / "cache")}
    environment.pop("TRITON_INTERPRET", None)
    if lane == "interpret":
        environment["TRITON_INTERPRET"] = "1"
    done = subprocess.run([sys.executable, str(SCRIPT), lane, str(folder)], env=environment, capture_output=True,
                          text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    found: dict[str, float] = json.loads(done.stdout.strip().split("\n")[-1])
    return found


def test_rendered_launches_compute_what_the_candidate_says(tmp_path: Path) -> None:
    errors = run("interpret", tmp_path)
    # Sums of 256 (1024) float32 terms of unit size: a few units in the last place of the result.
    assert errors["layer_norm"] < 1e-5
    assert errors["column_sum"] < 1e-4


@pytest.mark.slow
def test_inductors_own_autotuner_compiles_rendered_launches_for_sm_90(tmp_path: Path) -> None:
    sizes = run("cubin", tmp_path)
    assert set(sizes) == {"layer_norm", "partial_sum", "final_sum"}
    assert all(size > 1000 for size in sizes.values())
