"""What the record of the A/A runs keeps, and how an interrupted one goes on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import numpy as np
import pytest

from benchmarks import aa_runs
from benchmarks.records import head
from kernelopt_bot.gates import performance
from kernelopt_bot.gates.performance import CONTROL, Measured, Sample, Settings
from kernelopt_bot.gates.verdict import Status, Verdict
from tests.cli.test_bad_input import environment
from tests.gates.simulation import Machine

HEAD: dict[str, Any] = {"command": "c", "commit": "0" * 40, "gpu": "NVIDIA H200", "driver": "1", "versions": {},
                        "date": "2026-11-30", "seconds": 2.0}


def measured(speedup: float, seed: int) -> Measured:
    draws = np.random.default_rng(seed)
    samples = [Sample("default", name, "latency", "cold", *Machine(noise=0.02).times(draws, true, 60))
               for name, true in (("candidate", speedup), (CONTROL, 1.0))]
    return performance.decide(samples, settings=Settings(), peak_bytes={}, rng=draws, floor_s=None)


def test_a_run_and_the_summary() -> None:
    runs = [aa_runs.outcome(measured(1.0, n), 1.5) for n in range(5)]
    runs.append(aa_runs.outcome(measured(1.3, 9), 2.5))
    runs.append(aa_runs.outcome(Measured(Verdict("performance", Status.NOT_MEASURED, "why")), 0.1))
    assert [r["adopted"] for r in runs] == [False] * 5 + [True, False]
    assert all(r["low"] <= r["speedup"] <= r["high"] and r["control"]["low"] < 1.05 for r in runs[:6])
    assert runs[6] == {"seconds": 0.1, "status": "not measured", "adopted": False, "reason": "why"}
    found = aa_runs.summary(runs, 2.0)
    assert (found["runs"], found["adopted"], found["not_measured"], found["longer_than_allowed"]) == (7, 1, 1, 1)
    assert found["intervals_that_hold_1"] <= 5 and found["speedup"]["1"] == pytest.approx(1.3, rel=0.02)
    assert 0 < found["interval_width"]["0.5"] < 0.05
    json.dumps(found)


def test_nothing_measured_has_a_summary() -> None:
    assert aa_runs.summary([], 2.0)["speedup"] == {}


def test_a_record_goes_on_where_it_stops(tmp_path: Path) -> None:
    path = tmp_path / "aa.json"
    assert aa_runs.read(path, HEAD) == {name: [] for name in aa_runs.MODELS}
    runs = {name: [aa_runs.outcome(measured(1.0, 1), 1.0)] for name in aa_runs.MODELS}
    aa_runs.write(path, HEAD, runs)
    assert aa_runs.read(path, {**HEAD, "command": "other", "date": "2026-12-01"}) == runs
    assert json.loads(path.read_text())["adopted"] == 0 and list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("change", [{"gpu": "other"}, {"commit": "1"}, {"seconds": 1.0}, {"versions": {"torch": "2"}}])
def test_runs_of_other_circumstances_are_not_mixed(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "aa.json"
    aa_runs.write(path, HEAD, {name: [aa_runs.outcome(measured(1.0, 1), 1.0)] for name in aa_runs.MODELS})
    with pytest.raises(click.ClickException, match=f"another {next(iter(change))}"):
        aa_runs.read(path, {**HEAD, **change})


def test_the_command_over_a_record_that_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "aa.json"
    begin = {**head("earlier", "cpu"), "seconds": 2.0}
    aa_runs.write(path, begin, {name: [aa_runs.outcome(measured(1.0, 1), 1.0)] for name in aa_runs.MODELS})
    said = subprocess.run(
        [sys.executable, "-m", "benchmarks.aa_runs", str(path), "--device", "cpu", "--runs", "2"],
        cwd=aa_runs.ROOT, env=environment(tmp_path), capture_output=True, text=True, timeout=100, check=False)
    assert (said.returncode, said.stdout) == (0, f"0 of 2 adopted, {path}\n"), said.stderr
    record = json.loads(path.read_text())
    assert record["command"].startswith("python -m benchmarks.aa_runs OUT --device cpu --runs 2")
    assert [len(m["runs"]) for m in record["models"].values()] == [1, 1]


def test_the_models_are_there() -> None:
    assert all((aa_runs.ROOT / path).is_file() for path in aa_runs.MODELS.values())
