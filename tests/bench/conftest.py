"""Problems of our own in KernelBench's layout, and records as the product's reports make them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.bench.record import Gain, Record, from_report
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.search.result import RunResult, TargetResult
from tests.report.results import comparison, full_result

ENVIRONMENT = {"gpu": "NVIDIA H200", "driver": "580.1", "torch": "2.11.0", "triton": "3.6.0", "python": "3.12.3",
               "release": "0.1.0", "commit": "c0ffee"}
BEGUN = Record(1, 19, "error", ENVIRONMENT, {"levers": ["kernel", "dispatch", "launch"], "search_s": 20.0},
               "2026-01-01T00:00:00+00:00")

Make = Callable[..., Record]


def recorded(result: TargetResult) -> Record:
    data: dict[str, Any] = machine_data(RunResult((result,), "kernelopt optimize problem.py:Model"))
    return from_report(data, BEGUN, 74.0)


def adopted(**changes: Any) -> TargetResult:
    """Kernels and a launch option adopted; without the latter 1.1x."""
    result = full_result()
    changes = {"sets": {"kernel+dispatch": comparison("default", 1.1)}, "against": tuple(
        c for c in result.against if c.metric == "latency"), "spent": {**result.spent, "search_s": 19.5}} | changes
    return replace(result, **changes)


def measured(number: int, gain: float | None, level: int = 1, **more: Any) -> Record:
    """A record whose sets all have one gain; None: nothing was adopted."""
    known = {} if gain is None else {
        name: Gain(gain, gain - 0.02, gain + 0.02) for name in ("kernel+dispatch", "+launch", "+region",
                                                                "best_baseline")}
    return replace(BEGUN, level=level, number=number, status="measured", gains=known, search_s=20.0, total_s=60.0,
                   metric="latency", cache="cold", **more)


@pytest.fixture
def clone(tmp_path: Path) -> Path:
    """Three files without a model, which are declined within a second, and one that must not be touched."""
    folder = tmp_path / "clone" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for number in (1, 3, 5):
        (folder / f"{number}_Nothing.py").write_text("def get_inputs():\n    return []\n")
    (folder / "2_Held_out.py").write_text("raise SystemExit\n")
    (folder / "README.md").write_text("1_Not_a_problem")
    return tmp_path / "clone"
