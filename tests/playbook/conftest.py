from __future__ import annotations

import json
from typing import Any

import pytest

from tests.playbook.examples import EXAMPLES, LONG, SAME_CODE
from tests.playbook.sites import case, cubins, interpret


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    """One draw of inputs where the code is the compiler's own or rows are long, two where a technique rewrote it."""
    return [{**case(e.call, e.candidate),
             "seeds": (1,) if e.candidate.technique in (*SAME_CODE, *LONG) else (1, 2)} for e in EXAMPLES.values()]


def text(case: dict[str, Any]) -> str:
    """Equal for cases in which the same code does the same work: two versions of torch often write one kernel."""
    return json.dumps({**case, "baseline": case["baseline"].partition("@triton.jit")[2]}, sort_keys=True)


@pytest.fixture(scope="session")
def interpreted(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> result of the candidate against the baseline under the interpreter; one process for all."""
    distinct = {text(c): c for c in cases}
    found = dict(zip(distinct, interpret(list(distinct.values()), tmp_path_factory.mktemp("interpreted")), strict=True))
    return {label: found[text(c)] for label, c in zip(EXAMPLES, cases, strict=True)}


@pytest.fixture(scope="session")
def compiled(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> launches as sm_90 cubins, or the compiler's error; one process for all."""
    distinct = {text(c): c for c in cases}
    found = dict(zip(distinct, cubins(list(distinct.values()), tmp_path_factory.mktemp("compiled")), strict=True))
    return {label: found[text(c)] for label, c in zip(EXAMPLES, cases, strict=True)}
