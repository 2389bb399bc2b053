from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest

from benchmarks.triton_examples import listed, mean, outcome, read, write
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.search.result import RunResult
from tests.report.results import full_result

NAMES = ["a.py:a", "b.py:b"]
BEGUN = {"command": "c", "commit": "c0ffee", "gpu": "NVIDIA H200", "date": "2026-12-01"}


def gained(speedup: float) -> dict[str, Any]:
    return {"seconds": 30.0, "headline": {"speedup": speedup}}


def test_every_kernel_of_the_examples_is_listed_once() -> None:
    names = listed()
    assert len(names) == len(set(names)) == 11
    assert {n.partition(":")[0].rpartition("/")[2] for n in names} == {
        "adam.py", "cross_entropy.py", "layer_norm.py", "matmul.py", "rms_norm.py", "rotary.py", "segmented_sum.py",
        "softmax.py", "swiglu.py", "top_k.py"}


def test_what_was_not_measured_counts_as_nothing_gained() -> None:
    assert mean({"a.py:a": gained(4.0)}, NAMES) == pytest.approx(2.0)
    assert mean({"a.py:a": gained(4.0), "b.py:b": {"seconds": 1.0, "headline": None}}, NAMES) == pytest.approx(2.0)
    assert mean({}, NAMES) == 1.0


def test_a_report_is_kept_in_short_and_a_missing_one_is_said() -> None:
    kept = outcome(machine_data(RunResult((full_result(),), "kernelopt optimize a.py:a")), 30.0)
    assert kept["headline"]["speedup"] > 1 and kept["gates"] and kept["adopted"] and not kept["error"]
    assert outcome(None, 1.0) == {"seconds": 1.0, "error": "it wrote no report"}


def test_a_record_goes_on_where_it_stopped_and_not_with_anothers(tmp_path: Path) -> None:
    path = tmp_path / "record.json"
    assert read(path, BEGUN) == {}
    write(path, BEGUN, {"a.py:a": gained(4.0)}, NAMES)
    record = json.loads(path.read_text())
    assert record["coverage"] == 0.5 and record["geomean"] == pytest.approx(2.0)
    assert read(path, {**BEGUN, "date": "2026-12-02"}) == {"a.py:a": gained(4.0)}
    with pytest.raises(click.ClickException, match="another commit"):
        read(path, {**BEGUN, "commit": "other"})
