from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.agents.answers import (
    BRACES,
    MODELS,
    CandidateAnswer,
    Malformed,
    PlannerAnswer,
    clean,
    read,
    schema,
)
from kernelopt_bot.agents.brain import ROLES, Role
from kernelopt_bot.contract import plan as contract
from tests.agents.facts import PLAN, SOURCE, candidate_text


@pytest.mark.parametrize("role", ROLES)
def test_schemas_have_no_free_form_mappings(role: Role) -> None:
    """Strict structured output takes objects with named properties only."""
    def objects(node: object) -> list[dict[str, object]]:
        if isinstance(node, list):
            return [o for n in node for o in objects(n)]
        if not isinstance(node, dict):
            return []
        return ([node] if node.get("type") == "object" else []) + [o for v in node.values() for o in objects(v)]

    found = objects(schema(role))
    assert found and all(o.get("properties") and "additionalProperties" not in o for o in found)


TEXTS = {
    "alone": candidate_text(),
    "in a fence amid prose": f"Of course!\n```json\n{candidate_text()}\n```\nIt is faster {{I think}}.",
    "after a wrong object": '{"thoughts": "none"} ' + candidate_text(),
    "source in its own fence": f"```python\n{SOURCE}```\n" + json.dumps({"plan": PLAN}),
    "source with a fence in it": candidate_text(f"```python\n{SOURCE}```"),
    "constexprs as a mapping": json.dumps({"source": SOURCE, "plan": {**PLAN, "launches": [
        {**PLAN["launches"][0], "constexprs": {"BLOCK": 64}}]}}),
    "numbers where texts are wanted": json.dumps({"source": SOURCE, "plan": {**PLAN, "launches": [
        {**PLAN["launches"][0], "grid": [2], "num_warps": "1"}]}}),
    "a tab and Windows newlines": candidate_text(SOURCE.replace("\n", "\r\n").replace("    x", "\tx")),
    "further keys": json.dumps({"source": SOURCE, "plan": PLAN, "confidence": 1.0}),
    "raw newlines in a string": candidate_text().replace("\\n", "\n"),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=list(TEXTS))
def test_whims_of_form_are_read_as_the_same_candidate(text: str) -> None:
    answer = read("executor", text)
    assert isinstance(answer, CandidateAnswer)
    assert answer.source == SOURCE
    assert contract.check(answer.plan.plan(), answer.source, integers={"xnumel": 100, "num_sms": 1}) == []


def test_what_does_not_fit_is_said_in_words_to_mend_it_by() -> None:
    with pytest.raises(Malformed) as e:
        read("executor", json.dumps({"source": SOURCE, "plan": {"launches": []}}))
    assert any("plan.launches" in fault for fault in e.value.faults)
    with pytest.raises(Malformed, match="no JSON object"):
        read("planner", "I cannot help with that.")
    with pytest.raises(Malformed, match="empty"):
        read("planner", " \n")
    with pytest.raises(Malformed, match="expected_gain"):
        read("planner", '{"directions": [{"spot": "s", "name": "n", "idea": "i", "expected_gain": NaN}]}')


def test_what_is_left_out_has_the_contract_s_defaults() -> None:
    answer = read("planner", '{"directions": [{"spot": "s", "name": "n", "idea": "i"}]}')
    assert isinstance(answer, PlannerAnswer)
    assert (answer.directions[0].expected_gain, answer.directions[0].effort) == (1.0, 1)


@given(st.text(alphabet='{}[]":, abcsourceplan\\n', max_size=300), st.sampled_from(ROLES))
def test_any_text_is_an_answer_or_malformed(text: str, role: Role) -> None:
    try:
        assert isinstance(read(role, text), MODELS[role])
    except Malformed as e:
        assert e.faults


def test_a_hostile_text_costs_little() -> None:
    """Thousands of open braces are given up after some."""
    with pytest.raises(Malformed):
        read("executor", '{"a":' * 50_000)
    with pytest.raises(Malformed):
        read("planner", "{}" * (BRACES + 1) + '{"directions": [{"spot": "s", "name": "n", "idea": "i"}]}')


def test_clean_keeps_what_is_code() -> None:
    assert clean(SOURCE) == SOURCE
    assert clean("\n\n" + SOURCE + "\n   \n") == SOURCE


def test_names_and_reasons_can_stand_in_comments() -> None:
    """A direction is named in the first line of a kernel file, where `coding: ...` would mean something."""
    answer = read("planner", json.dumps({"directions": [
        {"spot": "s", "name": "tiles \u2713 # coding: utf-7\n=1", "idea": "i"}]}))
    assert isinstance(answer, PlannerAnswer) and answer.directions[0].name == "tiles coding utf-7 1"
    candidate = read("executor", candidate_text(why="2\u00d7 faster\nimport os"))
    assert isinstance(candidate, CandidateAnswer) and candidate.why == "2? faster import os"
    with pytest.raises(Malformed, match="name"):
        read("planner", json.dumps({"directions": [{"spot": "s", "name": "\u2713", "idea": "i"}]}))
