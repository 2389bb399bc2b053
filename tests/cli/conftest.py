"""A repository on the GitHub stand-in, a pull request, and the phases as a workflow runs them."""

from __future__ import annotations

import copy
import functools
import json
import shutil
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import github.Requester
import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.github import GitHub
from kernelopt_bot.report.build import build
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Swept
from tests.github_stand_in import TOKEN, Hub, Repo, start
from tests.publish.test_bundle import made  # noqa: F401  (a fixture)

PAYLOADS = Path(__file__).parents[1] / "npm/node_modules/@octokit/webhooks-examples/api.github.com/index.json"
RUN = 4711
CONFIG = "version: 1\nevents: { quiet_s: 0, runs_a_day: 2 }\n"


@functools.cache
def _payloads() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(PAYLOADS.read_text())
    return found


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
        examples = next(e["examples"] for e in _payloads() if e["name"] == event)
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
            payload: dict[str, Any] | None = None, branch: str = "main") -> int:
        path = self.folder / "event.json"
        path.write_text(json.dumps(payload if payload is not None else self.pull_request()))
        (self.folder / "outputs").unlink(missing_ok=True)
        values = {
            "GITHUB_EVENT_NAME": event, "GITHUB_EVENT_PATH": str(path), "GITHUB_API_URL": self.hub.url,
            "GITHUB_REPOSITORY": self.repo.full_name, "GITHUB_TOKEN": TOKEN, "GITHUB_RUN_ID": str(RUN),
            "GITHUB_OUTPUT": str(self.folder / "outputs"), "GITHUB_STEP_SUMMARY": str(self.folder / "summary.md"),
            "KERNELOPT_APP": self.hub.app, "GITHUB_ACTIONS": "true",
            "GITHUB_SHA": self.repo.sha(branch), "GITHUB_REF": f"refs/heads/{branch}"}
        for name, value in values.items():
            self.monkeypatch.setenv(name, value)
        return main([phase, "--job", str(self.job), *arguments])

    def publish(self, result: str = "success") -> int:
        return self.run("publish", "--bundle", str(self.folder / "bundle"), "--execute-result", result)

    def sweep(self) -> int:
        """The schedule's event."""
        return self.run("authorise", event="schedule", payload={"schedule": "17 2 * * *"})

    def ours(self) -> list[dict[str, Any]]:
        """Our pull requests, oldest first."""
        return [p for _, p in sorted(self.repo.pulls.items()) if p["head"]["ref"].startswith("kernelopt-")]

    def comments(self, number: int) -> str:
        return "\n".join(c["body"] for c in self.repo.comments.values()
                         if c["issue_url"].endswith(f"/issues/{number}"))

    @property
    def job(self) -> Path:
        return self.folder / "job.json"

    @property
    def outputs(self) -> dict[str, str]:
        return dict(line.split("=", 1) for line in (self.folder / "outputs").read_text().splitlines())

    @property
    def summary(self) -> str:
        """Without the marks that escape characters."""
        return (self.folder / "summary.md").read_text().replace("\\", "")

    @property
    def check(self) -> dict[str, Any]:
        [check] = self.repo.checks.values()
        return check

    def execute(self, run: RunResult, root: Path, swept: Swept | None = None) -> None:
        """What the phase writes for this job, of a search that found `run`."""
        job = read_order(self.job).job
        run = replace(run, head_sha=job.head_sha, base_sha=job.base_sha, repository=job.repository,
                      pull_request=job.number or None)
        shutil.rmtree(self.folder / "bundle", ignore_errors=True)
        bundle.write(self.folder / "bundle", job, run, build(run), root, swept)


@pytest.fixture
def case(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Case]:
    # PyGithub waits a second between two requests that write.
    monkeypatch.setattr(github.Requester, "time", SimpleNamespace(sleep=lambda seconds: None))
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
    client = GitHub("acme/kernels", TOKEN, base_url=case.hub.url, seconds_between_writes=None)
    number = client.request("POST", "pulls", {"base": "main", "head": "faster-models", "title": "Faster"})["number"]
    comment = client.request("POST", f"issues/{number}/comments", {"body": "/kernelopt ..."})["id"]
    case.repo.comments[comment]["user"]["login"] = "octocat"
    return int(number), int(comment)
