"""What `events.policy` wants to know, read from GitHub: the policy's text, and the facts about a job."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar
from urllib.parse import quote

from kernelopt_bot.config import FILES, Config, both_files, parse
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.events.facts import Commit, Facts, needed, permission_in
from kernelopt_bot.events.job import Job
from kernelopt_bot.events.payload import pull_request_in
from kernelopt_bot.publish.github_errors import Answered
from kernelopt_bot.publish.rest import Json, Rest
from kernelopt_bot.publish.runs import Runs
from kernelopt_bot.publish.trees import blob, comparison, files_between, tree
from kernelopt_bot.targets.marker import opts_out

MOST_TEXTS = 20
"""Changed Python files whose text is looked at for the marker. With more, none opts out here: execute looks again."""

_T = TypeVar("_T")


def head_of(rest: Rest, branch: str) -> str | None:
    """SHA of the branch's head; '' if there is no such branch, None if it cannot be read."""
    try:
        found = rest.request("GET", f"git/ref/heads/{quote(branch, safe='/')}", doing="reading a branch")
    except Answered as e:
        return "" if e.status == 404 else None
    except UserError:
        return None
    return str(found["object"]["sha"])


def policy_at(rest: Rest, sha: str) -> Config:
    """The configuration of commit `sha`; all defaults if there is none. Raises InputError, UserError."""
    root = tree(rest, sha)
    found = {name: root[name] for name in FILES if name in root}
    folder = root.get(".github")
    if folder is not None and folder["type"] == "tree":
        below = tree(rest, folder["sha"])
        found |= {f: below[f.rpartition("/")[2]] for f in FILES if f.startswith(".github/") and f[8:] in below}
    files = {name: entry for name, entry in found.items() if entry["mode"] in ("100644", "100755")}
    if len(files) > 1:
        raise both_files()
    for name, entry in files.items():
        try:
            return parse(blob(rest, entry["sha"]).decode(), name).config
        except UnicodeDecodeError:
            raise InputError("the configuration is not UTF-8 text", where=name, fix="save it as UTF-8") from None
    return Config()


def facts_of(rest: Rest, job: Job, runs: Runs, *, again: bool = False) -> Facts:
    """The facts that `authorise` (or `recheck`, with `again`) asks of this job. What cannot be read is None there."""
    wanted = needed(job, again=again)
    commits: tuple[Commit, ...] | None = None
    changed: tuple[str, ...] | None = None
    opted_out: frozenset[str] = frozenset()
    pull = None
    if "pull_request" in wanted:
        pull = _or_none(lambda: pull_request_in(
            rest.request("GET", f"pulls/{job.number}", doing="reading the pull request")))
    head = pull.head_sha if pull is not None else job.head_sha
    base = pull.base_sha if pull is not None else job.base_sha
    if "commits" in wanted:
        commits = _or_none(lambda: _commits(rest, job.before, head))
    if "changed" in wanted:
        files = _or_none(lambda: files_between(rest, base, head))
        if files is not None:
            changed = tuple(str(f["filename"]) for f in files)
            opted_out = _or_none(lambda: _opted_out(rest, files)) or frozenset()
    return Facts(
        pull_request=pull,
        permission=permission_in(_or_none(lambda: rest.request(
            "GET", f"collaborators/{quote(job.actor, safe='')}/permission", doing="reading a permission")))
        if "permission" in wanted else None,
        branch_sha=head_of(rest, job.source_branch) if "branch_sha" in wanted else None,
        commits=commits, changed=changed, opted_out=opted_out,
        runs_today=_or_none(lambda: runs.today(job, asked=False)) if "runs_today" in wanted else 0,
        commands_today=_or_none(lambda: runs.today(job, asked=True)) if "commands_today" in wanted else 0)


def _or_none(read: Callable[[], _T]) -> _T | None:
    """None where GitHub does not say, or says something of another shape."""
    try:
        return read()
    except (UserError, KeyError, TypeError, ValueError):
        return None


def _commits(rest: Rest, before: str, head: str) -> tuple[Commit, ...]:
    if before:
        try:
            found = comparison(rest, before, head)
            if found["status"] == "ahead" and found["total_commits"] == len(found["commits"]):
                return tuple(Commit(c["commit"]["message"], len(c["parents"]) > 1) for c in reversed(found["commits"]))
        except Answered as e:
            if e.status != 404:  # A force push may have left it behind.
                raise
    alone = rest.request("GET", f"git/commits/{head}", doing="reading the head commit")
    return (Commit(alone["message"], len(alone["parents"]) > 1),)


def _opted_out(rest: Rest, files: list[Json]) -> frozenset[str]:
    texts = [f for f in files if f["filename"].endswith(".py") and f["status"] != "removed"]
    if len(texts) > MOST_TEXTS:
        return frozenset()
    return frozenset(
        str(f["filename"]) for f in texts if opts_out(blob(rest, f["sha"]).decode(errors="replace")))
