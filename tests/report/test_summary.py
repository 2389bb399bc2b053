from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.errors import InputError
from kernelopt_bot.report.summary import gain_words, summarise
from tests.publish import seen_runs

RECORDS = sorted((Path(__file__).parents[2] / "benchmarks" / "results").glob("optimize_*.json"))


def test_each_target_has_one_outcome() -> None:
    run = summarise(seen_runs.data())
    assert [(t.name, t.outcome) for t in run.targets] == [
        ("transformer_block", "faster"),
        ("pretended", "unchanged"),
        ("broken", "error"),
    ]
    assert gain_words(run.faster[0]) == "1.210x (95% interval 1.190x to 1.240x) against max-autotune"
    assert run.faster[0].environment == "NVIDIA H200, torch 2.11.0"
    assert (run.faster[0].candidates, run.faster[0].adopted, run.faster[0].passed_over) == (37, 2, 0)
    assert run.faster[0].stopped == {"static": 1, "correctness": 1, "performance": 1}
    assert run.skipped == (("models/old.py", "no example inputs"),)


@pytest.mark.parametrize("record", RECORDS, ids=lambda p: p.stem)
def test_records_of_real_runs_are_read(record: Path) -> None:
    data = json.loads(record.read_text())["report"]
    run = summarise(data)
    assert [t.outcome == "faster" for t in run.targets] == [t["faster"] for t in data["targets"]]
    assert all(t.candidates >= sum(t.stopped.values()) for t in run.targets)


def put(data: dict[str, Any], *way: Any) -> dict[str, Any]:
    *path, last, value = way
    at: Any = data
    for part in path:
        at = at[part]
    at[last] = value
    return data


@pytest.mark.parametrize(
    "way",
    [
        ("targets", None),
        ("targets", ["x"]),
        ("targets", 0, "name", 7),
        ("targets", 0, "headline", None),
        ("targets", 0, "headline", "low", 0.9),
        ("targets", 0, "headline", "high", 1.1),
        ("targets", 0, "headline", "speedup", "Infinity"),
        ("targets", 0, "headline", "baseline_ms", -1.0),
        ("targets", 0, "candidates", True),
        ("targets", 0, "candidates", float("inf")),
        ("targets", 0, "candidates", 10**400),
        ("rejected", 0, "stopped", []),
        ("spent", []),
        ("skipped", [{"what": "x"}]),
    ],
    ids=lambda way: ".".join(map(str, way))[:60],
)
def test_a_forged_file_is_refused(way: tuple[Any, ...]) -> None:
    with pytest.raises(InputError, match="run's data can't be read"):
        summarise(put(seen_runs.data(), *way))


def test_a_gain_of_what_is_not_faster_is_not_shown() -> None:
    run = summarise(put(seen_runs.data(), "targets", 0, "faster", False))
    assert run.targets[0].outcome == "unchanged"
    assert run.targets[0].gain is None
