"""Payloads: GitHub's shapes, who is ignored and why, and malformed ones.

`pull_request()` is written by us after the shapes of the npm package @octokit/webhooks-examples 7.6.1, whose 32
pull_request examples (github.com and GHES 3.1 to 3.5) were read with this module when it was written.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Ignored, Job, PullRequest
from kernelopt_bot.events.payload import decide, from_environment, read

HEAD, BASE = "1" * 40, "2" * 40


def pull_request(**changes: Any) -> dict[str, Any]:
    """A payload; `changes` go into its `pull_request`, `action` to the top."""
    repository = {"id": 7, "node_id": "R_7", "name": "models", "full_name": "octo-org/models", "private": False,
                  "default_branch": "trunk", "fork": True,
                  "owner": {"login": "octo-org", "id": 1, "type": "Organization"}}
    user = {"login": "octocat", "id": 2, "type": "User", "site_admin": False}
    whole = {
        "action": changes.pop("action", "opened"), "number": 12, "sender": user, "repository": repository,
        "pull_request": {
            "id": 99, "number": 12, "state": "open", "locked": False, "title": "Faster attention", "user": user,
            "body": None, "draft": False, "merged": False, "mergeable": None, "author_association": "MEMBER",
            "labels": [{"id": 1, "name": "perf", "color": "ffffff"}],
            "head": {"label": "octo-org:attention", "ref": "attention", "sha": HEAD, "user": user, "repo": repository},
            "base": {"label": "octo-org:trunk", "ref": "trunk", "sha": BASE, "user": user, "repo": repository},
            **changes},
    }
    # Through JSON, so that no part is shared with another.
    payload: dict[str, Any] = json.loads(json.dumps(whole))
    return payload


def head(**changes: Any) -> dict[str, Any]:
    return {**pull_request()["pull_request"]["head"], **changes}


@pytest.mark.parametrize("action", ["opened", "synchronize", "reopened", "ready_for_review"])
def test_what_brings_new_code_is_a_job(action: str) -> None:
    request = PullRequest(12, "Faster attention", "octocat", "attention", HEAD, "trunk", BASE, False, False, ("perf",))
    assert decide("pull_request", pull_request(action=action)) == Job(
        "pull_request", action, "octo-org/models", HEAD, BASE, request, "trunk")


@pytest.mark.parametrize("action", ["closed", "labeled", "edited", "converted_to_draft", "assigned", "locked"])
def test_other_actions_are_ignored(action: str) -> None:
    answer = decide("pull_request", pull_request(action=action))
    assert isinstance(answer, Ignored)
    assert action in answer.reason


@pytest.mark.parametrize(("changes", "reason"), [
    ({"draft": True}, "is a draft"),
    ({"state": "closed"}, "is closed"),
    ({"head": head(repo={"id": 8, "full_name": "somebody/models"})}, "comes from a fork"),
    ({"head": head(repo=None)}, "comes from a fork"),
    ({"head": head(ref="kernelopt-pr-3")}, "KernelOPT's own"),
    ({"user": {"login": "dependabot[bot]", "type": "Bot"}}, "opened by the bot dependabot[bot]"),
    ({"user": {"login": "renovate[bot]", "type": "User"}}, "opened by the bot renovate[bot]"),
])
def test_who_is_ignored_and_why(changes: dict[str, Any], reason: str) -> None:
    answer = decide("pull_request", pull_request(**changes))
    assert isinstance(answer, Ignored)
    assert answer.reason.startswith("pull request #12 ")
    assert reason in answer.reason


def test_a_fork_cannot_pass_by_taking_our_name() -> None:
    # The same full name under another id is another repository.
    answer = decide("pull_request", pull_request(head=head(repo={"id": 8, "full_name": "octo-org/models"})))
    assert isinstance(answer, Ignored)


def test_a_repository_that_is_a_fork_itself_has_pull_requests_of_its_own() -> None:
    payload = pull_request()
    assert payload["repository"]["fork"] is True
    assert isinstance(decide("pull_request", payload), Job)


def test_the_prefix_of_our_branches_is_configurable() -> None:
    payload = pull_request(head=head(ref="fast-pr-1"))
    assert isinstance(decide("pull_request", payload), Job)
    assert isinstance(decide("pull_request", payload, own_prefix="fast-"), Ignored)


def test_a_deleted_account_is_called_ghost() -> None:
    job = decide("pull_request", pull_request(user=None))
    assert isinstance(job, Job)
    assert job.pull_request is not None
    assert job.pull_request.author == "ghost"


@pytest.mark.parametrize("event", ["push", "issue_comment", "schedule", "workflow_dispatch", "pull_request_review"])
def test_other_events_are_ignored(event: str) -> None:
    answer = decide(event, {})
    assert isinstance(answer, Ignored)
    assert event in answer.reason


def test_pull_request_target_is_refused_with_the_reason() -> None:
    answer = decide("pull_request_target", pull_request())
    assert isinstance(answer, Ignored)
    assert "secrets" in answer.reason


@pytest.mark.parametrize(("path", "value", "where"), [
    (("pull_request",), None, "pull_request"),
    (("pull_request", "head", "sha"), "--upload-pack=x", "pull_request.head.sha"),
    (("pull_request", "head", "sha"), "1" * 39, "pull_request.head.sha"),
    (("pull_request", "head", "sha"), 1, "pull_request.head.sha"),
    (("pull_request", "number"), "12", "pull_request.number"),
    (("pull_request", "draft"), "no", "pull_request.draft"),
    (("pull_request", "labels"), ["perf"], "pull_request.labels.0"),
    (("repository", "full_name"), "a/b/../c", "repository.full_name"),
    (("action",), "opened\n::set-output", "action"),
])
def test_a_malformed_payload_is_bad_input(path: tuple[str, ...], value: Any, where: str) -> None:
    payload = pull_request()
    inner = payload
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    with pytest.raises(InputError, match="malformed") as caught:
        decide("pull_request", payload)
    assert caught.value.where == where
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("payload", [None, [], "text", 3, {}])
def test_what_is_no_payload_at_all(payload: Any) -> None:
    with pytest.raises(InputError, match="malformed"):
        decide("pull_request", payload)


def _places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, inner in items for place in _places(inner, (*path, key)))]


@given(st.sampled_from(_places(pull_request())[1:]),
       st.none() | st.integers() | st.text() | st.lists(st.text(), max_size=2))
def test_any_wrong_value_is_bad_input_or_harmless(path: tuple[Any, ...], value: Any) -> None:
    payload = copy.deepcopy(pull_request())
    inner = payload
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    try:
        answer = decide("pull_request", payload)
    except InputError as error:
        assert error.where
    else:
        assert isinstance(answer, Ignored) or len(answer.head_sha) == 40


class TestFiles:
    def test_the_environment_of_a_workflow(self, tmp_path: Path) -> None:
        (tmp_path / "event.json").write_text(json.dumps(pull_request()))
        job = from_environment({"GITHUB_EVENT_NAME": "pull_request", "GITHUB_EVENT_PATH": str(tmp_path / "event.json")})
        assert isinstance(job, Job)
        assert job.head_sha == HEAD

    @pytest.mark.parametrize(("environment", "missing"), [
        ({}, "GITHUB_EVENT_NAME"), ({"GITHUB_EVENT_NAME": "pull_request"}, "GITHUB_EVENT_PATH")])
    def test_not_in_a_workflow(self, environment: dict[str, str], missing: str) -> None:
        with pytest.raises(InputError, match=f"{missing} is not set") as caught:
            from_environment(environment)
        assert "kernelopt optimize PATH" in caught.value.fix

    def test_no_file(self, tmp_path: Path) -> None:
        with pytest.raises(InputError, match="cannot be read: No such file"):
            read("pull_request", tmp_path / "none.json")

    @pytest.mark.parametrize("text", [b"", b"{", b"\xff", b"[" * 100_000])
    def test_not_json(self, tmp_path: Path, text: bytes) -> None:
        (tmp_path / "event.json").write_bytes(text)
        with pytest.raises(InputError, match="is not JSON"):
            read("pull_request", tmp_path / "event.json")

    def test_too_long(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        (tmp_path / "event.json").write_text(json.dumps(pull_request()))
        monkeypatch.setattr("kernelopt_bot.events.payload.LIMIT", 100)
        with pytest.raises(InputError, match="25 MiB"):
            read("pull_request", tmp_path / "event.json")
