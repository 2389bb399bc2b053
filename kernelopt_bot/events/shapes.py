"""What is read of GitHub's payloads, with the types that it must have.

https://docs.github.com/en/webhooks/webhook-events-and-payloads
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

Sha = Annotated[str, Field(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64})$")]
Ref = Annotated[str, Field(min_length=1, max_length=1024)]
FullName = Annotated[str, Field(pattern=r"^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$")]
Action = Annotated[str, Field(pattern=r"^[a-z_]{1,50}$")]


class _Part(BaseModel):
    # GitHub adds keys without notice; what is read must have its type.
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class Repository(_Part):
    id: int
    full_name: FullName
    default_branch: Ref = "main"


class User(_Part):
    login: str = Field(min_length=1, max_length=100)
    type: str = "User"

    @property
    def bot(self) -> bool:
        return self.type == "Bot" or self.login.endswith("[bot]")


class Label(_Part):
    name: str


class Branch(_Part):
    ref: Ref
    sha: Sha
    repo: Repository | None
    """None once the repository of a fork is deleted."""


class Pull(_Part):
    number: int = Field(ge=1)
    state: str
    title: str
    draft: bool = False
    merged: bool | None = None
    user: User | None
    """None once the account is deleted."""
    head: Branch
    base: Branch
    labels: list[Label] = []


class Changes(_Part):
    base: dict[str, Any] | None = None


class PullRequestEvent(_Part):
    action: Action
    pull_request: Pull
    repository: Repository
    sender: User
    before: Sha | None = None
    label: Label | None = None
    changes: Changes | None = None


class PushedCommit(_Part):
    id: str
    message: str


class PushEvent(_Part):
    ref: Ref
    before: Sha
    after: Sha
    created: bool = False
    deleted: bool = False
    commits: list[PushedCommit] = []
    head_commit: PushedCommit | None = None
    repository: Repository
    sender: User | None = None


class Comment(_Part):
    id: int = Field(ge=1)
    body: str | None
    user: User | None
    performed_via_github_app: dict[str, Any] | None = None


class Issue(_Part):
    number: int = Field(ge=1)
    pull_request: dict[str, Any] | None = None
    """Only on the issue of a pull request."""


class CommentEvent(_Part):
    action: Action
    comment: Comment
    issue: Issue
    repository: Repository


class ScheduleEvent(_Part):
    schedule: str


class DispatchEvent(_Part):
    ref: Ref
    inputs: dict[str, Any] | None = None
    repository: Repository
    sender: User


class Place(_Part):
    repository: FullName
    sha: Sha
    ref: Ref
