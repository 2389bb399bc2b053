"""Which pull requests the bot acts on. One place decides, and every refusal has a reason that is shown."""

from __future__ import annotations

from kernelopt_bot.events.job import Job, PullRequest

ACTIONS = frozenset({"opened", "synchronize", "reopened", "ready_for_review"})
"""Actions that bring a new head, or one that may be looked at now."""


def refuse(job: Job, pull: PullRequest, *, closed: bool, bot: bool, own_prefix: str) -> str:
    """Why nothing is to be done for the pull request; '' if something is. `bot`: its author is no person."""
    if job.action not in ACTIONS:
        return f"the action {job.action} changes no code; {', '.join(sorted(ACTIONS))} do"
    if closed:
        return f"pull request #{pull.number} is closed"
    if pull.fork:
        return f"pull request #{pull.number} comes from a fork, whose code never runs on this runner by itself"
    if pull.head_ref.startswith(own_prefix):
        return f"pull request #{pull.number} is KernelOPT's own"
    if bot:
        return f"pull request #{pull.number} was opened by the bot {pull.author}"
    if pull.draft:
        return f"pull request #{pull.number} is a draft; it is looked at once it is ready for review"
    return ""
