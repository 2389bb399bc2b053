"""GitHub's example payloads through the phase authorise, against the stand-in."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest

from kernelopt_bot.cli.phases import read_order
from kernelopt_bot.events.job import Job
from kernelopt_bot.events.payload import Surroundings, decide
from kernelopt_bot.events.settings import Events, Policy
from tests.cli.conftest import CONFIG, PAYLOADS, Case, case  # noqa: F401  (a fixture)

POLICY = Policy(Events(push=("*",)))
EVENTS = {"pull_request": {"opened", "reopened", "synchronize", "ready_for_review", "closed"}, "push": {""},
          "issue_comment": {"created"}, "workflow_dispatch": {""}}
"""Event -> actions whose examples give a job once they are about the stand-in's repository."""


def examples(event: str) -> list[dict[str, Any]]:
    """One of each action; `tests/events/test_examples.py` puts all of them through the policy."""
    found = next(e["examples"] for e in json.loads(PAYLOADS.read_text()) if e["name"] == event)
    return list({str(example.get("action", "")): example for example in reversed(found)}.values())


def about(case: Case, event: str, example: dict[str, Any]) -> dict[str, Any]:  # noqa: F811
    """The example with the names and commits of what the stand-in holds; what else it says stays."""
    payload = copy.deepcopy(example)
    payload["repository"] |= {"full_name": case.repo.full_name, "default_branch": "main"}
    match event:
        case "pull_request":
            pull = payload["pull_request"]
            payload["number"] = pull["number"] = case.number
            pull["head"] |= {"ref": "faster-models", "sha": case.head}
            pull["base"] |= {"ref": "main", "sha": case.repo.sha("main")}
            for side in ("head", "base"):
                pull[side]["repo"] |= {"id": payload["repository"]["id"], "full_name": case.repo.full_name}
            case.repo.pulls[case.number] |= {key: pull[key] for key in ("state", "draft")}
        case "push":
            payload |= {"ref": "refs/heads/faster-models", "before": case.repo.sha("main"), "after": case.head,
                        "created": False, "deleted": False}
        case "issue_comment":
            payload["issue"] |= {"number": case.number, "pull_request": {}}
            payload["comment"] |= {"id": case.asking, "body": "/kernelopt optimize"}
            case.repo.permissions[payload["comment"]["user"]["login"]] = "write"
        case "workflow_dispatch":
            payload |= {"ref": "refs/heads/main", "inputs": {"command": "verify"}}
    return payload


@pytest.mark.parametrize("event", EVENTS)
def test_examples_that_give_a_job_are_authorised(case: Case, event: str) -> None:  # noqa: F811
    case.repo.commit("main", {".kernelopt.yml": CONFIG.replace("{ quiet_s", "{ push: ['*'], quiet_s")})
    case.monkeypatch.setenv("GITHUB_SHA", case.repo.sha("main"))
    seen = set()
    for example in examples(event):
        payload = about(case, event, example)
        action = str(payload.get("action", ""))
        job = decide(event, payload, POLICY, Surroundings(sha=case.repo.sha("main")))
        assert case.run("authorise", "--no-wait", event=event, payload=payload) == 0
        if isinstance(job, Job):
            seen.add(action)
            assert case.outputs["proceed"] == "true", (action, case.outputs)
            assert case.outputs["execute"] == ("false" if action == "closed" else "true")
            assert read_order(case.job).job.head_sha in (case.head, case.repo.sha("main"))
        else:
            assert case.outputs["proceed"] == "false" and case.outputs["reason"]
    assert seen == EVENTS[event]
