"""What is to be published, independent of the forge."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol


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


@dataclass(frozen=True)
class Published:
    operation: Literal["created", "updated", "unchanged", "reported"]
    branch: str = ""
    head_sha: str = ""
    number: int | None = None
    url: str = ""
    reason: str = ""
    """For `reported`: why nothing was written."""
    files: tuple[str, ...] = field(default=())


class Forge(Protocol):
    """Where branches and pull requests live."""

    def publish(self, publication: Publication) -> Published:
        """Idempotent: the same publication twice gives `unchanged`. Raises UserError."""

    def can_write(self) -> str:
        """'' if publishing is permitted, else the reason."""
