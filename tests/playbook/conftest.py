from __future__ import annotations

import json
from typing import Any

import pytest

from tests.playbook.examples import EXAMPLES, LONG, SAME_CODE
from tests.playbook.sites import case, cubins, interpret


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    """Two draws of inputs where a technique rewrote what today's torch generates; else one: an older torch's kernels,
    the compiler's own code, long rows."""
    def seeds(label: str, technique: str) -> tuple[int, ...]:
        return (1,) if label.startswith("torch2.11") or technique in (*SAME_CODE, *LONG) else (1, 2)

    return [{**case(e.call, e.candidate), "seeds": seeds(label, e.candidate.technique)}
            for label, e in EXAMPLES.items()]


def text(case: dict[str, Any]) -> str:
    """Equal for cases in which the same code does the same work: two versions of torch often write one kernel."""
    same = {**case, "baseline": case["baseline"].partition("@triton.jit")[2], "seeds": ()}
    return json.dumps(same, sort_keys=True)


def distinct_of(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One case for each text, that with the most draws."""
    return {text(c): c for c in sorted(cases, key=lambda c: len(c["seeds"]))}


@pytest.fixture(scope="session")
def interpreted(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> result of the candidate against the baseline under the interpreter; one process for all."""
    distinct = distinct_of(cases)
    found = dict(zip(distinct, interpret(list(distinct.values()), tmp_path_factory.mktemp("interpreted")), strict=True))
    return {label: found[text(c)] for label, c in zip(EXAMPLES, cases, strict=True)}


@pytest.fixture(scope="session")
def compiled(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> launches as sm_90 cubins, or the compiler's error; one process for all."""
    distinct = distinct_of(cases)
    found = dict(zip(distinct, cubins(list(distinct.values()), tmp_path_factory.mktemp("compiled")), strict=True))
    return {label: found[text(c)] for label, c in zip(EXAMPLES, cases, strict=True)}
