from __future__ import annotations

import json
from typing import Any

import pytest

from tests.playbook.examples import LONG, SAME_CODE, examples, of
from tests.playbook.sites import case, cubins, interpret


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    def seeds(label: str, technique: str) -> tuple[int, ...]:
        return (1,) if label.startswith("torch2.11") or technique in (*SAME_CODE, *LONG) else (1, 2)

    return [{**case(e.call, e.candidate), "seeds": seeds(label, e.candidate.technique)}
            for label, e in examples().items()]


def text(case: dict[str, Any]) -> str:
    """Equal for cases in which the same code does the same work: two versions of torch often write one kernel."""
    same = {**case, "baseline": case["baseline"].partition("@triton.jit")[2], "seeds": ()}
    return json.dumps(same, sort_keys=True)


def distinct_of(cases: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """One case for each text, that with the most draws."""
    return {text(c): c for c in sorted(cases, key=lambda c: len(c["seeds"]))}


def spoilt() -> list[dict[str, Any]]:
    """Three candidates that are wrong: in what they compute, in where they write it, in that they do not."""
    good = next(case(e.call, e.candidate) for e in of("persistent_reduction").values())
    wrong = {**good, "source": good["source"].replace("tl.sum", "tl.max").replace("tmp6", "tmp5")}
    shifted = {**good, "source": good["source"].replace("tl.store(out_ptr", "tl.store(64 + out_ptr")}
    late = {**good, "plan": {**good["plan"], "launches": []}}
    return [wrong, shifted, late]


@pytest.fixture(scope="session")
def compared(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """Results under the interpreter of `distinct_of(cases)`, then of what is spoilt; one process for all."""
    return interpret([*distinct_of(cases).values(), *spoilt()], tmp_path_factory.mktemp("interpreted"))


@pytest.fixture(scope="session")
def interpreted(cases: list[dict[str, Any]], compared: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """Label -> result of the candidate against the baseline under the interpreter."""
    found = dict(zip(distinct_of(cases), compared, strict=False))
    return {label: found[text(c)] for label, c in zip(examples(), cases, strict=True)}


@pytest.fixture(scope="session")
def compiled(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> launches as sm_90 cubins, or the compiler's error; one process for all."""
    distinct = distinct_of(cases)
    found = dict(zip(distinct, cubins(list(distinct.values()), tmp_path_factory.mktemp("compiled")), strict=True))
    return {label: found[text(c)] for label, c in zip(examples(), cases, strict=True)}
