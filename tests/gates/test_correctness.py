import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.worker import families
from tests.gates import kernels

PRECISION = {"m": 2.0, "k": 1.0}


def check(
    candidate: KernelCandidate, worker: Worker, *, budget_s: float = 60.0,
    asked: Sequence[str] = ("captured", "normal", "cancelling"),
) -> Verdict:
    return correctness.check_kernel(
        candidate, kernels.KERNEL, kernels.STEP, kernels.CALL, worker, lane="interpret", secret="s3cret",
        precision=PRECISION, budget_s=budget_s, families=asked)


def test_families_are_the_workers() -> None:
    assert correctness.FAMILIES == families.FAMILIES
    assert set(correctness.FAMILIES) >= correctness.REQUIRED


def test_honest_candidate_passes_every_family(candidate: KernelCandidate, interpreter: Worker) -> None:
    verdict = check(candidate, interpreter, asked=correctness.FAMILIES)
    assert (verdict.status, verdict.reason) == (Status.PASS, "")
    assert {r["family"] for r in verdict.evidence["families"]} == set(correctness.FAMILIES)
    assert verdict.evidence["float64"] == "used"


@pytest.mark.parametrize("name", kernels.DISHONEST)
def test_dishonest_candidates_fail(name: str, candidate: KernelCandidate, interpreter: Worker) -> None:
    source, word = kernels.dishonest(name)
    assert source != candidate.source
    verdict = check(dataclasses.replace(candidate, source=source), interpreter)
    assert verdict.status is Status.FAIL
    assert word in verdict.reason or word in str(verdict.evidence["families"])


def test_an_access_far_outside_is_a_failure(candidate: KernelCandidate, interpreter: Worker) -> None:
    far = candidate.source.replace("out_ptr0 + rows, total", "out_ptr0 + rows + 1000000000000, total")
    verdict = check(dataclasses.replace(candidate, source=far), interpreter)
    assert verdict.status is Status.FAIL
    assert "outside" in verdict.reason


def test_no_time_is_not_a_pass(candidate: KernelCandidate, interpreter: Worker) -> None:
    verdict = check(candidate, interpreter, budget_s=0.0)
    assert verdict.status is Status.NOT_MEASURED
    assert "out of time" in verdict.reason


@pytest.mark.slow
def test_options_graph_by_graph(model: Worker) -> None:
    candidate = OptionsCandidate("o", "dispatch", {"split_reductions": False}, "split")
    verdict = correctness.check_options(candidate, model, secret="s", precision=PRECISION)
    assert verdict.status is Status.PASS
    assert len(verdict.evidence["graphs"]) == 1


def output(**changes: Any) -> dict[str, Any]:
    return {"name": "out_ptr0", "passed": True, "reason": "", **changes}


def answer(**changes: Any) -> dict[str, Any]:
    results = [{"family": f, "seed": 1, "outputs": [output()], "passed": True, "reason": ""}
               for f in correctness.FAMILIES]
    return {"families": results, "inputs_untouched": True, "guards_intact": True, "covered": True,
            "deterministic": True, "float64": "used", "peak_bytes": 1, **changes}


class Replay:
    """Answers with what a worker once said."""

    def __init__(self, said: dict[str, Any]) -> None:
        self.said = said

    def call(self, method: str, params: Any, *, timeout: float, progress: Any = None) -> dict[str, Any]:
        return self.said


def replayed(candidate: KernelCandidate, said: dict[str, Any]) -> Verdict:
    return correctness.check_kernel(
        candidate, kernels.KERNEL, kernels.STEP, kernels.CALL, Replay(said), lane="cuda", secret="s",
        precision=PRECISION, budget_s=1.0)


@pytest.mark.parametrize(("changes", "status", "words"), [
    ({}, Status.PASS, ""),
    ({"guards_intact": False}, Status.FAIL, "outside"),
    ({"inputs_untouched": False}, Status.FAIL, "may only read"),
    ({"covered": False}, Status.FAIL, "unwritten"),
    ({"deterministic": False}, Status.FAIL, "differ"),
    ({"deterministic": None}, Status.PASS, ""),
    ({"families": []}, Status.NOT_MEASURED, "out of time"),
    ({"families": None}, Status.NOT_MEASURED, "proper 'families'"),
    ({"guards_intact": None}, Status.NOT_MEASURED, "proper 'guards_intact'"),
    ({"families": [{"family": "normal", "outputs": [output(passed=False, reason="3x")], "passed": False}]},
     Status.FAIL, "normal: out_ptr0: 3x"),
    ({"families": [{"family": "normal", "outputs": [output(passed=False)], "passed": True}]},
     Status.NOT_MEASURED, "not all of its outputs"),
    ({"families": [{"family": "normal", "outputs": [], "passed": True}]}, Status.NOT_MEASURED, "not all"),
    ({"families": answer()["families"][:5]}, Status.PASS, "not run, out of time: large, extreme"),
])
def test_every_answer_has_a_verdict(
    candidate: KernelCandidate, changes: dict[str, Any], status: Status, words: str
) -> None:
    verdict = replayed(candidate, answer(**changes))
    assert verdict.status is status
    assert words in verdict.reason


def test_arguments_of_one_buffer_share_memory() -> None:
    first, second, *rest = kernels.STEP.arguments
    in_place = dataclasses.replace(kernels.STEP, arguments=(first, dataclasses.replace(second, buffer="arg0_1"), *rest))
    alone, together = (correctness.step_arguments(s, kernels.CALL) for s in (kernels.STEP, in_place))
    assert [a.get("storage") for a in alone[:2]] == [None, None]
    assert [a.get("storage") for a in together[:2]] == ["arg0_1", "arg0_1"]
    assert together[2:] == [kernels.ROWS, kernels.COLUMNS]
