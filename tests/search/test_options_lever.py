"""An option lever with a real worker: whatever the machine's noise decides, the record is whole and consistent."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelopt_bot.device import roofs
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.gates.verdict import GATES, Status
from kernelopt_bot.search import capturing, options_lever, screening
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials
from tests.search.conftest import TARGET


@pytest.mark.slow
@pytest.mark.exhaustive
def test_the_launch_lever_takes_its_candidate_through_the_gates(
        session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "SECONDS", {False: 0.2})
    made = session(budget={"wall_s": 240})
    trials = Trials(made.archive, made.budget)
    # A gain that anything reaches in screening, so that the gates are what decides.
    settings = replace(Settings(), min_gain=0.01, no_regress=0.01, cache="warm", budget_s=0.5)
    with made.model_worker("model") as worker:
        versions = worker.call("hello", {}, timeout=120)
        load(made, worker, TARGET)
        captured = capturing.capture(worker, "net", "cpu", "cpu", versions, save=False)
        profile = capturing.profile(worker, captured, roofs.assumed("cpu", cores=1), {})
        outcome = options_lever.run(made, worker, Stack(), captured.program, profile, "launch", trials, settings,
                                    {"torch": versions["torch"], "triton": versions["triton"], "device": "cpu"},
                                    "Model")
    [trial] = trials.all()
    assert trial.candidate.lever == "launch"
    assert [v.gate for v in trial.verdicts] == list(GATES)[:len(trial.verdicts)]
    assert [v.status for v in trial.verdicts[:3]] in (
        [Status.PASS, Status.PASS, Status.PASS], [Status.PASS, Status.NOT_APPLICABLE, Status.PASS])
    assert made.archive.load() == (trial,)
    assert trial.adopted == trial.verdicts[-1].lets_on == (outcome.measured is not None)
    if trial.adopted:
        assert outcome.stack.options == {"cpp_wrapper": True} and outcome.reason == ""
        assert outcome.stack.folder is not None and (outcome.stack.folder / "manifest.json").is_file()
    else:
        assert outcome.stack.empty and "performance gate" in outcome.reason
