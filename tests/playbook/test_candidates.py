"""What holds for every candidate of every technique, on kernels of two torch versions."""

from __future__ import annotations

from typing import Any

import pytest

from kernelopt_bot.contract import plan as contract
from kernelopt_bot.playbook.technique import techniques
from tests.playbook.examples import EXAMPLES, of
from tests.playbook.sites import H200

pytestmark = pytest.mark.timeout(900)
"""The first test waits for all candidates to be interpreted or compiled."""


@pytest.mark.parametrize("label", EXAMPLES)
def test_equals_the_baseline_under_the_interpreter(label: str, interpreted: dict[str, dict[str, Any]]) -> None:
    assert interpreted[label]["passed"], interpreted[label]["reason"]


@pytest.mark.parametrize("label", EXAMPLES)
def test_compiles_to_an_sm_90_cubin(label: str, compiled: dict[str, dict[str, Any]]) -> None:
    result = compiled[label]
    assert "error" not in result, result["error"]
    assert all(launch["cubin"] > 0 for launch in result["launches"])


@pytest.mark.parametrize("label", EXAMPLES)
def test_conforms_to_the_contract(label: str) -> None:
    example = EXAMPLES[label]
    integers = {**example.site.integers(), "num_sms": H200.multiprocessors}
    assert contract.check(example.candidate.plan, example.candidate.source, integers=integers) == []


@pytest.mark.parametrize("label", EXAMPLES)
def test_names_its_step_and_its_reason(label: str) -> None:
    candidate, site = EXAMPLES[label].candidate, EXAMPLES[label].site
    assert (candidate.graph, candidate.steps, candidate.run_hash) == (0, (site.step.index,), site.step.hash)
    assert candidate.rationale and candidate.id.startswith(candidate.technique)
    assert {p.name for p in candidate.plan.parameters if p.written} == set(site.kernel.written)


@pytest.mark.parametrize("name", [t.name for t in techniques()])
def test_every_technique_has_examples(name: str) -> None:
    assert of(name)


def test_the_comparison_notices_a_wrong_candidate(tmp_path: Any) -> None:
    from tests.playbook.sites import case, interpret

    example = EXAMPLES[of("persistent_reduction")[0]]
    good = case(example.call, example.candidate)
    wrong = {**good, "source": good["source"].replace("tl.sum", "tl.max").replace("tmp6", "tmp5")}
    shifted = {**good, "source": good["source"].replace("tl.store(out_ptr", "tl.store(64 + out_ptr")}
    late = {**good, "plan": {**good["plan"], "launches": []}}
    results = interpret([good, wrong, shifted, late], tmp_path)
    assert [r["passed"] for r in results] == [True, False, False, False]
