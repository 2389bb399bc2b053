"""The phases authorise and publish against the GitHub stand-in, with a bundle that execute's writer made."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime
from pathlib import Path

import pytest

from kernelopt_bot.cli import phases
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.phases import Order, read_order
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Opened
from tests.cli.conftest import RUN, Case


def test_from_the_event_to_the_pull_request(case: Case, made: tuple[RunResult, Path],
                                            capsys: pytest.CaptureFixture[str]) -> None:
    before = len(case.hub.log)
    assert case.run("authorise") == 0, capsys.readouterr()
    out = case.outputs
    assert (out["execute"], out["proceed"], out["head-sha"]) == ("true", "true", case.head)
    assert (out["artifact"], out["source"]) == (f"kernelopt-event-pr-{case.number}", f"pr-{case.number}")
    assert case.check["status"] == "queued" and case.check["head_sha"] == case.head
    case.execute(*made)
    assert case.publish() == 0, capsys.readouterr()
    assert len(case.hub.log) - before <= 40, "requests of both phases"
    out = case.outputs
    ours = next(p for p in case.repo.pulls.values() if p["number"] != case.number)
    assert (out["operation"], out["pull-request-number"]) == ("created", str(ours["number"]))
    assert out["adopted"] == "2" and float(out["speedup"]) > 1 and "performance" in out["gates"]
    assert ours["base"]["ref"] == "faster-models" and ours["head"]["ref"] == f"kernelopt-pr-{case.number}"
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "success")
    changed = case.repo.git("diff", "--name-only", "faster-models", f"kernelopt-pr-{case.number}").splitlines()
    assert changed and all(p.startswith("kernelopt_kernels/transformer_block/") for p in changed)
    assert "::add-mask::" in capsys.readouterr().err
    assert case.publish() == 0 and case.outputs["operation"] == "unchanged", "a phase that runs again changes nothing"


def test_an_apps_token_opens_the_pull_request_and_one_identity_shows_the_run(
        case: Case, made: tuple[RunResult, Path]) -> None:
    case.hub.others = {"the-apps-token": ("acme-perf[bot]", "acme-perf")}
    asked = case.comment("/kernelopt optimize")
    assert case.run("authorise", event="issue_comment", payload=asked) == 0
    assert [r["content"] for r in case.repo.reactions] == ["eyes", "rocket"]
    [comment] = [c for i, c in case.repo.comments.items() if i != case.asking]
    assert "waits for a GPU runner" in comment["body"]
    case.execute(*made)
    case.monkeypatch.setenv("KERNELOPT_APP_TOKEN", "the-apps-token")
    assert case.publish() == 0
    ours = next(p for p in case.repo.pulls.values() if p["number"] != case.number)
    assert ours["user"]["login"] == "acme-perf[bot]"
    assert (case.check["app"]["slug"], case.check["status"]) == (case.hub.app, "completed")
    [comment] = [c for i, c in case.repo.comments.items() if i != case.asking]
    assert comment["user"]["login"] == case.hub.login and f"[#{ours['number']}]" in comment["body"]


def test_a_lost_runner_leaves_no_open_check(case: Case) -> None:
    case.run("authorise")
    assert case.publish("cancelled") == 0
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "cancelled")
    assert case.outputs["operation"] == "reported" and "KernelOPT" in (case.folder / "summary.md").read_text()


def test_a_bundle_that_was_touched_is_refused_and_said(case: Case, made: tuple[RunResult, Path]) -> None:
    case.run("authorise")
    case.execute(*made)
    (case.folder / "bundle/evil.py").write_text("x = 1\n")
    assert case.publish() == 2
    assert case.check["conclusion"] == "failure" and len(case.repo.pulls) == 1


def test_a_newer_push_stops_the_publication(case: Case, made: tuple[RunResult, Path]) -> None:
    case.run("authorise")
    case.execute(*made)
    old = case.head
    case.repo.commit("faster-models", {"models/block.py": "x = 3\n"})
    assert case.publish() == 0
    assert case.outputs["operation"] == "reported" and len(case.repo.pulls) == 1
    assert (case.check["head_sha"], case.check["conclusion"]) == (old, "neutral")


def test_runs_a_day_are_counted_by_the_jobs_artifacts(case: Case) -> None:
    today = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    name = f"kernelopt-event-pr-{case.number}"
    case.repo.artifacts += [(1, name, today), (2, name, "2020-01-01T00:00:00Z"), (RUN, name, today)]
    case.run("authorise")
    assert case.outputs["execute"] == "true"
    case.repo.artifacts.append((3, name, today))
    case.run("authorise")
    assert case.outputs["execute"] == "false" and "runs_a_day" in case.outputs["reason"]


@pytest.mark.parametrize("permission", ["read", "none", None])
def test_who_may_not_ask_gets_no_answer_and_no_run(case: Case, permission: str | None) -> None:
    case.repo.permissions.pop("octocat")
    if permission:
        case.repo.permissions["octocat"] = permission
    assert case.run("authorise", event="issue_comment", payload=case.comment("/kernelopt optimize")) == 0
    assert case.outputs["execute"] == "false" and not case.job.exists()
    assert list(case.repo.comments) == [case.asking] and not case.repo.checks


def test_chatter_costs_no_request(case: Case) -> None:
    before = len(case.hub.log)
    assert case.run("authorise", event="issue_comment", payload=case.comment("looks good")) == 0
    assert len(case.hub.log) == before and case.outputs["proceed"] == "false"


def test_help_is_answered_once(case: Case) -> None:
    for _ in range(2):
        assert case.run("authorise", event="issue_comment", payload=case.comment("/kernelopt help")) == 0
    [comment] = [c for i, c in case.repo.comments.items() if i != case.asking]
    assert "optimize" in comment["body"]
    assert case.repo.reactions


def test_cancel_ends_the_runs_of_this_pull_request_alone(case: Case) -> None:
    case.repo.runs |= {1: "in_progress", 2: "completed", 3: "in_progress"}
    stamp = "2026-01-01T00:00:00Z"
    case.repo.artifacts += [(1, f"kernelopt-event-pr-{case.number}", stamp),
                            (2, f"kernelopt-command-pr-{case.number}", stamp), (3, "kernelopt-event-pr-777", stamp)]
    assert case.run("authorise", event="issue_comment", payload=case.comment("/kernelopt cancel")) == 0
    assert case.repo.runs == {1: "completed", 2: "completed", 3: "in_progress"}
    [comment] = [c for i, c in case.repo.comments.items() if i != case.asking]
    assert "/actions/runs/1" in comment["body"]


def test_a_policy_in_the_pull_request_changes_nothing(case: Case) -> None:
    case.repo.commit("faster-models", {".kernelopt.yml": "version: 1\nevents: { automatic: false }\n"})
    case.run("authorise")
    assert case.outputs["execute"] == "true"
    assert read_order(case.job).policy_sha == case.repo.sha("main")


def test_execute_refuses_another_commit(case: Case, capsys: pytest.CaptureFixture[str]) -> None:
    case.run("authorise")
    clone = case.folder / "clone"
    subprocess.run(["git", "clone", "-q", "--branch", "main", str(case.repo.path), str(clone)], check=True)
    case.monkeypatch.chdir(clone)
    assert main(["execute", "--job", str(case.job), "--bundle", str(case.folder / "b")]) == 2
    assert "the checkout is not at the job's commit" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["", "{}", "[]", "{\"job\": 1, \"policy_sha\": 2}"])
def test_a_malformed_job(tmp_path: Path, text: str) -> None:
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(InputError):
        read_order(tmp_path / "job.json")


def test_a_job_comes_back_as_it_was(tmp_path: Path) -> None:
    order = Order(Job("schedule", "", "acme/kernels", "a" * 40, "a" * 40, sweep=True, source_branch="main"), "b" * 40,
                  Opened(2, ("encoder",), "x"))
    phases.write_order(order, tmp_path / "job.json")
    assert read_order(tmp_path / "job.json") == order
