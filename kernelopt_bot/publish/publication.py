"""What is to be published, and what became of it, independent of the forge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

Why = Literal["source closed", "gain gone", "superseded", "conflict", "already there"]
"""Why a pull request of ours is closed by us."""


@dataclass(frozen=True)
class Publication:
    branch: str
    base_ref: str
    """Branch the pull request goes against: the head branch of the causing pull request."""
    base_sha: str
    """Commit that the new commit's parent must be."""
    title: str
    body: str
    commit_message: str
    files: Mapping[str, bytes]
    """Repository-relative POSIX path -> content."""
    labels: tuple[str, ...] = ()
    draft: bool = False
    replaced: tuple[str, ...] = ()
    """Folders of ours that hold nothing but generated files: what the base has there and `files` has not goes away."""
    removed: tuple[str, ...] = ()
    """Files of ours that go away; each must be there at `base_sha`."""
    looked: tuple[str, ...] = ()
    """The targets that the run looked at, where it stands for no pull request: an open pull request of ours that offers
    others stays as it is. Empty: everything."""
    artifact_root: str = ""
    """Folder below which `looked` has its artifacts."""
    source: int | None = None
    """The causing pull request. With one, a base branch that is no longer at `base_sha` stops the publication: the
    newer push has a run of its own. None for a push or a schedule, where the branch may move on."""
    reviewers: tuple[str, ...] = ()
    """Configured ones: logins, or `organisation/team`; empty: CODEOWNERS of the files' folders, else `author`."""
    author: str = ""
    """Login of the source's author; '' if unknown or a bot."""


@dataclass(frozen=True)
class Withdrawal:
    """A pull request of ours that has lost its purpose."""

    branch: str
    why: Why
    detail: str = ""
    """One sentence of plain text, of whatever origin; it is escaped."""
    looked: tuple[str, ...] = ()
    artifact_root: str = ""
    """Both as in `Publication`."""


@dataclass(frozen=True)
class Published:
    operation: Literal["created", "updated", "unchanged", "reported", "closed", "retargeted"]
    branch: str = ""
    head_sha: str = ""
    number: int | None = None
    url: str = ""
    reason: str = ""
    """For `reported`: why nothing was written. For `unchanged` and `closed`: why, where that is not plain."""
    files: tuple[str, ...] = field(default=())
    verify_again: str = ""
    """Branch on which the result must be verified anew before it is worth anything; '' if nothing has to be."""
    notes: tuple[str, ...] = ()
    """What did not work and does not matter for the result: a reviewer whom GitHub refused, for example."""


class Forge(Protocol):
    """Where branches and pull requests live."""

    def publish(self, publication: Publication) -> Published:
        """Idempotent: the same publication twice gives `unchanged`. Raises UserError."""

    def can_write(self) -> str:
        """'' if publishing is permitted, else the reason."""
