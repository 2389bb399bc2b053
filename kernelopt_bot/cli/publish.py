"""`kernelopt publish`: the last phase, on a hosted runner with the token that may write. It executes nothing."""

from __future__ import annotations

import os
import re
import tempfile
from dataclasses import replace
from pathlib import Path

import click

from kernelopt_bot.cli import outcome, phases
from kernelopt_bot.cli.phases import Order, Workflow
from kernelopt_bot.cli.publishing import Found, said_of, show_notes, source_closed, verified_again
from kernelopt_bot.cli.publishing import published as publish
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.config import Config
from kernelopt_bot.errors import UserError
from kernelopt_bot.events.job import REACTIONS, Job
from kernelopt_bot.events.policy import recheck
from kernelopt_bot.events.settings import Policy
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.board import board
from kernelopt_bot.publish.bundle import Bundle
from kernelopt_bot.publish.call_sites import call_sites
from kernelopt_bot.publish.dashboard import Dashboard
from kernelopt_bot.publish.edits import edits_there
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.publication import Published
from kernelopt_bot.publish.reading import facts_of, policy_at
from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.publish.show import Place, show
from kernelopt_bot.report.facts import faster
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.sweep import Swept

_SHA = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_RESULTS = ("success", "failure", "cancelled", "skipped")


@click.command("publish")
@click.option("--job", "path", type=click.Path(path_type=Path, dir_okay=False), default=Path("kernelopt-job/job.json"),
              show_default=True, help="What `kernelopt authorise` wrote.")
@click.option("--bundle", "made", type=click.Path(path_type=Path, file_okay=False), default=Path("kernelopt-bundle"),
              show_default=True, help="What `kernelopt execute` wrote; it may be missing.")
@click.option("--execute-result", "result", type=click.Choice(_RESULTS), default="success", show_default=True,
              help="The result of the job that executed, in GitHub's words.")
@click.option("--to", "where", type=click.Choice(["github", "report"]), default="github", show_default=True,
              help="A pull request, or the report only.")
@click.option("--head-sha", "head", default="", help="Commit whose check is concluded where the job cannot be read.")
def command(path: Path, made: Path, result: str, where: str, head: str) -> int:
    """Check the result of `kernelopt execute` and publish it; conclude the check run whatever came of it."""
    token = phases.take_token()
    stop_commands()
    here = phases.workflow(os.environ)
    forge = GitHubForge(here.repository, token, app_token=phases.take_app_token())
    try:
        order = phases.read_order(path)
    except UserError as e:
        # An artifact that was not stored, or is gone: authorise has opened a check by then.
        if _SHA.fullmatch(head):
            lost = Seen("error", head, f"what authorise handed on is lost: {e.what}", run_url=here.url)
            _shown(forge, here, Job("manual", "", here.repository, head, ""), lost)
        raise
    job = order.job
    if job.operation == "close":
        ended = source_closed(forge, job, policy_at(forge.github, order.policy_sha))
        _outputs(None, ended, made)
        click.echo(outcome.said(ended))
        return 0
    with tempfile.TemporaryDirectory(prefix="kernelopt-publish-") as scratch:
        config, held, seen, published, error = _judged(forge, here, order, made, Path(scratch), result, where)
    _shown(forge, here, job, seen)
    if job.sweep and config.sweep.dashboard and where == "github" and error is None:
        with phases.said_only("the dashboard"):
            swept = held.account.swept if held is not None else Swept()
            paths = {r.target.name: r.target.path for r in held.run.results} if held is not None else {}
            rows = board(forge.github, job, config, swept, seen, paths)
            Dashboard(forge.writing, here.writer or here.login).show(rows)
    _outputs(held, published, made)
    show_notes(published)
    click.echo(outcome.said(published))
    if error:
        raise error
    return 0


def _judged(forge: GitHubForge, here: Workflow, order: Order, made: Path, scratch: Path, result: str,
            where: str) -> tuple[Config, Bundle | None, Seen, Published, Exception | None]:
    """The policy, what was published, and what is to be seen of it. An error is raised only after it was shown."""
    job, config = order.job, Config()
    about = Seen("nothing", job.head_sha, asked=job.asked_by_person, run_url=here.url)
    held = None
    try:
        config = policy_at(forge.github, order.policy_sha)
        if (made / "bundle.json").exists():
            held = bundle.read(made, scratch, job, config.artifact.root)
        refused = recheck(job, facts_of(forge.github, job, here.runs(forge.github), again=True), Policy.of(config))
        if refused is not None:
            seen = replace(about, state="refused", reason=refused.reason)
            return config, held, seen, Published("reported", reason=refused.reason), None
        published = _published(forge, here, job, config, held, where)
    except Exception as e:
        # A bug too: the check must not stay open, and who waits for it is told.
        reason = f"{e.what} {e.where}".strip() if isinstance(e, UserError) else (
            f"a bug in KernelOPT: {type(e).__name__}; the log of this phase has what to report")
        return config, held, replace(about, state="error", reason=reason), Published("reported", reason=reason), e
    swept = held.account.swept if held is not None else Swept()
    seen = finished(held.summary if held is not None else None, head_sha=job.head_sha, cancelled=result == "cancelled",
                    asked=about.asked or job.operation == "reverify", pull_number=published.number,
                    pull_url=published.url, unpublished=published.reason if published.number is None else "",
                    run_url=here.url, notes=(*said_of(swept), *(("", note) for note in published.notes)))
    if held is None:
        published = replace(published, reason=published.reason or seen.reason or "the run was cancelled")
    return config, held, seen, published, None


def _published(forge: GitHubForge, here: Workflow, job: Job, config: Config, held: Bundle | None,
               where: str) -> Published:
    """Raises UserError."""
    if job.operation == "reverify":
        after = source_closed(forge, job, config)
        return verified_again(forge, job, config, after, held.account.swept) if held is not None else after
    if held is None:
        return Published("reported")
    if job.report_only:
        return Published("reported", reason="the pull request comes from a fork: its result is a report")
    if where == "report":
        return Published("reported", reason="publication is switched off")
    # Only what this release would have written for this job came so far, and only a gain changes a call site.
    wiring = call_sites(forge.github, job.head_sha, config, [(r, r.artifact) for r in faster(held.run) if r.artifact])
    edits = edits_there(held.run, forge.github, job.head_sha, job.source_branch or job.default_branch, config)
    found = Found(held.run, held.root, held.account.ended, held.account.swept, edits)
    return publish(forge, job, config, found, wiring, whole_report=here.url)


def _shown(forge: GitHubForge, here: Workflow, job: Job, seen: Seen) -> None:
    """Each of these alone may be refused; the result stands."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    number = seen.pull_number if job.operation == "reverify" else job.number
    place = Place(number or None, here.external_id, here.app, Path(summary) if summary else None)
    for failed in show(forge.github, seen, place):
        click.echo(f"note: {failed}", err=True)
    if job.comment_id:
        with phases.said_only("reacting"):
            content = REACTIONS["done" if seen.state in ("gained", "nothing") else "failed"]
            forge.github.request("POST", f"issues/comments/{job.comment_id}/reactions", {"content": content},
                                 repeatable=True, doing="reacting to a comment")


def _outputs(held: Bundle | None, published: Published, made: Path) -> None:
    run = held.run if held is not None else RunResult((), "")
    phases.outputs(outcome.values(run, published, made / "report.json" if held is not None else None))

