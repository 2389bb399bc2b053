"""`kernelopt run`: what a runner does for an event, from the payload to the pull request."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelopt_bot.cli import outcome, phases
from kernelopt_bot.cli.optimize import end_with_what_was_verified
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.cli.searching import search
from kernelopt_bot.config import Config
from kernelopt_bot.events.job import Ignored, Job
from kernelopt_bot.events.payload import from_environment
from kernelopt_bot.publish.content import publication
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.local import LocalForge
from kernelopt_bot.publish.publication import Forge, Published
from kernelopt_bot.report.blocks import Report
from kernelopt_bot.report.build import build
from kernelopt_bot.report.facts import faster
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.targets.diff import config_for
from kernelopt_bot.targets.git import open_repository
from kernelopt_bot.targets.wire import Wiring, reader_of, wire


@click.command("run")
@click.option("--publish", "where", type=click.Choice(["github", "local", "report"]), default="github",
              show_default=True, help="A pull request, a branch in this repository, or the report only.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for report.md, report.json, charts and the run's records.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the report.")
def command(where: str, output: Path, as_json: bool) -> int:
    """Handle the event of this workflow run (GITHUB_EVENT_NAME, GITHUB_EVENT_PATH) in the current repository."""
    end_with_what_was_verified()
    token = phases.take_token()
    stop_commands(quiet=as_json)
    repository = open_repository(Path.cwd())
    job = from_environment(os.environ)
    # Whether a person may ask is found out by authorise alone.
    if isinstance(job, Job) and (job.asked_by_person or job.operation != "optimize"):
        job = Ignored(f"{job.event} {job.operation} is not handled in one process; use the three phases")
    if not isinstance(job, Job):
        click.echo(f"nothing to do: {job.reason}")
        outcome.write_outputs(RunResult((), "kernelopt run"), Published("reported", reason=job.reason), output)
        return 0
    config = config_for(repository, job.base_sha, job.head_sha)
    folder = outcome.run_folder(output)
    searched = search(repository, job, config, folder)
    finished, run = searched.finished, searched.run
    report = build(run)
    outcome.write_files(report, output)
    outcome.show(report, output, as_json=as_json)
    if finished.interrupted:
        return outcome.INTERRUPTED
    if finished.bug:
        raise finished.bug
    wiring = wire([(r.target, r.artifact) for r in faster(run) if r.artifact], reader_of(repository, job.head_sha))
    published = _publish(_forge(where, job, token, output), job, run, report, folder, config.config, wiring)
    outcome.write_outputs(run, published, output)
    if not as_json:
        click.echo(outcome.said(published))
    return outcome.exit_code(run, interrupted=False)


def _forge(where: str, job: Job, token: str, output: Path) -> Forge | None:
    if where == "github":
        return GitHubForge(job.repository, token)
    return LocalForge(Path.cwd(), output) if where == "local" else None


def _publish(forge: Forge | None, job: Job, run: RunResult, report: Report, folder: Path, config: Config,
             wiring: Wiring) -> Published:
    """Raises UserError; the report is already written then."""
    wanted = config.publish
    made = publication(
        run, report, folder / "bundle", base_ref=job.source_branch or job.default_branch,
        base_sha=job.head_sha, branch_prefix=wanted.branch_prefix, subject=wanted.commit_message, labels=wanted.labels,
        draft=wanted.draft, reviewers=wanted.reviewers, author=job.pull_request.author if job.pull_request else "",
        sweep="" if job.number else job.source_branch, wiring=wiring)
    if made is None:
        return Published("reported", reason="nothing is faster than the best applicable baseline")
    if forge is None:
        return Published("reported", reason="publication is switched off")
    if job.pull_request and job.pull_request.fork:
        return Published("reported", reason="the pull request comes from a fork")
    return forge.publish(made)
