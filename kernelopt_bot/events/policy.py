"""What the bot acts on. One place decides, and every refusal has a reason that is shown.

`on_pull_request`, `on_push`, `on_comment`: from the payload alone. `authorise`: with facts read from the forge.
`recheck`: again, before execution and before publication.
"""

from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.events import rules
from kernelopt_bot.events.commands import MARKER, Mistake, parse, usage
from kernelopt_bot.events.facts import Commit, Facts, reaches
from kernelopt_bot.events.job import Decision, Ignored, Job, PullRequest, Reply
from kernelopt_bot.events.settings import Policy

STARTS = ("opened", "synchronize", "reopened", "ready_for_review")
"""Actions that bring a new head, or one that may be looked at now."""


def on_pull_request(job: Job, policy: Policy, *, label: str = "", base_changed: bool = False,
                    bot: bool = False) -> Job | Ignored:
    """`label`: set or removed now. `base_changed`: an edit changed the base. `bot`: the sender is no person."""
    pull, events = _pull(job), policy.events
    if reason := rules.own(pull, policy) or rules.fork_event(pull):
        return Ignored(reason)
    if job.action == "closed":
        return replace(job, operation="close")
    if job.action == "labeled" and label == events.opt_out_label:
        return replace(job, operation="cancel")
    if job.action == "unlabeled" and label == events.run_label and not events.automatic:
        return replace(job, operation="cancel")
    if job.action in ("labeled", "unlabeled"):
        wanted = events.run_label if job.action == "labeled" else events.opt_out_label
        if label != wanted:
            return Ignored(f"the label of this event asks for nothing; {wanted} would")
        if job.action == "labeled" and bot:
            return Ignored(f"the label {wanted} was set by the bot {job.actor}")
    elif job.action == "edited":
        if not base_changed:
            return Ignored("an edit that keeps the base changes no code")
    elif job.action not in STARTS:
        return Ignored(f"the action {job.action} changes no code; {', '.join(STARTS)} do")
    reason = rules.stopped(pull, policy) or ("" if job.asked_by_person else rules.not_by_itself(pull, policy))
    return Ignored(reason) if reason else job


def on_push(job: Job, policy: Policy, commits: tuple[Commit, ...]) -> Job | Ignored:
    """`commits`: those pushed, newest first."""
    if job.source_branch.startswith(policy.own_prefix):
        return Ignored(f"the branch {job.source_branch} is KernelOPT's own")
    if not rules.fits(job.source_branch, policy.events.push):
        return Ignored(f"pushes to {job.source_branch} start no run: events.push does not name it")
    reason = rules.by_commits(commits, policy)
    return Ignored(reason) if reason else job


def on_comment(job: Job, body: str, *, on_pull: bool, bot: bool) -> Job | Ignored:
    """A comment's job, which has no commit yet. `on_pull`: it is not an issue's comment."""
    if job.action != "created":
        return Ignored(f"a comment that is {job.action} gives no command; only a new one does")
    if MARKER in body:
        return Ignored("the comment is KernelOPT's own")
    asked = parse(body)
    if asked is None:
        return Ignored("the comment's first line is no command")
    if bot:
        return Ignored(f"the command comes from the bot {job.actor}")
    if not on_pull:
        return Ignored("the command stands on an issue; commands work on pull requests")
    if isinstance(asked, Mistake):
        return replace(job, operation="answer", answer=f"{asked.text}\n\n{usage()}")
    if asked.verb == "help":
        return replace(job, operation="answer", command=asked, answer=usage())
    return replace(job, operation=asked.verb, command=asked)


def authorise(job: Job, facts: Facts, policy: Policy) -> Decision:
    """The job bound to its commit, or why there is none. To be called for every job, with facts read just before."""
    reason = _not_permitted(job, facts, policy)
    if reason:
        # Nothing is written for a stranger: a bot that answers everybody can be made to flood a thread.
        return _refusal(job, reason, text="")
    if job.operation == "answer":
        understood = job.command is not None
        reason = "help was asked for" if understood else "the command was not understood"
        return Reply(job.answer, "hooray" if understood else "confused", reason, job.number, job.comment_id)
    if not job.number:
        return _branch_job(job, facts, policy)
    pull = facts.pull_request
    if pull is None or pull.number != job.number:
        return _refusal(job, f"pull request #{job.number} cannot be read")
    if job.executes and job.head_sha and pull.head_sha != job.head_sha:
        return _refusal(job, rules.moved(job, pull.head_sha))
    bound = replace(job, pull_request=pull, head_sha=pull.head_sha, base_sha=pull.base_sha,
                    source_branch=pull.head_ref, report_only=job.report_only or pull.fork)
    if job.operation == "close":
        return bound if pull.closed else _refusal(job, f"pull request #{pull.number} is open again")
    if not job.executes:
        return bound
    if reason := (rules.stopped(pull, policy) or rules.command_limits(bound, policy)
                  or rules.fork_command(bound, policy) or _others(bound, pull, facts, policy)):
        return _refusal(job, reason)
    return replace(bound, wait_s=policy.events.quiet_s if bound.action == "synchronize" else 0.0)


def recheck(job: Job, facts: Facts, policy: Policy) -> Ignored | None:
    """Why an authorised job may not go on, by facts read just before; None if it may.

    To be called before execution and once more before publication. Of `facts` it needs the pull request or the
    branch's head and, for what a person asked for, the permission.
    """
    if reason := _not_permitted(job, facts, policy):
        return Ignored(reason)
    if not job.number:
        reason = _branch_reason(job, facts)
        return Ignored(reason) if reason else None
    pull = facts.pull_request
    if pull is None or pull.number != job.number:
        return Ignored(f"pull request #{job.number} cannot be read")
    if not job.executes:
        return None
    if job.operation == "reverify":
        return None if pull.merged else Ignored(f"pull request #{pull.number} is not merged")
    reason = rules.stopped(pull, policy) or rules.fork_command(replace(job, pull_request=pull), policy)
    if not reason and pull.head_sha != job.head_sha:
        reason = rules.moved(job, pull.head_sha)
    if not reason and job.pull_request and pull.base_ref != job.pull_request.base_ref:
        reason = f"the base of pull request #{pull.number} is {pull.base_ref} now"
    if not reason and job.event == "pull_request":
        reason = _label_gone(job, pull, policy) if job.asked_by_person else rules.not_by_itself(pull, policy)
    return Ignored(reason) if reason else None


def _pull(job: Job) -> PullRequest:
    assert job.pull_request is not None
    return job.pull_request


def _refusal(job: Job, reason: str, text: str | None = None) -> Ignored | Reply:
    """Who asked in a comment is answered; else the job's summary has the reason."""
    if job.event != "issue_comment":
        return Ignored(reason)
    words = f"{reason[0].upper()}{reason[1:]}." if text is None else text
    return Reply(words, "confused", reason, job.number, job.comment_id)


def _not_permitted(job: Job, facts: Facts, policy: Policy) -> str:
    least = policy.commands.permission
    if not job.asked_by_person or reaches(facts.permission, least):
        return ""
    if facts.permission is None:
        return f"the permission of {job.actor} cannot be read, which counts as none"
    return f"{job.actor} has the permission {facts.permission}; {least} or above is needed"


def _others(job: Job, pull: PullRequest, facts: Facts, policy: Policy) -> str:
    if job.asked_by_person:
        return rules.spent(facts.commands_today, policy.commands.a_day, "commands.a_day") or (
            _label_gone(job, pull, policy) if job.event == "pull_request" else "")
    if facts.commits is None:
        return f"the commits of pull request #{pull.number} cannot be read, so they may be KernelOPT's own"
    return (rules.not_by_itself(pull, policy) or rules.by_commits(facts.commits, policy)
            or rules.by_paths(facts, policy)
            or rules.spent(facts.runs_today, policy.events.runs_a_day, "events.runs_a_day"))


def _label_gone(job: Job, pull: PullRequest, policy: Policy) -> str:
    label = policy.events.run_label
    return "" if label in pull.labels else f"the label {label} was removed from pull request #{pull.number}"


def _branch_job(job: Job, facts: Facts, policy: Policy) -> Decision:
    reason = _branch_reason(job, facts) or rules.command_limits(job, policy)
    if not reason and job.event == "push":
        reason = rules.by_paths(facts, policy) or rules.spent(
            facts.runs_today, policy.events.runs_a_day, "events.runs_a_day")
    return Ignored(reason) if reason else replace(job, wait_s=policy.events.quiet_s if job.event == "push" else 0.0)


def _branch_reason(job: Job, facts: Facts) -> str:
    if facts.branch_sha is None:
        return f"the branch {job.source_branch} cannot be read"
    if not facts.branch_sha:
        return f"the branch {job.source_branch} was deleted"
    # A sweep takes hours; what it found on an older commit of the branch is still worth a pull request.
    if not job.sweep and facts.branch_sha != job.head_sha:
        return rules.moved(job, facts.branch_sha)
    return ""
