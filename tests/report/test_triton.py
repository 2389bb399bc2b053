"""A Triton kernel's part of the report: the user's kernel is what is compared with."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

from jsonschema import Draft202012Validator

from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.publish.checks import notes_of
from kernelopt_bot.publish.seen import finished
from kernelopt_bot.publish.shown import comment, summary
from kernelopt_bot.report.build import build
from kernelopt_bot.report.machine import machine_data, render_json
from kernelopt_bot.report.markdown import render
from kernelopt_bot.report.restore import restore
from kernelopt_bot.report.summary import summarise
from kernelopt_bot.search.result import RunResult, Trial
from kernelopt_bot.targets.triton_kernels import TritonTarget
from tests.report import results

SCHEMA = json.loads((Path(__file__).parents[2] / "docs" / "report.schema.json").read_text())


def test_the_baseline_is_said_and_the_file_that_changes() -> None:
    report = build(RunResult((results.triton_result(),), "kernelopt optimize ops.py:norm"))
    text = render(report)
    assert "Triton kernel `norm` in `ops.py`" in text and "`your kernel`" in text
    assert "Changed in place: `ops.py`" in text
    assert "your kernel, with the configuration that your code gives it" in text
    assert "training keeps the compiler" not in text and "KERNELOPT_DISABLE" not in text
    assert "1 of 1 target faster" in report.title
    assert "each weighed by how often it was recorded" in text and "on the whole model" not in text


def test_a_rejected_candidate_says_which_configuration_it_was() -> None:
    given = results.triton_result()
    candidate = replace(results.kernel("k2", "launch_configuration"), rationale="unchanged code with BLOCK=512")
    trial = Trial(candidate, (Verdict("correctness", Status.NOT_MEASURED, "no GPU: 2 that pass are enough"),))
    text = render(build(RunResult((replace(given, trials=(*given.trials, trial)),), "kernelopt optimize ops.py:norm")))
    assert "`launch_configuration`: unchanged code with BLOCK=512" in text and "no GPU: 2 that pass" in text


def test_the_machine_contract_holds() -> None:
    data = json.loads(render_json(build(RunResult((results.triton_result(),), "kernelopt optimize ops.py:norm")).data))
    Draft202012Validator(SCHEMA).validate(data)
    assert data["targets"][0]["headline"]["baseline"] == "your kernel"
    assert (data["targets"][0]["kind"], data["targets"][0]["edits"]) == ("triton", ["ops.py"])


def test_it_comes_back_as_a_kernel_and_without_the_edit() -> None:
    result = results.triton_result()
    result = replace(result, target=replace(result.target, inputs="", record="tests/test_ops.py::test_norm"))
    again = restore(render_json(machine_data(RunResult((result,), "kernelopt optimize ops.py:norm"))).encode())
    assert again.results[0].target == result.target and isinstance(again.results[0].target, TritonTarget)
    assert again.results[0].edits == {}, "no report holds it"


def test_comment_summary_and_annotation_say_that_its_file_is_edited() -> None:
    data = machine_data(RunResult((results.triton_result(), results.full_result()), "kernelopt run"))
    seen = finished(summarise(data), head_sha="a" * 40, pull_number=9, pull_url="https://example.com/9")
    assert "- `ops_norm` is your own Triton kernel `norm`: `ops.py` is edited in place.\n\n**Next:**" in comment(seen)
    assert "#### `ops_norm`: Triton kernel `norm` in `ops.py`" in summary(seen)
    kernel, model = notes_of(seen)
    assert kernel.path == "ops.py" and kernel.message.endswith("The edit is of this file.")
    assert model.message.endswith("The files that do it are in kernelopt_kernels/transformer_block.")


def test_without_a_gain_the_kernel_stays_as_it_is() -> None:
    nothing = replace(results.triton_result(), headline=None, trials=(), edits={})
    seen = finished(summarise(machine_data(RunResult((nothing,), "kernelopt run"))), head_sha="a" * 40)
    assert "No candidate was tried, so your kernels stay as they are." in comment(replace(
        seen, run=replace(seen.run, targets=(replace(seen.run.targets[0], candidates=0),)) if seen.run else None))
