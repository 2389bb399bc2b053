"""A job: what was asked, by whom, on which commit; and the other answers to an event."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from kernelopt_bot.events.commands import Command

Event = Literal["pull_request", "push", "issue_comment", "schedule", "workflow_dispatch", "manual"]
Operation = Literal["optimize", "verify", "status", "cancel", "close", "reverify", "answer"]
Reaction = Literal["eyes", "rocket", "hooray", "confused"]
State = Literal["seen", "started", "done", "failed"]

REACTIONS: dict[State, Reaction] = {"seen": "eyes", "started": "rocket", "done": "hooray", "failed": "confused"}
"""The reaction on the comment that asked, by how far its job is. Names as in
https://docs.github.com/en/rest/reactions/reactions#about-reactions"""


@dataclass(frozen=True)
class PullRequest:
    """`fork`: its head is in another repository, or in one that is gone. `bot`: its author is no person."""

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
    closed: bool = False
    merged: bool = False
    bot: bool = False
    head_repository: str = ""
    """`owner/name`; '' once it is deleted."""


@dataclass(frozen=True)
class Job:
    """Bound to one commit, `head_sha`, once it went through `authorise`; `base_sha` is what the diff starts from.

    A comment's payload has no commit: until `authorise` both are ''.
    """

    event: Event
    action: str
    repository: str
    """`owner/name`; '' for a job by hand."""
    head_sha: str
    base_sha: str
    pull_request: PullRequest | None = None
    default_branch: str = "main"
    operation: Operation = "optimize"
    """close: the source pull request is closed, so ours is not needed. reverify: it was merged, so ours is verified
    where it goes now: `head_sha` is our branch's head, `base_sha` that of the branch merged into. answer: `answer` is
    all that is to be said."""
    actor: str = ""
    """Login of who caused it, from the payload; never the environment's GITHUB_ACTOR."""
    source_branch: str = ""
    """What a pull request of ours goes into: the pull request's head branch, the pushed or the swept branch."""
    command: Command | None = None
    number: int = 0
    """The pull request's number; 0 if there is none."""
    comment_id: int = 0
    sweep: bool = False
    """All targets of the branch and all committed artifacts, not what a diff affects."""
    wait_s: float = 0.0
    """Quiet period still to wait, in seconds, before `recheck` and execution."""
    report_only: bool = False
    """The result is a report and a patch, nothing is published to a branch."""
    answer: str = ""
    before: str = ""
    """Head before this event, of a synchronize or a push; '' if there is none."""

    @property
    def is_fork(self) -> bool:
        return self.pull_request is not None and self.pull_request.fork

    @property
    def executes(self) -> bool:
        """Whether code of the repository runs for it."""
        return self.operation in ("optimize", "verify", "reverify")

    @property
    def asked_by_person(self) -> bool:
        """Whether it exists only because `actor` asked for it, and so only while `actor` may ask."""
        by_label = self.event == "pull_request" and self.action == "labeled" and self.executes
        return self.event == "issue_comment" or by_label


@dataclass(frozen=True)
class Ignored:
    """The event asks for nothing; `reason` is shown."""

    reason: str


@dataclass(frozen=True)
class Reply:
    """An answer to the comment `comment_id` on the pull request `number`, and nothing else to be done.

    `text` is Markdown; '' means: react, write nothing. `reason` is for the job's summary.
    """

    text: str
    reaction: Reaction
    reason: str
    number: int = 0
    comment_id: int = 0


Decision = Job | Ignored | Reply
