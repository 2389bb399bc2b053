"""The measured error ratio of the stitched whole, in words and as data."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from kernelopt_bot.gates import model
from kernelopt_bot.report.build import build
from kernelopt_bot.report.machine import machine_data
from kernelopt_bot.report.markdown import render
from kernelopt_bot.search.result import RunResult
from tests.report.results import full_result, passing, whole_run

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())


def run(output: dict[str, Any], float64: str = "used") -> RunResult:
    outputs = {"name": "output", "passed": True, "bit_equal": False, "reason": "", **output}
    said = {"draws": [{"seed": s, "init": s % 2, "outputs": [outputs]} for s in range(6)], "aliasing_equal": True,
            "metadata_equal": True, "differences": [], "replaced": {"expected": 2, "found": 2}, "float64": float64}
    verdict = model.decide(said, kernels=True, draws_asked=6)
    return replace(whole_run(), results=(replace(full_result(), stitched=(verdict, passing()[3])),))


@pytest.mark.parametrize(("output", "float64", "words", "ratio"), [
    ({"ratio": 1.25, "rmse_candidate": 5e-7, "rmse_baseline": 4e-7}, "used",
     "at most **1.250x** the error of default `torch.compile` (root mean square 5.00e-07 against 4.00e-07", 1.25),
    ({"ratio": None, "bit_equal": True}, "no reference", "bit-equal", None),
    ({"ratio": None}, "used", "no error to compare with", None),
])
def test_the_ratio_is_in_words_and_data(output: dict[str, Any], float64: str, words: str, ratio: float | None) -> None:
    made = run(output, float64)
    text = " ".join(render(build(made)).split())
    assert "6 draws of inputs over 2 initialisations" in text
    assert words in text
    data = machine_data(made)
    jsonschema.validate(data, SCHEMA)
    assert (data["targets"][0]["precision"]["ratio"], data["targets"][0]["precision"]["draws"]) == (ratio, 6)


def test_a_verdict_without_draws_says_nothing_of_precision() -> None:
    data = machine_data(whole_run())
    assert [t["precision"] for t in data["targets"]] == [None] * len(data["targets"])
    assert "Precision of the whole" not in render(build(whole_run()))
