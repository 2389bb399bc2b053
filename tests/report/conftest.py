from __future__ import annotations

import pytest

from kernelopt_bot.search.result import RunResult, TargetResult
from tests.report import results


@pytest.fixture
def full() -> TargetResult:
    return results.full_result()


@pytest.fixture
def pretended() -> TargetResult:
    return results.pretended_result()


@pytest.fixture
def failed() -> TargetResult:
    return results.failed_result()


@pytest.fixture
def run() -> RunResult:
    return results.whole_run()
