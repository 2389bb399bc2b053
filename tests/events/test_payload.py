"""Payloads: GitHub's shapes, who is ignored and why, and malformed ones.

`pull_request()` is written by us after the shapes of the npm package @octokit/webhooks-examples 7.6.1;
`test_examples.py` reads those themselves.
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
from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.job import Ignored, Job, PullRequest
from kernelopt_bot.events.payload import Surroundings, decide, from_environment, pull_request_in, read
from kernelopt_bot.events.settings import Events, Policy

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
    request = PullRequest(12, "Faster attention", "octocat", "attention", HEAD, "trunk", BASE, False, False, ("perf",),
                          head_repository="octo-org/models")
    assert decide("pull_request", pull_request(action=action)) == Job(
        "pull_request", action, "octo-org/models", HEAD, BASE, request, "trunk", actor="octocat",
        source_branch="attention", number=12)


def test_the_head_before_a_push_is_kept() -> None:
    job = decide("pull_request", {**pull_request(action="synchronize"), "before": BASE, "after": HEAD})
    assert isinstance(job, Job)
    assert job.before == BASE


@pytest.mark.parametrize("action", ["edited", "converted_to_draft", "assigned", "locked", "review_requested"])
def test_other_actions_are_ignored(action: str) -> None:
    answer = decide("pull_request", pull_request(action=action))
    assert isinstance(answer, Ignored)
    assert "changes no code" in answer.reason


def test_an_edit_that_changes_the_base_is_a_job() -> None:
    payload = pull_request(action="edited")
    payload["changes"] = {"base": {"ref": {"from": "old"}, "sha": {"from": "3" * 40}}}
    assert isinstance(decide("pull_request", payload), Job)
    payload["changes"] = {"title": {"from": "old"}}
    assert isinstance(decide("pull_request", payload), Ignored)


@pytest.mark.parametrize(("action", "label", "operation"), [
    ("labeled", "kernelopt", "optimize"), ("unlabeled", "no-kernelopt", "optimize"),
    ("labeled", "no-kernelopt", "cancel"), ("labeled", "bug", None), ("unlabeled", "bug", None),
    ("unlabeled", "kernelopt", None)])
def test_labels(action: str, label: str, operation: str | None) -> None:
    answer = decide("pull_request", {**pull_request(action=action), "label": {"name": label}})
    assert (answer.operation if isinstance(answer, Job) else None) == operation


def test_the_label_that_asks_may_not_come_from_a_bot() -> None:
    payload = {**pull_request(action="labeled"), "label": {"name": "kernelopt"}}
    payload["sender"] = {"login": "labeler[bot]", "type": "Bot"}
    answer = decide("pull_request", payload)
    assert isinstance(answer, Ignored)
    assert "set by the bot labeler[bot]" in answer.reason


@pytest.mark.parametrize("merged", [True, False])
def test_a_closed_pull_request_closes_ours(merged: bool) -> None:
    job = decide("pull_request", pull_request(action="closed", state="closed", merged=merged))
    assert isinstance(job, Job)
    assert job.operation == "close"
    assert not job.executes
    assert job.pull_request is not None
    assert (job.pull_request.closed, job.pull_request.merged) == (True, merged)


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
    assert isinstance(decide("pull_request", payload, Policy(own_prefix="fast-")), Ignored)


def test_a_deleted_account_is_called_ghost() -> None:
    job = decide("pull_request", pull_request(user=None))
    assert isinstance(job, Job)
    assert job.pull_request is not None
    assert job.pull_request.author == "ghost"


@pytest.mark.parametrize("event", ["pull_request_review", "check_run", "workflow_run", "", "::error::"])
def test_other_events_are_ignored(event: str) -> None:
    answer = decide(event, {})
    assert isinstance(answer, Ignored)
    assert event in answer.reason


@pytest.mark.parametrize("event", ["push", "issue_comment", "schedule", "workflow_dispatch"])
def test_an_empty_payload_of_a_handled_event_is_bad_input(event: str) -> None:
    with pytest.raises(InputError, match=f"the {event} payload is malformed"):
        decide(event, {})


class TestPush:
    def push(self, **changes: Any) -> dict[str, Any]:
        commit = {"id": HEAD, "message": "Faster attention"}
        return {"ref": "refs/heads/trunk", "before": BASE, "after": HEAD, "created": False, "deleted": False,
                "commits": [commit], "head_commit": commit, "repository": pull_request()["repository"],
                "sender": pull_request()["sender"], **changes}

    policy = Policy(Events(push=("trunk", "release-*")))

    def test_a_configured_branch(self) -> None:
        assert decide("push", self.push(), self.policy) == Job(
            "push", "", "octo-org/models", HEAD, BASE, None, "trunk", actor="octocat", source_branch="trunk",
            before=BASE)

    @pytest.mark.parametrize(("changes", "reason"), [
        ({"ref": "refs/heads/attention"}, "events.push does not name it"),
        ({"ref": "refs/tags/trunk"}, "only pushes to branches"),
        ({"deleted": True, "after": "0" * 40, "head_commit": None, "commits": []}, "deleted the branch"),
        ({"created": True, "before": "0" * 40}, "nothing to compare"),
        ({"head_commit": {"id": HEAD, "message": "Fix\n\n[skip KernelOPT]"}}, "says [skip kernelopt]"),
        ({"commits": [{"id": HEAD, "message": "perf\n\nKernelOPT-Key: 1"}],
          "head_commit": {"id": HEAD, "message": "perf\n\nKernelOPT-Key: 1"}}, "KernelOPT's own"),
        ({"commits": [{"id": "3" * 40, "message": "perf\n\nKernelOPT-Key: 1"}],
          "head_commit": {"id": HEAD, "message": "Merge pull request #3 from octo-org/kernelopt-pr-1\n\nperf"}},
         "KernelOPT's own"),
    ])
    def test_what_is_ignored_and_why(self, changes: dict[str, Any], reason: str) -> None:
        answer = decide("push", self.push(**changes), self.policy)
        assert isinstance(answer, Ignored)
        assert reason in answer.reason

    def test_our_branches_even_where_configured(self) -> None:
        answer = decide("push", self.push(ref="refs/heads/kernelopt-pr-1"), Policy(Events(push=("*",))))
        assert isinstance(answer, Ignored)

    def test_our_commit_below_a_persons_is_no_reason_to_stop(self) -> None:
        ours = {"id": "3" * 40, "message": "perf\n\nKernelOPT-Key: 1"}
        commits = [ours, {"id": HEAD, "message": "Faster attention"}]
        assert isinstance(decide("push", self.push(commits=commits), self.policy), Job)


class TestOnBranches:
    around = Surroundings("octo-org/models", HEAD, "refs/heads/trunk")

    def test_a_schedule_is_a_sweep(self) -> None:
        assert decide("schedule", {"schedule": "7 3 * * *"}, None, self.around) == Job(
            "schedule", "", "octo-org/models", HEAD, HEAD, None, "trunk", source_branch="trunk", sweep=True)

    def test_without_its_environment(self) -> None:
        with pytest.raises(InputError, match="schedule payload") as caught:
            decide("schedule", {"schedule": "7 3 * * *"})
        assert "GITHUB_SHA" in caught.value.fix

    def dispatch(self, **changes: Any) -> dict[str, Any]:
        return {"ref": "refs/heads/trunk", "inputs": None, "repository": pull_request()["repository"],
                "sender": pull_request()["sender"], "workflow": ".github/workflows/first.yml", **changes}

    @pytest.mark.parametrize(("inputs", "operation", "sweep", "targets"), [
        (None, "optimize", True, None), ({}, "optimize", True, None), ({"command": " "}, "optimize", True, None),
        ({"command": "optimize"}, "optimize", True, ()), ({"command": "verify"}, "verify", True, ()),
        ({"command": "optimize encoder --budget 5m"}, "optimize", False, ("encoder",)),
        ({"command": "/kernelopt verify encoder"}, "verify", False, ("encoder",)),
    ])
    def test_dispatch(self, inputs: Any, operation: str, sweep: bool, targets: tuple[str, ...] | None) -> None:
        job = decide("workflow_dispatch", self.dispatch(inputs=inputs), None, self.around)
        assert isinstance(job, Job)
        assert (job.operation, job.sweep, job.actor, job.source_branch) == (operation, sweep, "octocat", "trunk")
        assert (job.command.targets if job.command else None) == targets

    @pytest.mark.parametrize("inputs", [{"command": "optimise"}, {"command": 3}, {"command": "optimize --x"}])
    def test_a_wrong_input(self, inputs: Any) -> None:
        with pytest.raises(InputError):
            decide("workflow_dispatch", self.dispatch(inputs=inputs), None, self.around)

    @pytest.mark.parametrize(("changes", "reason"), [
        ({"ref": "refs/tags/v1"}, "not on refs/tags/v1"), ({"ref": "refs/heads/kernelopt-pr-1"}, "KernelOPT's own"),
        ({"inputs": {"command": "cancel"}}, "cancel is for comments")])
    def test_dispatch_that_is_ignored(self, changes: dict[str, Any], reason: str) -> None:
        answer = decide("workflow_dispatch", self.dispatch(**changes), None, self.around)
        assert isinstance(answer, Ignored)
        assert reason in answer.reason


class TestComments:
    def comment(self, body: Any, **changes: Any) -> dict[str, Any]:
        user = pull_request()["sender"]
        return {"action": changes.pop("action", "created"), "repository": pull_request()["repository"], "sender": user,
                "issue": {"number": 12, "state": "open", "title": "x", "pull_request": {"url": "https://x"},
                          **changes.pop("issue", {})},
                "comment": {"id": 5, "body": body, "user": user, "author_association": "NONE", **changes}}

    def test_a_command(self) -> None:
        assert decide("issue_comment", self.comment("/kernelopt verify encoder\nplease")) == Job(
            "issue_comment", "created", "octo-org/models", "", "", None, "trunk", "verify", "octocat",
            command=Command("verify", ("encoder",)), number=12, comment_id=5)

    @pytest.mark.parametrize(("body", "changes", "reason"), [
        ("/kernelopt verify", {"action": "edited"}, "only a new one"),
        ("/kernelopt verify", {"action": "deleted"}, "only a new one"),
        ("/kernelopt verify", {"issue": {"pull_request": None}}, "on an issue"),
        ("/kernelopt verify", {"user": {"login": "x[bot]", "type": "Bot"}}, "the bot x[bot]"),
        ("/kernelopt verify", {"user": None}, "the bot ghost"),
        ("/kernelopt verify", {"performed_via_github_app": {"id": 1}}, "the bot octocat"),
        ("/kernelopt verify\n<!-- kernelopt:status -->", {}, "KernelOPT's own"),
        ("> /kernelopt verify", {}, "no command"),
        (None, {}, "no command"),
    ])
    def test_what_is_ignored_and_why(self, body: Any, changes: dict[str, Any], reason: str) -> None:
        answer = decide("issue_comment", self.comment(body, **changes))
        assert isinstance(answer, Ignored)
        assert reason in answer.reason

    @pytest.mark.parametrize(("body", "text"), [("/kernelopt help", "| command |"), ("/kernelopt", "| command |"),
                                               ("/kernelopt optimise", "Did you mean `optimize`?")])
    def test_what_is_answered_is_a_job_first_so_that_strangers_get_no_answer(self, body: str, text: str) -> None:
        job = decide("issue_comment", self.comment(body))
        assert isinstance(job, Job)
        assert job.operation == "answer"
        assert text in job.answer


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
        assert isinstance(answer, Ignored) or (isinstance(answer, Job) and len(answer.head_sha) == 40)


def test_a_pull_request_as_the_api_gives_it() -> None:
    answer = pull_request(merged=True, state="closed")["pull_request"]
    pull = pull_request_in(answer)
    assert (pull.number, pull.head_sha, pull.fork, pull.closed, pull.merged) == (12, HEAD, False, True, True)
    assert pull_request_in({**answer, "head": head(repo={"id": 8, "full_name": "a/models"})}).fork
    with pytest.raises(InputError, match="answer for a pull request"):
        pull_request_in({"message": "Not Found"})


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
