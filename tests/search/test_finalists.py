"""compute-sanitizer's findings become part of gate 2's verdict."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernelopt_bot.config import Config
from kernelopt_bot.device import sanitizer
from kernelopt_bot.device.sanitizer import ABSENT, Finding, Sanitizer
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.landlock import LandlockJail
from kernelopt_bot.search import finalists
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials
from tests.search.test_kernel_lever import kept

PASSED = Finding(Status.PASS, seconds=2.0)
FAILED = Finding(Status.FAIL, "memcheck: 1 errors: Invalid __global__ write of size 4 bytes", 3.0)


def session(setting: str) -> Session:
    config = Config.model_validate({"version": 1, "gates": {"sanitizer": setting}})
    return cast(Session, SimpleNamespace(config=config, progress=Silent()))


@pytest.mark.parametrize(("setting", "expected"), [("auto", ABSENT), ("off", finalists.OFF)])
def test_a_tool_that_is_absent_or_off_is_said_and_blocks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, setting: str, expected: Finding
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    if setting == "auto" and sanitizer.find() is not None:
        pytest.skip("compute-sanitizer is installed here, in the toolkit's folder")
    trials = Trials(Archive(tmp_path), Budget(60, 60, 100))
    (left,) = finalists.sanitized(session(setting), trials, [kept("a", 1.0)], tmp_path)
    assert left.trial.stopped_by is None and left.saved_us == 1.0
    evidence = left.trial.verdicts[1].evidence["sanitizer"]
    assert evidence == {tool: expected.to_json() for tool in sanitizer.TOOLS}
    assert evidence["memcheck"]["status"] == "not applicable" and evidence["memcheck"]["reason"]
    assert [t.verdicts for t in trials.all()] == [left.trial.verdicts]


def test_a_jail_that_the_tool_cannot_work_in_is_said_and_nothing_is_begun(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / sanitizer.NAME).write_text("#!/bin/sh\ntouch begun\n")
    (tmp_path / sanitizer.NAME).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    given = session("auto")
    object.__setattr__(given, "jail", LandlockJail())
    (left,) = finalists.sanitized(given, Trials(Archive(tmp_path), Budget(60, 60, 100)), [kept("a", 1.0)], tmp_path)
    assert left.trial.stopped_by is None and not (tmp_path / "begun").exists()
    evidence = left.trial.verdicts[1].evidence["sanitizer"]
    assert evidence == {tool: sanitizer.UNCONNECTED.to_json() for tool in sanitizer.TOOLS}
    assert evidence["memcheck"]["status"] == "not measured" and "docker" in evidence["memcheck"]["reason"]


def test_a_finding_fails_gate_2_in_the_tools_words() -> None:
    trial = kept("a", 1.0).trial
    good = finalists.noted(trial, {"memcheck": PASSED, "racecheck": PASSED})
    assert good.stopped_by is None and good.verdicts[1].seconds == 4.0
    bad = finalists.noted(trial, {"memcheck": FAILED, "racecheck": PASSED})
    assert bad.stopped_by is not None and bad.stopped_by.gate == "correctness"
    assert bad.stopped_by.reason == FAILED.reason and bad.verdicts[0] == trial.verdicts[0]
    unknown = dataclasses.replace(FAILED, status=Status.NOT_MEASURED)
    assert finalists.noted(trial, {"memcheck": unknown}).stopped_by is None


class Accuser:
    """Examines like the tool, and fails the steps named `bad`."""

    def examine(self, tool: str, steps: Sequence[Mapping[str, Any]]) -> tuple[Finding, ...]:
        return tuple(FAILED if s["name"] == "bad" and tool == "memcheck" else PASSED for s in steps)


def test_every_step_has_the_findings_of_its_own() -> None:
    found = finalists.examined(cast(Sanitizer, Accuser()), [{"name": "good"}, "too large", {"name": "bad"}])
    assert [f["memcheck"].status for f in found] == [Status.PASS, Status.NOT_MEASURED, Status.FAIL]
    assert [f["racecheck"].status for f in found] == [Status.PASS, Status.NOT_MEASURED, Status.PASS]
    assert found[1]["memcheck"].reason == "too large"
    assert finalists.examined(cast(Sanitizer, Accuser()), ["no"])[0]["racecheck"].reason == "no"
