"""GitHub's `pull_request` payload -> `Job`. The payload is untrusted data; only what a job needs is read.

Shapes: https://docs.github.com/en/webhooks/webhook-events-and-payloads#pull_request
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Ignored, Job, PullRequest
from kernelopt_bot.events.policy import refuse

LIMIT = 25 * 1024 * 1024
"""Largest payload in bytes: GitHub's own limit."""

Sha = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Ref = Annotated[str, Field(min_length=1, max_length=1024)]


class _Part(BaseModel):
    # GitHub adds keys without notice; what is read must have its type.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class _Repository(_Part):
    id: int
    full_name: str = Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")
    default_branch: Ref = "main"


class _User(_Part):
    login: str = Field(min_length=1, max_length=100)
    type: str = "User"


class _Branch(_Part):
    ref: Ref
    sha: Sha
    repo: _Repository | None
    """None once the repository of a fork is deleted."""


class _Label(_Part):
    name: str


class _PullRequest(_Part):
    number: int = Field(ge=1)
    state: str
    title: str
    draft: bool = False
    user: _User | None
    """None once the account is deleted."""
    head: _Branch
    base: _Branch
    labels: list[_Label] = []


class _Event(_Part):
    action: str = Field(pattern=r"^[a-z_]{1,50}$")
    pull_request: _PullRequest
    repository: _Repository


def from_environment(environment: Mapping[str, str], *, own_prefix: str = "kernelopt-") -> Job | Ignored:
    """The job of the workflow run that this process is in: GITHUB_EVENT_NAME and GITHUB_EVENT_PATH.

    `own_prefix` begins the names of our own branches. Raises InputError: not in a workflow, no or malformed payload.
    """
    name, path = environment.get("GITHUB_EVENT_NAME", ""), environment.get("GITHUB_EVENT_PATH", "")
    if not name or not path:
        missing = "GITHUB_EVENT_NAME" if not name else "GITHUB_EVENT_PATH"
        raise InputError(f"{missing} is not set", where="the environment",
                         fix="run as a GitHub action, or use `kernelopt optimize PATH` by hand")
    return read(name, Path(path), own_prefix=own_prefix)


def read(name: str, path: Path, *, own_prefix: str = "kernelopt-") -> Job | Ignored:
    """The job in a payload file of the event `name`. Raises InputError: unreadable, not JSON, not of GitHub's shape."""
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
    return decide(name, payload, own_prefix=own_prefix)


def decide(name: str, payload: Any, *, own_prefix: str = "kernelopt-") -> Job | Ignored:
    """The job that a decoded payload asks for, or why it asks for nothing. Raises InputError if it is malformed."""
    if name == "pull_request_target":
        return Ignored("pull_request_target is not handled: it gives secrets to other people's code; use pull_request")
    if name != "pull_request":
        return Ignored(f"the event {name} is not handled; pull_request is")
    try:
        event = _Event.model_validate(payload)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"]) or "the whole"
        raise InputError(f"the pull_request payload is malformed: {first['msg']}", where=place,
                         fix="give the payload as GitHub sent it") from error
    pull = event.pull_request
    # Not `repo.fork`: a repository that is itself a fork has pull requests of its own.
    request = PullRequest(
        pull.number, pull.title, pull.user.login if pull.user else "ghost", pull.head.ref, pull.head.sha, pull.base.ref,
        pull.base.sha, pull.head.repo is None or pull.head.repo.id != event.repository.id, pull.draft,
        tuple(label.name for label in pull.labels))
    job = Job("pull_request", event.action, event.repository.full_name, pull.head.sha, pull.base.sha, request,
              event.repository.default_branch)
    bot = pull.user is not None and (pull.user.type == "Bot" or pull.user.login.endswith("[bot]"))
    reason = refuse(job, request, closed=pull.state != "open", bot=bot, own_prefix=own_prefix)
    return Ignored(reason) if reason else job
