"""A Triton kernel's part of the report: the user's kernel is what is compared with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jsonschema import Draft202012Validator

from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.report.build import build
from kernelopt_bot.report.machine import render_json
from kernelopt_bot.report.markdown import render
from kernelopt_bot.search.result import LeverGain, RunResult, TargetResult, Trial
from kernelopt_bot.targets.triton_kernels import TritonTarget
from tests.report import results

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())


def adopted() -> TargetResult:
    """As the search on a GPU leaves it."""
    gain = results.comparison("your kernel", 1.2)
    trial = Trial(results.kernel("k1", "launch_configuration"), results.passing()[:2], True, 1.2, 12.0, 10.0)
    return replace(
        results.full_result(), target=TritonTarget("ops_norm", "ops.py", "norm", "make_inputs", origin="command"),
        program=None, profile=None, trials=(trial,), levers=(LeverGain("kernel", 1, gain),), headline=gain,
        against=(gain,), not_applicable={}, first_call=None, peak_memory={}, artifact="", sets={},
        stitched=(Verdict("model", Status.PASS), Verdict("performance", Status.PASS)), edits={"ops.py": b"new"},
        edited={"ops.py": b"old"})


def test_the_baseline_is_said_and_the_file_that_changes() -> None:
    report = build(RunResult((adopted(),), "kernelopt optimize ops.py:norm"))
    text = render(report)
    assert "Triton kernel `norm` in `ops.py`" in text and "`your kernel`" in text
    assert "Changed in place: `ops.py`" in text
    assert "your kernel, with the configuration that your code gives it" in text
    assert "training keeps the compiler" not in text and "KERNELOPT_DISABLE" not in text
    assert "1 of 1 target faster" in report.title
    assert "each weighed by how often it was recorded" in text and "on the whole model" not in text


def test_a_rejected_candidate_says_which_configuration_it_was() -> None:
    given = adopted()
    candidate = replace(results.kernel("k2", "launch_configuration"), rationale="unchanged code with BLOCK=512")
    trial = Trial(candidate, (Verdict("correctness", Status.NOT_MEASURED, "no GPU: 2 that pass are enough"),))
    text = render(build(RunResult((replace(given, trials=(*given.trials, trial)),), "kernelopt optimize ops.py:norm")))
    assert "`launch_configuration`: unchanged code with BLOCK=512" in text and "no GPU: 2 that pass" in text


def test_the_machine_contract_holds() -> None:
    data = json.loads(render_json(build(RunResult((adopted(),), "kernelopt optimize ops.py:norm")).data))
    Draft202012Validator(SCHEMA).validate(data)
    assert data["targets"][0]["headline"]["baseline"] == "your kernel"
