"""Every example of the handled events in @octokit/webhooks-examples: github.com's and GHES 3.1 to 3.5."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.events.job import Ignored, Job
from kernelopt_bot.events.payload import Surroundings, decide, pull_request_in
from kernelopt_bot.events.settings import Events, Policy

FOLDER = Path(__file__).parents[1] / "npm" / "node_modules" / "@octokit" / "webhooks-examples"
HANDLED = ("pull_request", "push", "issue_comment", "workflow_dispatch")
POLICY = Policy(Events(push=("*",)))

if not FOLDER.is_dir():
    pytest.skip("tests/npm is not installed: tools/setup.sh", allow_module_level=True)


def examples() -> Iterator[Any]:
    for file in sorted(FOLDER.glob("*/index.json")):
        for kind in json.loads(file.read_text()):
            if kind["name"] in HANDLED:
                for number, payload in enumerate(kind["examples"]):
                    action = payload.get("action", "")
                    yield pytest.param(kind["name"], payload, id=f"{file.parent.name}-{kind['name']}-{action}-{number}")


EXAMPLES = list(examples())
each = pytest.mark.parametrize(("name", "payload"), EXAMPLES)


def answer_to(name: str, payload: Any) -> Any:
    return decide(name, payload, POLICY, Surroundings(sha="1" * 40))


def expected(name: str, payload: Any) -> str:
    """What the examples' own fields say, without the code under test."""
    if name == "pull_request":
        pull, action = payload["pull_request"], payload["action"]
        if pull["user"]["login"].endswith("[bot]") or pull["draft"]:
            return "close" if action == "closed" else ""
        return {"opened": "optimize", "reopened": "optimize", "synchronize": "optimize",
                "ready_for_review": "optimize", "closed": "close"}.get(action, "") if (
                    pull["state"] == "open" or action == "closed") else ""
    # The examples' comments are no commands, and their pushes create branches or are of tags.
    return "optimize" if name == "workflow_dispatch" else ""


def test_all_are_there() -> None:
    found = [p.values[0] for p in EXAMPLES]
    assert {name: found.count(name) for name in HANDLED} == {
        "pull_request": 46, "push": 14, "issue_comment": 20, "workflow_dispatch": 7}


@each
def test_each_is_a_job_or_ignored_with_a_reason(name: str, payload: Any) -> None:
    answer = answer_to(name, payload)
    if isinstance(answer, Job):
        assert answer.repository == payload["repository"]["full_name"]
        assert answer.actor == payload["sender"]["login"]
        assert (answer.operation, answer.event) == (expected(name, payload), name)
    else:
        assert isinstance(answer, Ignored)
        assert answer.reason
        assert expected(name, payload) == ""


@pytest.mark.parametrize(("name", "payload"), [e for e in EXAMPLES if e.values[0] == "issue_comment"])
def test_a_command_in_the_example_of_a_comment(name: str, payload: Any) -> None:
    asked = copy.deepcopy(payload)
    asked["comment"]["body"] = "/kernelopt optimize"
    assert isinstance(answer_to(name, asked), Ignored), "the examples are comments on issues"
    asked["issue"]["pull_request"] = {"url": "https://api.github.com/repos/o/r/pulls/1"}
    answer = answer_to(name, asked)
    if payload["action"] == "created":
        assert isinstance(answer, Job)
        assert (answer.number, answer.comment_id) == (payload["issue"]["number"], payload["comment"]["id"])
    else:
        assert isinstance(answer, Ignored)


@pytest.mark.parametrize(("name", "payload"), [e for e in EXAMPLES if e.values[0] == "push"])
def test_a_push_that_creates_nothing(name: str, payload: Any) -> None:
    pushed = {**payload, "ref": "refs/heads/main", "before": "2" * 40, "after": "1" * 40, "created": False,
              "deleted": False}
    assert isinstance(answer_to(name, pushed), Job)


@pytest.mark.parametrize(("name", "payload"), [e for e in EXAMPLES if e.values[0] == "pull_request"])
def test_the_pull_request_reads_the_same_from_the_api(name: str, payload: Any) -> None:
    answer = answer_to(name, {**payload, "action": "closed"})
    assert isinstance(answer, Job)
    assert pull_request_in(payload["pull_request"]) == answer.pull_request
