"""`kernelopt execute`: the second phase, on the runner with the GPU. It needs no token and has no secret."""

from __future__ import annotations

import os
from pathlib import Path

import click

from kernelopt_bot.cli import outcome, phases
from kernelopt_bot.cli.optimize import end_in_time, end_with_what_was_verified
from kernelopt_bot.cli.patch import write_patch
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.cli.searching import search
from kernelopt_bot.errors import InputError
from kernelopt_bot.publish import bundle
from kernelopt_bot.report.build import build
from kernelopt_bot.search.deadline import deadline_in
from kernelopt_bot.search.sweep import Swept
from kernelopt_bot.targets.diff import config_for
from kernelopt_bot.targets.git import open_repository


@click.command("execute")
@click.option("--job", "path", type=click.Path(path_type=Path, dir_okay=False), default=Path("kernelopt-job/job.json"),
              show_default=True, help="What `kernelopt authorise` wrote.")
@click.option("--bundle", "made", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-bundle"),
              show_default=True, help="Folder for the result, which `kernelopt publish` reads.")
@click.option("--output", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-out"),
              show_default=True, help="Folder for report.md, report.json, charts and the run's records.")
def command(path: Path, made: Path, output: Path) -> int:
    """Search in the current repository, which must be at the job's head commit.

    An interruption (a cancelled job) ends the search with what is verified, and that is in the bundle. So does the
    job's time limit, where KERNELOPT_DEADLINE names it in seconds since 1970: no target is begun that could not be
    finished.
    """
    deadline = deadline_in(os.environ)
    end_with_what_was_verified()
    end_in_time(deadline)
    phases.take_token()
    stop_commands()
    order = phases.read_order(path)
    job = order.job
    if not job.executes:
        raise InputError(f"the job {job.operation} executes nothing", where=str(path), fix="go on with publish")
    repository = open_repository(Path.cwd())
    head = repository.commit("HEAD")
    if head != job.head_sha:
        raise InputError("the checkout is not at the job's commit", where=f"{head}, not {job.head_sha}",
                         fix="check out the output `head-sha` of authorise with its history")
    traced = config_for(repository, order.policy_sha, job.head_sha)
    folder = outcome.run_folder(output)
    done = search(repository, job, traced, folder, opened=order.opened, deadline=deadline)
    report = build(done.run)
    outcome.write_files(report, output)
    bundle.write(made, job, done.run, report, folder / "bundle", done.swept or Swept(done.verified))
    with phases.said_only("writing the patch"):
        write_patch(output, done.run, folder / "bundle", repository, job.head_sha)
    outcome.show(report, output, as_json=False)
    for v in done.verified:
        click.echo(f"{v.artifact}: {v.state}{': ' + v.reason if v.reason else ''}")
    if done.finished.bug:
        raise done.finished.bug
    return outcome.exit_code(done.run, interrupted=done.finished.interrupted, limited=done.finished.limited)
