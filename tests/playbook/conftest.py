from __future__ import annotations

from typing import Any

import pytest

from tests.playbook.examples import EXAMPLES, LONG, SAME_CODE
from tests.playbook.sites import case, cubins, interpret


@pytest.fixture(scope="session")
def cases() -> list[dict[str, Any]]:
    """One draw of inputs where the code is the compiler's own or rows are long, two where a technique rewrote it."""
    return [{**case(e.call, e.candidate),
             "seeds": (1,) if e.candidate.technique in (*SAME_CODE, *LONG) else (1, 2)} for e in EXAMPLES.values()]


@pytest.fixture(scope="session")
def interpreted(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> result of the candidate against the baseline under the interpreter; one process for all."""
    return dict(zip(EXAMPLES, interpret(cases, tmp_path_factory.mktemp("interpreted")), strict=True))


@pytest.fixture(scope="session")
def compiled(cases: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Label -> launches as sm_90 cubins, or the compiler's error; one process for all."""
    return dict(zip(EXAMPLES, cubins(cases, tmp_path_factory.mktemp("compiled")), strict=True))
