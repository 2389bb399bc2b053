"""`kernelopt run`: what a runner does for an event, from the payload to the pull request."""

from __future__ import annotations

import os
import shlex
from pathlib import Path, PurePosixPath

import click

from kernelopt_bot.cli import outcome
from kernelopt_bot.cli.optimize import end_with_what_was_verified
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError
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
from kernelopt_bot.search.run import Finished, run_all
from kernelopt_bot.targets.checkout import checkout
from kernelopt_bot.targets.diff import affected, config_for
from kernelopt_bot.targets.git import Repository, open_repository
from kernelopt_bot.targets.git import shown as shown_path
from kernelopt_bot.targets.target import Affected
from kernelopt_bot.targets.wire import Wiring, reader_of, wire

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")


@click.command("run")
@click.option("--publish", "where", type=click.Choice(["github", "local", "report"]), default="github",
              show_default=True, help="A pull request, a branch in this repository, or the report only.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for report.md, report.json, charts and the run's records.")
@click.option("--json", "as_json", is_flag=True, help="Print report.json instead of the report.")
def command(where: str, output: Path, as_json: bool) -> int:
    """Handle the event of this workflow run (GITHUB_EVENT_NAME, GITHUB_EVENT_PATH) in the current repository."""
    end_with_what_was_verified()
    # The token is this process's business only: nothing that it starts may find it.
    token = next((t for t in [os.environ.pop(name, "") for name in TOKENS] if t), "")
    repository = open_repository(Path.cwd())
    job = from_environment(os.environ)
    if isinstance(job, Job) and (job.sweep or not job.head_sha or job.operation != "optimize"):
        job = Ignored(f"{job.event} {job.operation} is not handled in one process")
    if not isinstance(job, Job):
        click.echo(f"nothing to do: {job.reason}")
        outcome.write_outputs(RunResult((), "kernelopt run"), Published("reported", reason=job.reason), output)
        return 0
    config = config_for(repository, job.base_sha, job.head_sha)
    found = affected(repository, job.base_sha, job.head_sha, config)
    folder = outcome.run_folder(output)
    finished = _search(repository, found, config.config, folder)
    run = RunResult(
        finished.results, shlex.join(["kernelopt", "optimize", *(f"{t.path}:{t.entry}" for t in found.targets)]),
        skipped=found.skipped, base_sha=found.base, head_sha=found.head, repository=job.repository,
        pull_request=job.pull_request.number if job.pull_request else None, stopped=finished.stopped)
    report = build(run)
    outcome.write_files(report, output)
    outcome.show(report, output, as_json=as_json)
    if finished.interrupted:
        return outcome.INTERRUPTED
    if finished.bug:
        raise finished.bug
    wiring = wire([(r.target, r.artifact) for r in faster(run) if r.artifact], reader_of(repository, found.head))
    published = _publish(_forge(where, job, token, output), job, run, report, folder, config.config, wiring)
    outcome.write_outputs(run, published, output)
    if not as_json:
        click.echo(_said(published))
    return outcome.exit_code(run, interrupted=False)


def _search(repository: Repository, found: Affected, config: Config, folder: Path) -> Finished:
    """Raises UserError where nothing can be run at all."""
    if not found.targets:
        return Finished((), "")
    tracked = [e.path for e in repository.entries(found.head)]
    refuse_committed_interpreter(config.environment.python, Path.cwd(), tracked)
    with shown() as progress:
        progress.note(f"affected targets: {', '.join(t.name for t in found.targets)}")
        clean = checkout(repository, found.head, folder / "checkout")
        for path, reason in clean.skipped:
            progress.note(f"not in the checkout: {path}: {reason}")
        return run_all(found.targets, config=config, root=clean.root, base=Path.cwd(), folder=folder, progress=progress)


def refuse_committed_interpreter(python: str, base: Path, tracked: list[str]) -> None:
    """Raises InputError if the commit under test holds the interpreter's environment, or a part of the way to it.

    What is readable in the jail follows from the environment's own files: a pull request must not write them.
    """
    if "/" not in python:
        return
    inside = os.path.relpath(os.path.normpath(base / python), base)
    if inside.startswith(".."):
        return
    path = PurePosixPath(inside)
    prefix = path.parent.parent
    own = {str(path), *(str(p) for p in path.parents), str(prefix / "pyvenv.cfg")}
    below = [str(prefix / part) + "/" for part in ("bin", "lib", "lib64")]
    found = next((t for t in tracked if t in own or any(t.startswith(b) for b in below)), "")
    if found:
        raise InputError("the interpreter's environment is committed to the repository", where=shown_path(found),
                         fix="create it in a step of the workflow, and keep it out of git")


def _forge(where: str, job: Job, token: str, output: Path) -> Forge | None:
    if where == "github":
        return GitHubForge(job.repository, token)
    return LocalForge(Path.cwd(), output) if where == "local" else None


def _publish(forge: Forge | None, job: Job, run: RunResult, report: Report, folder: Path, config: Config,
             wiring: Wiring) -> Published:
    """Raises UserError; the report is already written then."""
    wanted = config.publish
    made = publication(
        run, report, folder / "bundle", base_ref=job.pull_request.head_ref if job.pull_request else job.default_branch,
        base_sha=job.head_sha, branch_prefix=wanted.branch_prefix, subject=wanted.commit_message, labels=wanted.labels,
        draft=wanted.draft, reviewers=wanted.reviewers, author=job.pull_request.author if job.pull_request else "",
        wiring=wiring)
    if made is None:
        return Published("reported", reason="nothing is faster than the best applicable baseline")
    if forge is None:
        return Published("reported", reason="publication is switched off")
    if job.pull_request and job.pull_request.fork:
        return Published("reported", reason="the pull request comes from a fork")
    return forge.publish(made)


def _said(published: Published) -> str:
    if published.operation == "reported":
        return f"not published: {published.reason}"
    number = f" pull request #{published.number}" if published.number else ""
    where = f"branch {published.branch} at {published.head_sha[:12]} {published.url}".rstrip()
    return f"{published.operation}:{number} {where}"
