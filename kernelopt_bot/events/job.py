"""A job: what was asked, by whom, on which commit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class PullRequest:
    number: int
    title: str
    author: str
    head_ref: str
    head_sha: str
    base_ref: str
    base_sha: str
    fork: bool
    draft: bool
    labels: tuple[str, ...] = ()


@dataclass(frozen=True)
class Job:
    """Bound to one commit. `base_sha` is what the diff starts from."""

    event: Literal["pull_request", "manual"]
    action: str
    repository: str
    """`owner/name`; '' for a job by hand."""
    head_sha: str
    base_sha: str
    pull_request: PullRequest | None = None
    default_branch: str = "main"


@dataclass(frozen=True)
class Ignored:
    """The event asks for nothing; `reason` is shown."""

    reason: str
