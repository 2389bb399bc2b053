"""Which runs may add to the memory of outcomes and lessons."""

from __future__ import annotations

import pytest

from kernelopt_bot.cli.searching import _memory
from kernelopt_bot.events.job import Event, Job, PullRequest
from kernelopt_bot.search.progress import Silent

SHA = "0" * 40


def pull_request(*, fork: bool) -> PullRequest:
    return PullRequest(7, "faster", "someone", "topic", SHA, "main", SHA, fork, False)


@pytest.mark.parametrize("event, branch, source, may", [
    ("schedule", "main", None, True), ("push", "main", None, True), ("workflow_dispatch", "main", None, True),
    ("push", "topic", None, False), ("workflow_dispatch", "topic", None, False),
    ("pull_request", "topic", pull_request(fork=False), False),
    ("pull_request", "topic", pull_request(fork=True), False),
    ("issue_comment", "main", pull_request(fork=True), False)])
def test_only_the_default_branch_adds_to_the_memory(
        event: Event, branch: str, source: PullRequest | None, may: bool) -> None:
    job = Job(event, "", "team/models", SHA, SHA, source, source_branch=branch)
    assert _memory(job, Silent()).writes == may


def test_repositories_have_memories_of_their_own() -> None:
    one, other = (_memory(Job("push", "", name, SHA, SHA), Silent()) for name in ("team/models", "team/other"))
    assert one.path != other.path and one.path.parent == other.path.parent
