"""What holds for every candidate of every technique, on kernels of two torch versions."""

from __future__ import annotations

from typing import Any

import pytest

from kernelopt_bot.contract import plan as contract
from kernelopt_bot.playbook.kernel_source import parse
from kernelopt_bot.playbook.technique import techniques
from tests.playbook.examples import of
from tests.playbook.sites import H200

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
"""The first test waits for all candidates to be interpreted or compiled."""


TECHNIQUES = [t.name for t in techniques()]


@pytest.mark.parametrize("name", TECHNIQUES)
def test_equals_the_baseline_under_the_interpreter(name: str, interpreted: dict[str, dict[str, Any]]) -> None:
    assert {n: interpreted[n]["reason"] for n in of(name) if not interpreted[n]["passed"]} == {}


@pytest.mark.parametrize("name", TECHNIQUES)
def test_compiles_to_an_sm_90_cubin(name: str, compiled: dict[str, dict[str, Any]]) -> None:
    assert {n: compiled[n]["error"] for n in of(name) if "error" in compiled[n]} == {}
    assert all(launch["cubin"] > 0 for n in of(name) for launch in compiled[n]["launches"])


@pytest.mark.parametrize("name", TECHNIQUES)
def test_conforms_to_the_contract(name: str) -> None:
    for label, example in of(name).items():
        integers = {**example.site.integers(), "num_sms": H200.multiprocessors}
        assert contract.check(example.candidate.plan, example.candidate.source, integers=integers) == [], label


@pytest.mark.parametrize("name", TECHNIQUES)
def test_names_its_step_and_its_reason(name: str) -> None:
    for label, example in of(name).items():
        candidate, site = example.candidate, example.site
        assert (candidate.graph, candidate.steps, candidate.run_hash) == (0, (site.step.index,), site.step.hash), label
        assert candidate.rationale and candidate.id.startswith(name), label
        assert {p.name for p in candidate.plan.parameters if p.written} == set(site.kernel.written), label


@pytest.mark.parametrize("name", TECHNIQUES)
def test_every_technique_has_examples(name: str) -> None:
    assert of(name)


def test_the_comparison_notices_a_wrong_candidate(compared: list[dict[str, Any]]) -> None:
    assert [r["passed"] for r in compared[-3:]] == [False, False, False]


def test_aligned_rows_are_read_in_vectors(compiled: dict[str, dict[str, Any]]) -> None:
    for label in of("aligned_rows"):
        ptx = compiled[label]["launches"][0]["ptx"]
        assert any("ld.global" in line and ".v4.b32" in line for line in ptx.splitlines()), label


def test_unchanged_code_is_bit_equal(interpreted: dict[str, dict[str, Any]]) -> None:
    """A pointwise kernel under another configuration computes the very same values."""
    same = [label for label, example in of("launch_configuration").items()
            if parse(example.call["source"]).heuristic == "pointwise"]
    assert same and all(interpreted[label]["worst"] == 0.0 for label in same)


def test_both_sides_of_a_layout_copy_are_vectors(compiled: dict[str, dict[str, Any]]) -> None:
    aligned = [n for n in of("layout_tiles") if "channels_last" not in n and "transpose" not in n]
    assert aligned
    for label in aligned:
        lines = compiled[label]["launches"][0]["ptx"].splitlines()
        assert any("st.global.v" in x for x in lines), label


def test_windows_of_aligned_rows_are_read_in_vectors(compiled: dict[str, dict[str, Any]]) -> None:
    labels = [n for n in of("separable_windows") if "avgpool2d_11_23x300" in n]
    assert labels
    for label in labels:
        loads = [x for x in compiled[label]["launches"][0]["ptx"].splitlines() if "ld.global" in x]
        assert loads and all(".v4." in x for x in loads), label
