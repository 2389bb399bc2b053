"""`kernelopt execute` for sweeps and after a merge, without a search: what is due is verified, and handed on."""

from __future__ import annotations

import json
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.cli import phases
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.optimize import end_in_time, end_with_what_was_verified
from kernelopt_bot.cli.phases import Order
from kernelopt_bot.compiler.artifact import Recipe, write_artifact
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.config import Config
from kernelopt_bot.events.job import Job
from kernelopt_bot.search.deadline import CONFIRM_S, LEAVE_S, WORDS, Deadline
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.sweep import Opened, Verified
from kernelopt_bot.search.sweeping import verify_each
from tests.targets.conftest import MODEL, Scratch

NET, GONE = "kernelopt_kernels/net", "kernelopt_kernels/gone"
WAITING = Opened(waiting="pull request #3 of an earlier sweep is open")


def artifact(root: Path, name: str) -> None:
    write_artifact(root / "kernelopt_kernels" / name, class_name="Model",
                   program=Program(name, "cpu", (), "2.0.0", "3.0.0", "cpu", {}), kernels=[], recipe=Recipe.of({}),
                   environment={"torch": "2.0.0", "triton": "3.0.0", "device": "cpu"},
                   evidence={"speedup": 1.5, "low": 1.4, "high": 1.6, "baseline": "default"})


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scratch:
    """`net` has an artifact that was verified with another torch; another one has lost its target."""
    made = Scratch(tmp_path / "project")
    artifact(made.root, "net")
    artifact(made.root, "gone")
    made.commit({"net.py": MODEL, ".kernelopt.yml": "device: cpu\n"})
    monkeypatch.chdir(made.root)
    return made


def execute(scratch: Scratch, job: Job, opened: Opened = WAITING) -> tuple[int, dict[str, Any]]:
    """The exit code, and the bundle's account."""
    out = scratch.root.parent
    phases.write_order(Order(job, scratch.git("rev-parse", "main"), opened), out / "job.json")
    code = main(["execute", "--job", str(out / "job.json"), "--bundle", str(out / "bundle"), "--output",
                 str(out / "out")])
    return code, json.loads((out / "bundle/account.json").read_text())


def sweep_job(scratch: Scratch) -> Job:
    head = scratch.git("rev-parse", "HEAD")
    return Job("schedule", "", "acme/kernels", head, head, source_branch="main", sweep=True)


def test_a_sweep_hands_on_states_plan_and_proposals(scratch: Scratch) -> None:
    # An edited one is known before any worker loads the model.
    scratch.commit({f"{NET}/__init__.py": "import os\n"})
    code, account = execute(scratch, sweep_job(scratch))
    assert code == 0, "what does not hold is no failure of the job: publish says it"
    states = {v["artifact"]: v["state"] for v in account["swept"]["verified"]}
    assert states == {GONE: "not measured", NET: "modified"}
    assert {p["artifact"]: p["action"] for p in account["swept"]["proposals"]} == {GONE: "keep", NET: "report"}
    assert account["swept"]["plan"]["left"] == [["net", WAITING.waiting]]


def test_near_the_time_limit_nothing_more_is_begun(tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
                                                   capsys: pytest.CaptureFixture[str]) -> None:
    made = Scratch(tmp_path / "project")
    made.commit({"net.py": MODEL, ".kernelopt.yml": "device: cpu\n"})
    monkeypatch.chdir(made.root)
    monkeypatch.setenv("KERNELOPT_DEADLINE", f"{time.time() + LEAVE_S + CONFIRM_S:.0f}")
    code, account = execute(made, sweep_job(made), Opened())
    assert code == 0 and "the job's time limit is near; not begun: net" in capsys.readouterr().out
    assert account["ended"] == [] and [s["target"] for s in account["swept"]["plan"]["searches"]] == ["net"]


def test_nothing_is_verified_near_the_time_limit(tmp_path: Path) -> None:
    near = Deadline(time.time() + LEAVE_S + CONFIRM_S)
    found, interrupted = verify_each({NET: "due"}, (), Config(), tmp_path, Silent(), near)
    assert found == (Verified(NET, "not measured", WORDS),) and not interrupted


def test_what_takes_too_long_is_interrupted_before_the_end() -> None:
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGALRM)}
    try:
        end_with_what_was_verified()
        end_in_time(Deadline(time.time() + LEAVE_S))
        with pytest.raises(KeyboardInterrupt):
            time.sleep(20)
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def test_after_a_merge_what_ours_offers_is_verified_together_with_its_new_base(scratch: Scratch) -> None:
    scratch.git("checkout", "-q", "-b", "kernelopt-pr-7")
    artifact(scratch.root, "sub_other")
    # An edited one is known before any worker is asked.
    scratch.write({"kernelopt_kernels/sub_other/__init__.py": "import os\n"})
    tip = scratch.commit({"sub/other.py": MODEL})
    scratch.git("checkout", "-q", "main")
    base = scratch.commit({"unrelated.py": "x = 1\n"})
    scratch.git("checkout", "-q", tip)
    job = replace(sweep_job(scratch), event="pull_request", operation="reverify", sweep=False, number=7, base_sha=base)
    code, account = execute(scratch, job)
    assert code == 0
    assert [(v["artifact"], v["state"]) for v in account["swept"]["verified"]] == [
        ("kernelopt_kernels/sub_other", "modified")], "and none that was there before"
    # The base took the file for something else: nothing can be verified together.
    scratch.git("checkout", "-q", "main")
    base = scratch.commit({"sub/other.py": "x = 2\n"})
    scratch.git("checkout", "-q", tip)
    code, account = execute(scratch, replace(job, base_sha=base))
    assert code == 0 and [(v["state"], v["reason"]) for v in account["swept"]["verified"]] == [
        ("failed", "it conflicts with the branch that it goes into")]


def test_a_time_limit_that_is_none(scratch: Scratch, monkeypatch: pytest.MonkeyPatch,
                                   capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("KERNELOPT_DEADLINE", "in an hour")
    assert main(["execute"]) == 2
    assert "KERNELOPT_DEADLINE is no time" in capsys.readouterr().err
