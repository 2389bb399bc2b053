from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import pytest

from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Plan
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search import kernel_lever
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.kernel_lever import Kept
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.spots import Spot
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials


class NoWorker:
    """Fails the test when a gate is run after all."""

    def call(self, method: str, *arguments: Any, **keywords: Any) -> dict[str, Any]:
        raise AssertionError(f"{method} was called")


def spot_of(*hashes: str) -> Spot:
    return Spot("+".join(hashes), 0.0, 1, frozenset(hashes), (), None, {}, {}, (), 0, lambda lent: [],
                lambda answers: [])


def kept(name: str, saved_us: float) -> Kept:
    plan = Plan((), (Launch("k", ("1",), ()),))
    candidate = KernelCandidate(name, "hash", 0, (0,), "source", plan, "technique")
    passed = (Verdict("static", Status.PASS), Verdict("correctness", Status.PASS))
    return Kept(Trial(candidate, passed, before_us=10.0, after_us=10.0 - saved_us), spot_of(name), saved_us)


@pytest.mark.parametrize("saved", [[1.0], [4.0, 5.0, 6.0]])
def test_no_gate_is_run_for_kernels_that_cannot_reach_the_gain(tmp_path: Path, saved: list[float]) -> None:
    """15 us of 1000 us, half as much again for optimism, are 2.3%: below the 3% that gate 4 asks for."""
    trials = Trials(Archive(tmp_path), Budget(60, 60, 100))
    found = tuple(kept(f"c{i}", s) for i, s in enumerate(saved))
    stack, measured, reason = kernel_lever.adopt(
        cast(Session, None), cast(Worker, NoWorker()), Stack(), cast(Captured, None), found, trials,
        Settings(min_gain=1.03), None, {}, "Model", 1000.0)
    assert stack.empty and measured is None
    assert f"{sum(saved):.1f} us of a call of 1000 us" in reason
    assert [t.note for t in trials.all()] == [reason] * len(saved)
    assert not any(t.adopted for t in trials.all())


def test_kernels_that_can_reach_it_go_to_the_gates(tmp_path: Path) -> None:
    trials = Trials(Archive(tmp_path), Budget(60, 60, 100))
    with pytest.raises(AttributeError):
        kernel_lever.adopt(
            cast(Session, None), cast(Worker, NoWorker()), Stack(), cast(Captured, None), (kept("c", 30.0),), trials,
            Settings(min_gain=1.03), None, {}, "Model", 1000.0)


def test_nothing_kept_is_said(tmp_path: Path) -> None:
    trials = Trials(Archive(tmp_path), Budget(60, 60, 100))
    found = kernel_lever.adopt(cast(Session, None), cast(Worker, NoWorker()), Stack(), cast(Captured, None), (), trials,
                               Settings(), None, {}, "Model", 1000.0)
    assert found[1:] == (None, "no candidate passed gates 1 and 2 and was faster on its step")


def test_of_spots_that_share_a_step_the_one_that_saves_more_is_taken(tmp_path: Path) -> None:
    trials = Trials(Archive(tmp_path), Budget(60, 60, 100))
    run = replace(kept("run", 5.0), spot=spot_of("a", "b"))
    other = replace(kept("other", 6.0), spot=spot_of("b", "c"))
    single = replace(kept("single", 2.0), spot=spot_of("a"))
    assert kernel_lever.compatible(trials, [single, run, other]) == [other, single]
    assert {t.candidate.id: t.note for t in trials.all()} == {"run": "shares a step with other, which saves more"}
    assert kernel_lever.compatible(trials, [single, run]) == [run]
