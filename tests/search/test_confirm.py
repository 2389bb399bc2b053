"""The confirmation's rules that need no worker, and a screening by a real one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.confirm import Confirmation, baselines, decisive
from kernelopt_bot.search.pipeline import _without_last
from kernelopt_bot.search.result import Comparison
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.stack import Stack, Stage
from kernelopt_bot.search.trials import Trials

PASSED = Verdict("model", Status.PASS)
FAILED = Verdict("performance", Status.FAIL, "lower bound 1.001 is not above 1.030")


def comparison(metric: str, cache: str) -> Comparison:
    return Comparison("default", "candidate", metric, cache, 1.2, 1.1, 1.3, 1.2, 1.0, 20)


def test_every_baseline_that_applies_is_to_be_beaten() -> None:
    arms, missing = baselines(has_gpu=True)
    assert [a["name"] for a in arms] == ["default", "eager", "reduce-overhead", "max-autotune"] and not missing
    arms, missing = baselines(has_gpu=False)
    assert [a["name"] for a in arms] == ["default", "eager", "max-autotune"]
    assert "GPU" in missing["reduce-overhead"]
    assert {a["name"]: a["mode"] for a in arms}["max-autotune"] == "max-autotune"


@pytest.mark.parametrize(("verdicts", "passed"), [
    ((PASSED, Verdict("performance", Status.PASS)), True), ((PASSED, FAILED), False), ((), False),
    ((PASSED, Verdict("performance", Status.NOT_MEASURED, "no GPU")), False)])
def test_a_confirmation_needs_verdicts_that_all_let_on(verdicts: tuple[Verdict, ...], passed: bool) -> None:
    assert Confirmation(verdicts, None, (), {}, None, ()).passed is passed


def test_a_cpu_is_compared_with_warm_caches(session: Callable[..., Session]) -> None:
    cold, warm, other = comparison("latency", "cold"), comparison("latency", "warm"), comparison("throughput", "warm")
    measured = Measured(PASSED, (cold, warm, other))
    assert decisive(measured, session(), Settings(metric="latency", cache="cold")) == (warm,)


def test_what_is_not_confirmed_is_taken_back_last_lever_first(tmp_path: Path) -> None:
    trials = Trials(Archive(tmp_path), Budget(10, 10, 10))
    first = OptionsCandidate("first", "dispatch", {"max_fusion_size": 8}, "max_fusion_size=8")
    second = OptionsCandidate("second", "launch", {"cpp_wrapper": True}, "cpp_wrapper")
    for candidate in (first, second):
        trials.update(trials.judged(candidate, PASSED), adopted=True)
    one = Stack().with_options(first)
    two = one.with_options(second)
    stages = [Stage("dispatch", one, 1, ""), Stage("launch", two, 1, ""), Stage("kernel", two, 0, "at its floor")]
    failed = Confirmation((PASSED, FAILED), None, (), {}, None, ())
    left = _without_last(stages, failed, trials)
    assert [s.adopted for s in left] == [1, 0, 0] and [s.stack for s in left] == [one, one, one]
    assert "performance gate: lower bound 1.001" in left[1].reason and left[2].reason == "at its floor"
    assert [t.adopted for t in trials.all()] == [True, False]
    assert "not confirmed" in trials.all()[1].note
    left = _without_last(left, failed, trials)
    assert all(s.stack.empty and not s.adopted for s in left)
    assert [t.adopted for t in Archive(tmp_path).load()] == [False, False]
