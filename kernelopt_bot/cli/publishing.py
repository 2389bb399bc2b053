"""From a job and what its search found to a pull request: what `kernelopt run` and `kernelopt publish` share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

import click

from kernelopt_bot.config import Config
from kernelopt_bot.errors import UserError
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish.call_sites import call_sites
from kernelopt_bot.publish.carried import carried
from kernelopt_bot.publish.content import branch_name, gone, publication
from kernelopt_bot.publish.edits import Edits
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.key import trailers_of
from kernelopt_bot.publish.opened import edited, offered, ours
from kernelopt_bot.publish.publication import Forge, Publication, Published, Withdrawal
from kernelopt_bot.publish.removal import Declined, removable
from kernelopt_bot.publish.rest import Rest
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import faster
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import MENDS, Swept
from kernelopt_bot.targets.wire import Wiring, unwire

UNCHANGED = "nothing is faster than the best applicable baseline"


@dataclass(frozen=True)
class Found:
    """What there may be to publish."""

    run: RunResult
    root: Path
    """Folder below which every result's artifact lies."""
    searched: tuple[str, ...]
    """Targets whose search came to its end."""
    swept: Swept = field(default_factory=Swept)
    edits: Edits = field(default_factory=Edits)
    """Of Triton kernels, proved against the job's commit."""


def branch_of(job: Job, prefix: str) -> str:
    """Our branch for the job's source."""
    return branch_name(RunResult((), "", head_sha=job.head_sha, pull_request=job.number or None), prefix,
                       sweep=_sweep(job))


def published(forge: Forge, job: Job, config: Config, found: Found, wiring: Wiring, *,
              whole_report: str = "") -> Published:
    """Publish what was found, or withdraw what an earlier run offered and this one did not find again. `config` is the
    policy. Raises UserError."""
    if job.operation != "optimize":
        return Published("reported", reason="a verification changes nothing")
    github = forge if isinstance(forge, GitHubForge) else None
    rest = github.github if github is not None else None
    removed, stay = _removed(rest, job, config, found)
    if rest is not None and removed:
        wiring = _joined(wiring, call_sites(rest, job.head_sha, config, [
            (r, a) for r in found.run.results if (a := f"{config.artifact.root}/{r.target.name}") in removed], unwire))
    wanted, pull = config.publish, job.pull_request
    looked = tuple(r.target.name for r in found.run.results) if not job.number else ()
    new = publication(
        found.run, build(found.run), found.root, base_ref=job.source_branch or job.default_branch,
        base_sha=job.head_sha, branch_prefix=wanted.branch_prefix, subject=wanted.commit_message, labels=wanted.labels,
        draft=wanted.draft, sweep=_sweep(job), reviewers=wanted.reviewers,
        author=pull.author if pull and not pull.bot else "", whole_report=whole_report, wiring=wiring, looked=looked,
        artifact_root=config.artifact.root, removed=removed, proposals=found.swept.proposals, edits=found.edits)
    left = tuple(f"{target}: {why}" for target, why in found.edits.left)
    if new is not None:
        made = forge.publish(new)
        if github is not None and made.operation in ("created", "updated") and not job.number:
            made = replace(made, notes=(*made.notes, *_supersede(github, new, made, config)))
        return replace(made, notes=(*made.notes, *left, *stay))
    if github is not None:
        ended = gone(found.run, branch_prefix=wanted.branch_prefix, sweep=_sweep(job), searched=found.searched,
                     artifact_root=config.artifact.root)
        if ended is not None and (done := github.withdraw(ended)).operation == "closed":
            return replace(done, notes=(*left, *stay))
    return Published("reported", reason="; ".join(left) or UNCHANGED, notes=stay)


def source_closed(forge: GitHubForge, job: Job, config: Config) -> Published:
    """What the end of the causing pull request means for ours. Raises UserError."""
    pull = job.pull_request
    assert pull is not None
    branch = branch_of(job, config.publish.branch_prefix)
    return forge.source_closed(branch, job.number, merged_into=pull.base_ref if pull.merged else "")


def verified_again(forge: GitHubForge, job: Job, config: Config, made: Published, swept: Swept) -> Published:
    """After a merge of the causing pull request ours was verified in its new place: closed if it does not hold there,
    made anew from there if all of it does. Raises UserError."""
    branch = branch_of(job, config.publish.branch_prefix)
    if made.number is None or made.operation not in ("retargeted", "unchanged") or not swept.verified:
        return made
    if lost := [v for v in swept.verified if v.state in MENDS]:
        detail = "; ".join(f"{v.artifact}: {v.state}: {v.reason}" for v in lost)[:500]
        return forge.withdraw(Withdrawal(branch, "gain gone", detail))
    if not made.verify_again or any(v.state != "verified" for v in swept.verified):
        return made
    new = carried(forge.github, branch, made.verify_again, made.number, config.artifact.root)
    moved = forge.publish(new) if new is not None else made
    # For people it was retargeted: the commit is only how.
    return replace(moved, operation=made.operation) if moved.operation in ("created", "updated") else moved


def said_of(swept: Swept) -> tuple[tuple[str, str], ...]:
    """(artifact, what became of it) of each committed one that was looked at, for people."""
    actions = {p.artifact: p.action for p in swept.proposals}
    words = {"mend": "replaced by a new one", "remove": "to be removed", "report": "left as it is", "keep": ""}
    lines = []
    for v in swept.verified:
        parts = [v.state, v.reason, words[actions.get(v.artifact, "keep")]]
        lines.append((v.artifact, ": ".join(p for p in parts if p)))
    return tuple(lines)


def _sweep(job: Job) -> str:
    return "" if job.number else job.source_branch


def _removed(rest: Rest | None, job: Job, config: Config, found: Found
             ) -> tuple[Mapping[str, tuple[str, ...]], tuple[str, ...]]:
    """Artifact -> its files, of those that are to go; and why others stay. Raises UserError."""
    new = {r.artifact for r in faster(found.run)}
    files, stay = {}, []
    for p in found.swept.proposals:
        if p.action != "remove" or p.state not in MENDS or p.artifact in new or not job.sweep:
            continue
        if rest is None:
            stay.append(f"{p.artifact} is not removed: that takes a pull request on GitHub")
            continue
        try:
            files[p.artifact] = removable(rest, job.head_sha, p.artifact)
        except Declined as why:
            stay.append(f"{p.artifact} stays: {why}")
    return files, tuple(stay)


def _joined(new: Wiring, old: Wiring) -> Wiring:
    """Both changes; where they meet in one file, only what is new is done, and the rest is said."""
    clash = sorted(new.files.keys() & old.files.keys())
    if not clash:
        return Wiring({**new.files, **old.files}, (*new.said, *old.said), (*new.wired, *old.wired))
    left = tuple((target, f"{clash[0]} still calls it, since another change of this file comes first")
                 for target, _ in old.said)
    return Wiring(new.files, (*new.said, *left), new.wired)


def _supersede(forge: GitHubForge, new: Publication, made: Published, config: Config) -> tuple[str, ...]:
    """Close our other pull requests into the same branch that offer nothing beyond this one; what that came to."""
    covered, said = {path.removeprefix(f"{config.artifact.root}/").partition("/")[0] for path in new.files}, []
    try:
        for pull in ours(forge.github, config.publish.branch_prefix):
            if pull["base"]["ref"] != new.base_ref or pull["head"]["ref"] == new.branch:
                continue
            there = offered(forge.github, pull["base"]["sha"], pull["head"]["sha"], config.artifact.root)
            edits = edited(forge.github, pull["head"]["sha"])
            if (there or edits) and there <= covered and edits <= trailers_of(new.commit_message).edits:
                what = [*sorted(there), *(["the same Triton kernels"] if edits else [])]
                detail = f"Pull request #{made.number} has newer kernels for {', '.join(what)[:300]}."
                forge.withdraw(Withdrawal(pull["head"]["ref"], "superseded", detail))
                said.append(f"pull request #{pull['number']} is superseded and closed")
    except UserError as e:
        said.append(f"older pull requests of ours could not be looked at: {e.what}")
    return tuple(said)


def show_notes(made: Published) -> None:
    for note in made.notes:
        click.echo(f"note: {note}", err=True)
