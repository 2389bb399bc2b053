from typing import Any

import pytest

from kernelopt_bot.gates import model as gate
from kernelopt_bot.gates.answers import Malformed
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker


def output(**changes: Any) -> dict[str, Any]:
    return {"name": "output", "passed": True, "bit_equal": False, "ratio": 1.2, "reason": "", **changes}


def answer(out: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    draws = [{"seed": s, "init": 0, "outputs": [out or output()]} for s in (1, 2)]
    return {"draws": draws, "aliasing_equal": True, "metadata_equal": True, "differences": [],
            "replaced": {"expected": 2, "found": 2}, "float64": "used", **changes}


@pytest.mark.parametrize(("said", "status", "words"), [
    (answer(), Status.PASS, ""),
    (answer(output(passed=False, reason="RMSE 3 is over 2")), Status.FAIL, "seed 1, init 0: RMSE 3 is over 2"),
    (answer(metadata_equal=False, differences=["float32 became float16"]), Status.FAIL, "float32 became float16"),
    (answer(aliasing_equal=False), Status.FAIL, "alias"),
    (answer(replaced={"expected": 2, "found": 1}), Status.FAIL, "1 of 2 runs"),
    (answer(replaced={"expected": 0, "found": 0}), Status.FAIL, "0 of 0 runs"),
    (answer(float64="the outputs are random"), Status.FAIL, "only bit-equal candidates pass"),
    (answer(output(bit_equal=True), float64="the outputs are random"), Status.PASS, "the outputs are random"),
    (answer(draws=[]), Status.NOT_MEASURED, "0 of 2 draws"),
    (answer(draws=answer()["draws"][:1]), Status.NOT_MEASURED, "1 of 2 draws"),
])
def test_decide(said: dict[str, Any], status: Status, words: str) -> None:
    verdict = gate.decide(said, kernels=True, draws_asked=2)
    assert verdict.status is status
    assert words in verdict.reason


def test_a_recipe_alone_replaces_no_run() -> None:
    said = answer(replaced={"expected": 0, "found": 0})
    assert gate.decide(said, kernels=False, draws_asked=2).status is Status.PASS


@pytest.mark.parametrize("missing", ["draws", "replaced", "float64", "metadata_equal", "aliasing_equal"])
def test_incomplete_answers(missing: str) -> None:
    said = answer()
    del said[missing]
    with pytest.raises(Malformed):
        gate.decide(said, kernels=True, draws_asked=2)


def test_the_precision_is_that_of_the_worst_output() -> None:
    said = answer()
    said["draws"][1]["outputs"].append(output(name="hidden", ratio=1.9, rmse_candidate=1.9e-7, rmse_baseline=1e-7))
    said["draws"].append({"seed": 3, "init": 1, "outputs": [output(ratio=None, bit_equal=True)]})
    verdict = gate.decide(said, kernels=True)
    assert verdict.evidence["largest_error_ratio"] == 1.9
    assert gate.precision_of(verdict) == gate.Precision(3, 2, False, 1.9, 1.9e-7, 1e-7, "hidden")


def test_the_precision_without_a_float64_reference_is_bits_alone() -> None:
    verdict = gate.decide(answer(output(bit_equal=True), float64="the outputs are random"), kernels=True)
    assert gate.precision_of(verdict) == gate.Precision(2, 1, True, None)
    assert gate.precision_of(Verdict("model", Status.FAIL, "the worker crashed")) is None


@pytest.mark.slow
def test_real_worker(model: Worker) -> None:
    verdict = gate.check(model, artifact=None, options={"split_reductions": False}, secret="s", seeds=1, inits=2,
                         precision={"m": 2.0, "k": 1.0})
    assert (verdict.status, verdict.reason) == (Status.PASS, "")
    assert len(verdict.evidence["draws"]) == 2


@pytest.mark.slow
def test_an_artifact_that_is_not_there_is_not_measured(model: Worker) -> None:
    verdict = gate.check(model, artifact="/nowhere", options={}, secret="s", seeds=1, inits=1,
                         precision={"m": 2.0, "k": 1.0}, kernels=True)
    assert verdict.status is Status.NOT_MEASURED
