"""`kernelopt run`: what a runner does for an event, from the payload to the pull request, in one process."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelopt_bot.cli import outcome, phases
from kernelopt_bot.cli.optimize import end_in_time, end_with_what_was_verified
from kernelopt_bot.cli.patch import write_patch
from kernelopt_bot.cli.publishing import Found, branch_of, published, said_of, show_notes, source_closed
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.cli.searching import search
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.job import Decision, Ignored, Job
from kernelopt_bot.events.payload import from_environment
from kernelopt_bot.events.policy import authorise
from kernelopt_bot.events.settings import Events, Policy
from kernelopt_bot.process import redact
from kernelopt_bot.publish.edits import edits_here, edits_there
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.local import LocalForge
from kernelopt_bot.publish.opened import opened
from kernelopt_bot.publish.publication import Published
from kernelopt_bot.publish.reading import facts_of, head_of
from kernelopt_bot.publish.runs import Runs
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import faster
from kernelopt_bot.search.deadline import deadline_in
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import NONE_OPEN, Swept
from kernelopt_bot.search.sweeping import ended
from kernelopt_bot.targets.diff import config_for
from kernelopt_bot.targets.git import Repository, open_repository
from kernelopt_bot.targets.wire import reader_of, wire

PHASES = "use the three phases: copy docs/workflows/comment.yml and docs/workflows/pull-requests.yml"
_UNKNOWN = Policy(Events(push=("*",), bots=True, drafts=True))
"""Until the policy was read, which stands in a commit that the event names: lets on all that some policy may."""


@click.command("run")
@click.option("--publish", "where", type=click.Choice(["github", "local", "report"]), default="github",
              show_default=True, help="A pull request, a branch in this repository, or the report only.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for report.md, report.json, charts and the run's records.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the report.")
def command(where: str, output: Path, as_json: bool) -> int:
    """Handle the event of this workflow run (GITHUB_EVENT_NAME, GITHUB_EVENT_PATH) in the current repository."""
    deadline = deadline_in(os.environ)
    end_with_what_was_verified()
    end_in_time(deadline)
    token = phases.take_token()
    stop_commands(quiet=as_json)
    repository = open_repository(Path.cwd())
    job = _handled(from_environment(os.environ, _UNKNOWN))
    if not isinstance(job, Job):
        return _nothing(job.reason, output)
    forge = GitHubForge(job.repository, token) if where == "github" else None
    traced = config_for(repository, _policy_commit(repository, job, forge), job.head_sha or job.base_sha)
    config = traced.config
    job = _handled(from_environment(os.environ, Policy.of(config)))
    if not isinstance(job, Job):
        return _nothing(job.reason, output)
    if job.operation == "close":
        return _close(forge, job, config, output)
    counted = NONE_OPEN
    if forge is not None and job.sweep:
        counted = opened(forge.github, config, branch_of(job, config.publish.branch_prefix))
    folder = outcome.run_folder(output)
    searched = search(repository, job, traced, folder, opened=counted, deadline=deadline)
    finished, run = searched.finished, searched.run
    report = build(run)
    outcome.write_files(report, output)
    with phases.said_only("writing the patch"):
        write_patch(output, run, folder / "bundle", repository, job.head_sha)
    outcome.show(report, output, as_json=as_json)
    if finished.interrupted:
        return outcome.INTERRUPTED
    if finished.bug:
        raise finished.bug
    swept = searched.swept or Swept(searched.verified)
    result = _published(where, forge, repository, job, config, run, folder, swept, output)
    outcome.write_outputs(run, result, output)
    show_notes(result)
    if not as_json:
        for artifact, words in said_of(swept):
            click.echo(redact(f"{artifact}: {words}"))
        click.echo(outcome.said(result))
    return outcome.exit_code(run, interrupted=False, limited=finished.limited)


def _handled(job: Decision) -> Decision:
    """Whether a person may ask is found out by authorise alone, so no command is handled here."""
    if not isinstance(job, Job):
        return job
    if job.asked_by_person:
        return Ignored(f"one process does not look at who asks by {job.event} ({job.operation}); {PHASES}")
    if job.operation not in ("optimize", "close"):
        return Ignored(f"{job.operation} is not handled in one process; {PHASES}")
    return job


def _nothing(reason: str, output: Path) -> int:
    click.echo(f"nothing to do: {reason}")
    outcome.write_outputs(RunResult((), "kernelopt run"), Published("reported", reason=reason), output)
    return 0


def _policy_commit(repository: Repository, job: Job, forge: GitHubForge | None) -> str:
    """The commit whose configuration is the policy: the default branch's, else the job's base, which is said."""
    name = job.default_branch
    tried = [f"refs/remotes/origin/{name}"]
    if forge is not None and forge.github.has_token and (sha := head_of(forge.github, name)):
        tried.insert(0, sha)
    for revision in tried:
        try:
            return repository.commit(revision)
        except InputError:
            continue
    click.echo(f"note: the branch {name} is not in this clone, so the policy is that of {job.base_sha[:12]}; "
               "set `fetch-depth: 0` at actions/checkout", err=True)
    return job.base_sha


def _close(forge: GitHubForge | None, job: Job, config: Config, output: Path) -> int:
    """What becomes of ours after its source was closed. Raises UserError."""
    if forge is None:
        return _nothing("the pull request is closed, and publication to GitHub is switched off", output)
    # The payload may be old: it may be open again.
    decision = authorise(job, facts_of(forge.github, job, Runs(forge.github, 0)), Policy.of(config))
    if not isinstance(decision, Job):
        return _nothing(decision.reason, output)
    result = source_closed(forge, decision, config)
    outcome.write_outputs(RunResult((), "kernelopt run"), result, output)
    click.echo(outcome.said(result))
    if result.verify_again:
        click.echo(f"not verified again on {result.verify_again}: comment `/kernelopt verify` on it, or {PHASES}")
    return 0


def _published(where: str, forge: GitHubForge | None, repository: Repository, job: Job, config: Config, run: RunResult,
               folder: Path, swept: Swept, output: Path) -> Published:
    """Raises UserError; the report is already written then."""
    if where == "report":
        return Published("reported", reason="publication is switched off")
    if job.pull_request and job.pull_request.fork:
        return Published("reported", reason="the pull request comes from a fork")
    wiring = wire([(r.target, r.artifact) for r in faster(run) if r.artifact], reader_of(repository, job.head_sha))
    branch = job.source_branch or job.default_branch
    edits = (edits_there(run, forge.github, job.head_sha, branch, config) if forge is not None
             else edits_here(run, repository, job.head_sha, branch, config))
    found = Found(run, folder / "bundle", tuple(r.target.name for r in run.results if ended(r)), swept, edits)
    return published(forge or LocalForge(Path.cwd(), output), job, config, found, wiring)
