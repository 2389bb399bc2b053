"""The phases authorise and publish against the GitHub stand-in, with a bundle that execute's writer made."""

from __future__ import annotations

import copy
import json
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.cli import phases
from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.phases import Order, read_order
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.github import GitHub
from kernelopt_bot.report.build import build
from kernelopt_bot.search.result import RunResult
from tests.github_stand_in import TOKEN, Hub, Repo, start
from tests.publish.test_bundle import made  # noqa: F401  (a fixture)

PAYLOADS = Path(__file__).parents[1] / "npm/node_modules/@octokit/webhooks-examples/api.github.com/index.json"
RUN = 4711
CONFIG = "version: 1\nevents: { quiet_s: 0, runs_a_day: 2 }\n"


@dataclass
class Case:
    hub: Hub
    repo: Repo
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    number: int = 0
    asking: int = 0
    """A person's comment on the pull request."""

    @property
    def head(self) -> str:
        return self.repo.sha("faster-models")

    def payload(self, event: str, action: str) -> dict[str, Any]:
        examples = next(e["examples"] for e in json.loads(PAYLOADS.read_text()) if e["name"] == event)
        payload = copy.deepcopy(next(e for e in examples if e.get("action") == action))
        payload["repository"]["full_name"] = self.repo.full_name
        payload["repository"]["default_branch"] = "main"
        return payload

    def pull_request(self, action: str = "opened") -> dict[str, Any]:
        payload = self.payload("pull_request", action)
        pull = payload["pull_request"]
        payload["number"] = pull["number"] = self.number
        pull["draft"], pull["state"], pull["user"]["type"] = False, "open", "User"
        pull["head"] |= {"ref": "faster-models", "sha": self.head}
        pull["base"] |= {"ref": "main", "sha": self.repo.sha("main")}
        for side in ("head", "base"):
            pull[side]["repo"] |= {"id": payload["repository"]["id"], "full_name": self.repo.full_name}
        return payload

    def comment(self, body: str, login: str = "octocat") -> dict[str, Any]:
        payload = self.payload("issue_comment", "created")
        payload["issue"]["number"] = self.number
        payload["issue"]["pull_request"] = {"url": f"{self.hub.url}/repos/acme/kernels/pulls/{self.number}"}
        payload["comment"] |= {"body": body, "id": self.asking, "performed_via_github_app": None}
        payload["comment"]["user"] |= {"login": login, "type": "User"}
        return payload

    def run(self, phase: str, *arguments: str, event: str = "pull_request",
            payload: dict[str, Any] | None = None) -> int:
        path = self.folder / "event.json"
        path.write_text(json.dumps(payload if payload is not None else self.pull_request()))
        (self.folder / "outputs").unlink(missing_ok=True)
        values = {
            "GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(path), "GITHUB_API_URL": self.hub.url,
            "GITHUB_REPOSITORY": self.repo.full_name, "GITHUB_TOKEN": TOKEN, "GITHUB_RUN_ID": str(RUN),
            "GITHUB_OUTPUT": str(self.folder / "outputs"), "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "KERNELOPT_APP": self.hub.app, "GITHUB_ACTIONS": "true"}
        for name, value in values.items():
            self.monkeypatch.setenv(name, value)
        return main([phase, "--job", str(self.job), *arguments])

    def publish(self, result: str = "success") -> int:
        return self.run("publish", "--bundle", str(self.folder / "bundle"), "--execute-result", result)

    @property
    def job(self) -> Path:
        return self.folder / "job.json"

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / "outputs").read_text().splitlines())

    @property
    def check(self) -> dict[str, Any]:
        [check] = self.repo.checks.values()
        return check

    def execute(self, run: RunResult, root: Path) -> None:
        """What the phase writes for this job, of a search that found `run`."""
        job = read_order(self.job).job
        run = replace(run, head_sha=job.head_sha, base_sha=job.base_sha, repository=job.repository,
                      pull_request=job.number or None)
        bundle.write(self.folder / "bundle", job, run, build(run), root)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    hub = start(tmp_path / "hub")
    repo = hub.create_repo("acme/kernels", {"models/block.py": "x = 1\n", ".kernelopt.yml": CONFIG})
    repo.commit("faster-models", {"models/block.py": "x = 2\n"})
    case = Case(hub, repo, tmp_path, monkeypatch)
    case.number, case.asking = _opened(case)
    repo.permissions["octocat"] = "write"
    yield case
    hub.stop()
    assert hub.violations == []


def _opened(case: Case) -> tuple[int, int]:
    """The pull request, and a comment on it."""
    github = GitHub("acme/kernels", TOKEN, base_url=case.hub.url, seconds_between_writes=None)
    number = github.request("POST", "pulls", {"base": "main", "head": "faster-models", "title": "Faster"})["number"]
    comment = github.request("POST", f"issues/{number}/comments", {"body": "/kernelopt ..."})["id"]
    case.repo.comments[comment]["user"]["login"] = "octocat"
    return int(number), int(comment)


def test_from_the_event_to_the_pull_request(case: Case, made: tuple[RunResult, Path],  # noqa: F811
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


def test_a_lost_runner_leaves_no_open_check(case: Case) -> None:
    case.run("authorise")
    assert case.publish("cancelled") == 0
    assert (case.check["status"], case.check["conclusion"]) == ("completed", "cancelled")
    assert case.outputs["operation"] == "reported" and "KernelOPT" in (case.folder / "summary.md").read_text()


def test_a_bundle_that_was_touched_is_refused_and_said(case: Case, made: tuple[RunResult, Path]) -> None:  # noqa: F811
    case.run("authorise")
    case.execute(*made)
    (case.folder / "bundle/evil.py").write_text("x = 1\n")
    assert case.publish() == 2
    assert case.check["conclusion"] == "failure" and len(case.repo.pulls) == 1


def test_a_newer_push_stops_the_publication(case: Case, made: tuple[RunResult, Path]) -> None:  # noqa: F811
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
    order = Order(Job("schedule", "", "acme/kernels", "a" * 40, "a" * 40, sweep=True, source_branch="main"), "b" * 40)
    phases.write_order(order, tmp_path / "job.json")
    assert read_order(tmp_path / "job.json") == order
