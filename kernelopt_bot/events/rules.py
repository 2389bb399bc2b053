"""The single rules of the policy: each returns the reason why not, or ''."""

from __future__ import annotations

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

from kernelopt_bot.events.facts import Commit, Facts
from kernelopt_bot.events.job import Job, PullRequest
from kernelopt_bot.events.settings import Policy
from kernelopt_bot.targets.marker import OFF

_SKIP = re.compile(r"\[(skip kernelopt|kernelopt skip)\]", re.IGNORECASE)
_TRAILER = re.compile(r"^KernelOPT-Key: \S+$", re.MULTILINE)


def own(pull: PullRequest, policy: Policy) -> str:
    if pull.head_ref.startswith(policy.own_prefix) and not pull.fork:
        return f"pull request #{pull.number} is KernelOPT's own"
    return ""


def fork_event(pull: PullRequest) -> str:
    if not pull.fork:
        return ""
    return (f"pull request #{pull.number} comes from a fork, whose code never runs on this runner by itself; "
            f"a person with write permission may ask by /kernelopt optimize --sha {pull.head_sha}")


def fork_command(job: Job, policy: Policy) -> str:
    """For what a person asked for on a pull request from a fork."""
    pull = job.pull_request
    if pull is None or not pull.fork:
        return ""
    if job.command is None:
        return fork_event(pull)
    if not policy.runner.ephemeral:
        return (f"pull request #{pull.number} comes from a fork, whose code runs only on a runner that is destroyed "
                "after the job (runner.ephemeral)")
    if job.command.sha != job.head_sha:
        return (f"pull request #{pull.number} comes from a fork: name the commit that was read, in full, "
                f"as --sha {pull.head_sha}")
    return ""


def stopped(pull: PullRequest, policy: Policy) -> str:
    """What stops every run, also one that a person asked for."""
    label = policy.events.opt_out_label
    if pull.closed:
        return f"pull request #{pull.number} is closed"
    if label in pull.labels:
        return f"pull request #{pull.number} has the label {label}"
    return ""


def not_by_itself(pull: PullRequest, policy: Policy) -> str:
    """What stops runs that nobody asked for."""
    events, name = policy.events, f"pull request #{pull.number}"
    if reason := own(pull, policy) or fork_event(pull):
        return reason
    if not events.automatic:
        return f"{name} is looked at only by command or by the label {events.run_label} (events.automatic is false)"
    if pull.bot and not events.bots:
        return f"{name} was opened by the bot {pull.author}"
    if pull.author in events.ignore_authors:
        return f"{name} was opened by {pull.author}, whom events.ignore_authors names"
    if pull.draft and not events.drafts:
        return f"{name} is a draft; it is looked at once it is ready for review"
    if fits(pull.head_ref, events.ignore_branches):
        return f"{name} comes from the branch {pull.head_ref}, which events.ignore_branches names"
    if _SKIP.search(pull.title):
        return f"{name} has [skip kernelopt] in its title"
    return ""


def by_commits(commits: tuple[Commit, ...], policy: Policy) -> str:
    """For commits newest first: those of ours alone, or a word in the newest."""
    if commits and _SKIP.search(commits[0].message):
        return "the head commit says [skip kernelopt]"
    keyed = [is_own(c.message) for c in commits]
    if any(keyed) and all(k or c.merge or _merges_own(c.message, policy) for k, c in zip(keyed, commits, strict=True)):
        return "the commits are KernelOPT's own"
    return ""


def is_own(message: str) -> bool:
    """Whether a commit message has our trailer (`KernelOPT-Key`) in its last paragraph."""
    return bool(_TRAILER.search(re.split(r"\n[ \t]*\n", message.replace("\r\n", "\n").strip())[-1]))


def _merges_own(message: str, policy: Policy) -> bool:
    # The text that GitHub gives a merge commit; a payload of push does not tell parents.
    return bool(re.match(rf"Merge pull request #\d+ from [^/\s]+/{re.escape(policy.own_prefix)}", message))


def by_paths(facts: Facts, policy: Policy) -> str:
    events = policy.events
    if facts.changed is None:
        filtered = bool(events.paths or events.ignore_paths)
        return "the changed files cannot be read, and the configuration has a path filter" if filtered else ""
    kept = relevant(facts.changed, policy)
    if not kept:
        return "no changed file passes events.paths and events.ignore_paths" if facts.changed else "no file changed"
    if all(path in facts.opted_out for path in kept):
        return f"every changed file opts out with `{OFF}`"
    return ""


def relevant(changed: Iterable[str], policy: Policy) -> tuple[str, ...]:
    """The changed paths that pass the configuration's filters."""
    wanted, unwanted = policy.events.paths, policy.events.ignore_paths
    return tuple(p for p in changed if (not wanted or fits(p, wanted)) and not fits(p, unwanted))


def fits(name: str, patterns: Iterable[str]) -> bool:
    """Whether any pattern matches the whole name; `*` matches `/` too, and upper and lower case differ."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def command_limits(job: Job, policy: Policy) -> str:
    """What a command asks for that the policy or the commit does not allow."""
    command, limits = job.command, policy.commands
    if command is None:
        return ""
    if command.sha and not job.head_sha.startswith(command.sha):
        return f"the head commit is {job.head_sha}, not {command.sha}"
    if command.budget_s is not None and command.budget_s > limits.budget_minutes * 60:
        return f"--budget may be {limits.budget_minutes:g}m at most (commands.budget_minutes)"
    if command.max_cost is not None and command.max_cost > limits.cost:
        return f"--max-cost may be {limits.cost:.2f} at most (commands.cost)"
    own_too = command.verb == "verify"
    return "" if own_too or job.pull_request is None else own(job.pull_request, policy)


def spent(today: int | None, limit: int, key: str) -> str:
    if today is None:
        return f"today's runs cannot be counted, and {key} limits them"
    return f"{today} runs today already; {key} is {limit}" if today >= limit else ""


def moved(job: Job, head: str) -> str:
    what = f"pull request #{job.number}" if job.number else f"the branch {job.source_branch}"
    return f"the head of {what} moved from {job.head_sha[:12]} to {head[:12]}"
