"""The end of a pull request of ours, by authorise and publish: after a merge, without a gain, with its source."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Swept, Verified
from tests.cli.conftest import Case
from tests.cli.test_phases_sweep import ARTIFACT, without_gain
from tests.github_stand_in import TOKEN
from tests.targets.conftest import Scratch

Made = tuple[RunResult, Path]


def published(case: Case, made: Made) -> int:
    """Our pull request's number."""
    case.run("authorise")
    case.execute(*made)
    assert case.publish() == 0
    number: int = case.ours()[0]["number"]
    return number


def close(case: Case, phase: str = "authorise", *, merged: bool) -> int:
    payload = case.pull_request("closed")
    payload["pull_request"] |= {"state": "closed", "merged": merged}
    case.repo.pulls[case.number] |= {"state": "closed", "merged": merged}
    return case.run(phase, payload=payload)


def test_after_the_merge_of_its_source_ours_is_retargeted_and_verified_there(case: Case, made: Made) -> None:
    number = published(case, made)
    case.repo.commit("main", {"models/block.py": "x = 2\n"}, "Faster models (#1)")
    tip = case.repo.sha(f"kernelopt-pr-{case.number}")
    assert close(case, merged=True) == 0
    assert (case.outputs["execute"], case.outputs["head-sha"]) == ("true", tip)
    job = read_order(case.job).job
    assert (job.operation, job.base_sha) == ("reverify", case.repo.sha("main"))
    case.execute(RunResult((), ""), made[1], Swept((Verified(ARTIFACT, "verified"),)))
    assert case.publish() == 0
    assert case.outputs["operation"] == "retargeted"
    ours = case.repo.pulls[number]
    assert (ours["base"]["ref"], ours["state"]) == ("main", "open")
    branch = f"kernelopt-pr-{case.number}"
    changed = case.repo.git("diff", "--name-only", f"main...{branch}").splitlines()
    assert changed and all(p.startswith(f"{ARTIFACT}/") for p in changed), "nothing of the source shows any more"
    assert case.repo.git("rev-list", "--count", f"{branch}..main") == "0"
    assert case.publish() == 0 and case.outputs["operation"] == "unchanged", "a phase that runs again changes nothing"
    assert f"`{ARTIFACT}`: verified" in case.comments(number).replace("\\", "")


def test_what_does_not_hold_after_the_merge_is_closed_with_the_reason(case: Case, made: Made) -> None:
    number = published(case, made)
    case.repo.commit("main", {"models/block.py": "x = 5\n"})
    close(case, merged=True)
    case.execute(RunResult((), ""), made[1], Swept((Verified(ARTIFACT, "regressed", "0.99x"),)))
    assert case.publish() == 0
    ours = case.repo.pulls[number]
    assert (case.outputs["operation"], ours["base"]["ref"], ours["state"]) == ("closed", "main", "closed")
    assert f"{ARTIFACT}: regressed: 0.99x" in case.comments(number).replace("\\", "")


def test_without_a_runner_ours_is_retargeted_all_the_same(case: Case, made: Made) -> None:
    number = published(case, made)
    case.repo.commit("main", {"models/block.py": "x = 2\n"}, "Faster models (#1)")
    close(case, merged=True)
    (case.folder / "bundle/bundle.json").unlink()
    assert case.publish("cancelled") == 0
    assert (case.outputs["operation"], case.repo.pulls[number]["base"]["ref"]) == ("retargeted", "main")


def test_a_closed_source_closes_ours(case: Case, made: Made) -> None:
    number = published(case, made)
    assert close(case, merged=False) == 0
    assert (case.outputs["execute"], case.outputs["proceed"]) == ("false", "true")
    assert case.publish("skipped") == 0
    assert (case.outputs["operation"], case.repo.pulls[number]["state"]) == ("closed", "closed")
    assert "the one that caused it was closed" in case.comments(number)


def test_a_gain_that_is_gone_is_withdrawn_only_by_a_search_that_ended(case: Case, made: Made) -> None:
    number = published(case, made)
    case.repo.commit("faster-models", {"models/block.py": "x = 3\n"})
    case.run("authorise")
    case.execute(without_gain(made[0]), made[1])
    account = case.folder / "bundle/account.json"
    whole = account.read_text()
    account.write_text(json.dumps(json.loads(whole) | {"ended": []}))
    assert case.publish() == 0
    assert (case.outputs["operation"], case.repo.pulls[number]["state"]) == ("reported", "open"), "the budget was spent"
    account.write_text(whole)
    assert case.publish() == 0
    assert (case.outputs["operation"], case.repo.pulls[number]["state"]) == ("closed", "closed")
    assert "nothing here is faster any more" in case.comments(number)


@pytest.mark.parametrize("merged", [True, False])
def test_one_process_does_the_same_without_a_verification(case: Case, made: Made, merged: bool,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    number = published(case, made)
    case.repo.commit("main", {"models/block.py": "x = 2\n"}, "Faster models (#1)")
    scratch = Scratch(case.folder / "clone")
    scratch.git("fetch", "-q", str(case.repo.path), "+refs/heads/*:refs/remotes/origin/*")
    scratch.git("checkout", "-q", "origin/faster-models")
    close(case, merged=merged)
    case.monkeypatch.chdir(scratch.root)
    case.monkeypatch.setenv("GITHUB_TOKEN", TOKEN)
    capsys.readouterr()
    assert main(["run", "--output", str(case.folder / "out")]) == 0
    out = capsys.readouterr().out
    ours = case.repo.pulls[number]
    assert ("retargeted" in out, ours["state"]) == (merged, "open" if merged else "closed")
    assert not merged or "not verified again on main: comment `/kernelopt verify`" in out
