"""What the forge says now, beside the payload. Reading it is the caller's business; nothing here asks anybody."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from kernelopt_bot.events.job import Job, PullRequest

Permission = Literal["none", "read", "triage", "write", "maintain", "admin"]
LEVELS: tuple[str, ...] = get_args(Permission)
"""Least first."""


@dataclass(frozen=True)
class Commit:
    """`merge`: it has more than one parent."""

    message: str
    merge: bool = False


@dataclass(frozen=True)
class Facts:
    """As read a moment ago. None: it could not be read, which never counts as a yes."""

    pull_request: PullRequest | None = None
    permission: Permission | None = None
    """Effective permission of the job's actor, by `permission_in`."""
    branch_sha: str | None = None
    """Head of `source_branch` for a job without a pull request; '' once the branch is deleted."""
    commits: tuple[Commit, ...] | None = None
    """What the event brought, newest first: the commits from the job's `before` (without it) to its head; the head
    commit alone where `before` is '' or no ancestor."""
    changed: tuple[str, ...] | None = None
    """Paths that the pull request or the push changes, relative to the root."""
    opted_out: frozenset[str] = frozenset()
    """Those of them whose text opts out, by `targets.marker.opts_out`."""
    runs_today: int | None = 0
    """Runs that events started for the same pull request or branch since midnight UTC, this one not counted."""
    commands_today: int | None = 0
    """The same for comments and labels."""


Need = Literal["pull_request", "permission", "branch_sha", "commits", "changed", "opted_out", "runs_today",
               "commands_today"]


def needed(job: Job, *, again: bool = False) -> frozenset[Need]:
    """The facts that `authorise` looks at for this job, so that no request is made for others; `again`: `recheck`."""
    asked: set[Need] = {"permission"} if job.asked_by_person else set()
    if job.operation == "answer":
        return frozenset(asked)
    asked.add("pull_request" if job.number else "branch_sha")
    if again or not job.executes:
        return frozenset(asked)
    if job.asked_by_person:
        asked.add("commands_today")
    elif job.number:
        asked |= {"commits", "changed", "opted_out", "runs_today"}
    elif job.event == "push":
        asked |= {"changed", "opted_out", "runs_today"}
    return frozenset(asked)


def permission_in(answer: Any) -> Permission | None:
    """The permission in GitHub's answer to GET /repos/{owner}/{repo}/collaborators/{username}/permission, decoded.

    `role_name` is the finer one; a custom role has the base role in `permission`. None if the answer is not of that
    shape. https://docs.github.com/en/rest/collaborators/collaborators#get-repository-permissions-for-a-user
    """
    if not isinstance(answer, Mapping):
        return None
    for key in ("role_name", "permission"):
        value = answer.get(key)
        for level in get_args(Permission):
            if value == level:
                return level  # type: ignore[no-any-return]
    return None


def reaches(permission: Permission | None, least: Permission) -> bool:
    """Whether `permission` is `least` or above; one that could not be read is not."""
    return permission is not None and LEVELS.index(permission) >= LEVELS.index(least)
