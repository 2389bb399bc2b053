from __future__ import annotations

import dataclasses
from dataclasses import replace

import pytest

from kernelopt_bot.device.profile import StepProfile
from kernelopt_bot.playbook.technique import BaselineConfig, Technique, ranked, techniques, width
from tests.playbook.sites import all_calls, calls, site


def test_the_registry_finds_every_technique() -> None:
    found = techniques()
    assert {t.name for t in found} >= {
        "aligned_rows", "cache_hints", "grid_division", "launch_configuration", "multi_row_tiles",
        "persistent_reduction", "reversed_passes", "serial_reduction"}
    assert all(isinstance(t, Technique) and t.citation for t in found)


def test_expectations_are_ranked_and_have_reasons() -> None:
    for call in all_calls().values():
        found = ranked(site(call))
        gains = [e.gain for e, _ in found]
        assert gains == sorted(gains, reverse=True) and all(e.reason for e, _ in found)


@pytest.mark.parametrize("name", ["l2norm_3x2047", "maxpool3d_5", "relu_1000", "layernorm_9x200"])
def test_no_expectation_exceeds_the_measured_headroom(name: str) -> None:
    place = site(calls(name)[0])
    profile = StepProfile(0, 3, "k", "kernel", 11.0, 1, None, 10.0, 1.1, 1.0)
    for expectation, _ in ranked(replace(place, profile=profile)):
        assert expectation.gain <= 1.1


def test_a_problems_name_changes_nothing() -> None:
    call = calls("l2norm_3x2047")[0]
    other = {**call, "name": "kernel", "source": call["source"].replace(call["name"], "kernel")}
    one, two = site(call), site(other)
    assert [(e, t.name) for e, t in ranked(one)] == [(e, t.name) for e, t in ranked(two)]
    for _, technique in ranked(one):
        plans = [[[dataclasses.replace(launch, function="") for launch in c.plan.launches]
                  for c in technique.propose(place)] for place in (one, two)]
        assert plans[0] == plans[1]


def test_a_kernel_that_is_not_understood_gets_no_proposal() -> None:
    place = site(calls("l2norm_3x2047")[0])
    strange = replace(place, kernel=replace(place.kernel, source="def f(): pass"))
    assert strange.source is None and ranked(strange) == ()
    assert all(list(t.propose(strange)) == [] for t in techniques())


def test_configurations_come_from_the_workers_answer() -> None:
    config = BaselineConfig.from_json({"constexprs": {"XBLOCK": 8}, "num_warps": 4, "num_stages": 1, "facts": None})
    assert config == BaselineConfig({"XBLOCK": 8}, 4, 1, {})
    with pytest.raises(KeyError):
        BaselineConfig.from_json({"constexprs": {}})


@pytest.mark.parametrize(("name", "expected"), [("*fp32", 4), ("*bf16", 2), ("*i64", 8), ("*i1", 1), ("*fp8e5", 1)])
def test_widths(name: str, expected: int) -> None:
    assert width(name) == expected
