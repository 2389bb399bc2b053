"""GitHub's payloads -> what they ask for. A payload is untrusted data; only what a job needs is read (`shapes.py`)."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from kernelopt_bot.errors import InputError
from kernelopt_bot.events import shapes
from kernelopt_bot.events.commands import Mistake, parse_line
from kernelopt_bot.events.facts import Commit
from kernelopt_bot.events.job import Decision, Ignored, Job, PullRequest
from kernelopt_bot.events.policy import on_comment, on_pull_request, on_push
from kernelopt_bot.events.settings import Policy

LIMIT = 25 * 1024 * 1024
"""Largest payload in bytes: GitHub's own limit."""

_BRANCH = "refs/heads/"
_Shape = TypeVar("_Shape", bound=BaseModel)


@dataclass(frozen=True)
class Surroundings:
    """What a workflow run's environment says and the payload of `schedule` and `workflow_dispatch` does not."""

    repository: str = ""
    sha: str = ""
    ref: str = ""
    """`refs/heads/<branch>`."""


def from_environment(environment: Mapping[str, str], policy: Policy | None = None) -> Decision:
    """What the workflow run of this process is to do: GITHUB_EVENT_NAME and GITHUB_EVENT_PATH.

    Never a Reply; that comes from `policy.authorise`. Raises InputError: not in a workflow, no or malformed payload.
    """
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    if not name or not path:
        missing = "GITHUB_EVENT_NAME" if not name else "GITHUB_EVENT_PATH"
        raise InputError(f"{missing} is not set", where="the environment",
                         fix="run as a GitHub action, or use `kernelopt optimize PATH` by hand")
    around = Surroundings(*(environment.get(f"GITHUB_{key}", "") for key in ("REPOSITORY", "SHA", "REF")))
    return read(name, Path(path), policy, around)


def read(name: str, path: Path, policy: Policy | None = None, around: Surroundings | None = None) -> Decision:
    """As `decide`, of a payload's file. Raises InputError: unreadable, not JSON, not of GitHub's shape."""
    try:
        with path.open("rb") as file:
            text = file.read(LIMIT + 1)
    except OSError as error:
        raise InputError(f"the payload cannot be read: {error.strerror}", where=str(path),
                         fix="GITHUB_EVENT_PATH must name the file that the runner wrote") from error
    if len(text) > LIMIT:
        raise InputError("the payload is over GitHub's limit of 25 MiB", where=str(path), fix="give the original file")
    try:
        payload = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError("the payload is not JSON", where=str(path), fix="give the original file") from error
    return decide(name, payload, policy, around)


def decide(name: str, payload: Any, policy: Policy | None = None, around: Surroundings | None = None) -> Decision:
    """What a decoded payload asks for by itself: a Job, still to be authorised, or why it asks for nothing.

    Raises InputError if it is malformed.
    """
    policy, around = policy or Policy(), around or Surroundings()
    match name:
        case "pull_request":
            return _pull_request(_read(shapes.PullRequestEvent, payload, name), policy)
        case "push":
            return _push(_read(shapes.PushEvent, payload, name), policy)
        case "issue_comment":
            return _comment(_read(shapes.CommentEvent, payload, name))
        case "schedule":
            _read(shapes.ScheduleEvent, payload, name)
            # It always runs on the default branch.
            return _on_branch(Job("schedule", "", "", "", "", None, "", sweep=True), around, policy)
        case "workflow_dispatch":
            event = _read(shapes.DispatchEvent, payload, name)
            return _dispatch(event, policy, Surroundings(event.repository.full_name, around.sha, event.ref))
        case "pull_request_target":
            return Ignored(
                "pull_request_target is not handled: it gives secrets to other people's code; use pull_request")
    handled = "pull_request, push, issue_comment, schedule and workflow_dispatch are"
    return Ignored(f"the event {name} is not handled; {handled}")


def pull_request_in(answer: Any) -> PullRequest:
    """The pull request in GitHub's answer to GET /repos/{owner}/{repo}/pulls/{number}, decoded. Raises InputError."""
    return _request(_read(shapes.Pull, answer, "answer for a pull request"), None)


def _pull_request(event: shapes.PullRequestEvent, policy: Policy) -> Decision:
    pull = _request(event.pull_request, event.repository.id)
    job = Job("pull_request", event.action, event.repository.full_name, pull.head_sha, pull.base_sha, pull,
              event.repository.default_branch, actor=event.sender.login, source_branch=pull.head_ref,
              number=pull.number, before=event.before or "")
    return on_pull_request(job, policy, label=event.label.name if event.label else "",
                           base_changed=event.changes is not None and event.changes.base is not None,
                           bot=event.sender.bot)


def _push(event: shapes.PushEvent, policy: Policy) -> Decision:
    if not event.ref.startswith(_BRANCH):
        return Ignored("only pushes to branches start runs")
    branch = event.ref.removeprefix(_BRANCH)
    if event.deleted:
        return Ignored(f"the push deleted the branch {branch}")
    if event.created or not event.before.strip("0"):
        return Ignored(f"the push created the branch {branch}, so there is nothing to compare it with")
    job = Job("push", "", event.repository.full_name, event.after, event.before, None, event.repository.default_branch,
              actor=event.sender.login if event.sender else "", source_branch=branch,
              before=event.before)
    newest = [event.head_commit] if event.head_commit else []
    older = [c for c in reversed(event.commits) if not newest or c.id != newest[0].id]
    return on_push(job, policy, tuple(Commit(c.message) for c in [*newest, *older]))


def _comment(event: shapes.CommentEvent) -> Decision:
    user = event.comment.user
    job = Job("issue_comment", event.action, event.repository.full_name, "", "", None, event.repository.default_branch,
              actor=user.login if user else "ghost", number=event.issue.number, comment_id=event.comment.id)
    # `performed_via_github_app`: a program wrote it in the person's name.
    return on_comment(job, event.comment.body or "", on_pull=event.issue.pull_request is not None,
                      bot=user is None or user.bot or event.comment.performed_via_github_app is not None)


def _dispatch(event: shapes.DispatchEvent, policy: Policy, around: Surroundings) -> Decision:
    text = (event.inputs or {}).get("command") or ""
    if not isinstance(text, str):
        raise InputError("the workflow_dispatch payload is malformed: the input is no text", where="inputs.command",
                         fix="declare the input as a string")
    command = parse_line(text.strip().removeprefix("/kernelopt")) if text.strip() else None
    if isinstance(command, Mistake):
        raise InputError(command.text, where="the workflow's input `command`", fix="see docs/commands.md")
    if command and command.verb not in ("optimize", "verify"):
        return Ignored(f"{command.verb} is for comments; by workflow_dispatch there are optimize and verify")
    job = Job("workflow_dispatch", "", "", "", "", None, event.repository.default_branch, actor=event.sender.login,
              command=command, sweep=command is None or not command.targets,
              operation="verify" if command and command.verb == "verify" else "optimize")
    return _on_branch(job, around, policy)


def _on_branch(job: Job, around: Surroundings, policy: Policy) -> Decision:
    """`job` for the branch and the commit of `around`. Raises InputError."""
    place = _read(shapes.Place, {"repository": around.repository, "sha": around.sha, "ref": around.ref}, job.event,
                  "GITHUB_REPOSITORY, GITHUB_SHA and GITHUB_REF must be those of the workflow run")
    if not place.ref.startswith(_BRANCH):
        return Ignored(f"{job.event} works on branches, not on {place.ref}")
    branch = place.ref.removeprefix(_BRANCH)
    if branch.startswith(policy.own_prefix):
        return Ignored(f"the branch {branch} is KernelOPT's own")
    return replace(job, repository=place.repository, head_sha=place.sha, base_sha=place.sha, source_branch=branch,
                   default_branch=job.default_branch or branch)


def _request(pull: shapes.Pull, repository_id: int | None) -> PullRequest:
    """`repository_id`: the base repository's; None: as the pull request itself says."""
    base = repository_id if repository_id is not None else pull.base.repo.id if pull.base.repo else None
    head = pull.head.repo
    # Not `repo.fork`: a repository that is itself a fork has pull requests of its own.
    return PullRequest(
        pull.number, pull.title, pull.user.login if pull.user else "ghost", pull.head.ref, pull.head.sha, pull.base.ref,
        pull.base.sha, head is None or head.id != base, pull.draft, tuple(label.name for label in pull.labels),
        pull.state != "open", pull.merged is True, pull.user is not None and pull.user.bot,
        head.full_name if head else "")


def _read(shape: type[_Shape], payload: Any, name: str, fix: str = "give the payload as GitHub sent it") -> _Shape:
    try:
        return shape.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InputError(f"the {name} payload is malformed: {first['msg']}", where=place, fix=fix) from error
