"""`kernelopt publish`: the last phase, on a hosted runner with the token that may write. It executes nothing."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import click

from kernelopt_bot.cli import outcome, phases
from kernelopt_bot.cli.phases import Order, Workflow
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.config import Config
from kernelopt_bot.errors import UserError
from kernelopt_bot.events.job import REACTIONS, Job
from kernelopt_bot.events.policy import recheck
from kernelopt_bot.events.settings import Policy
from kernelopt_bot.publish import bundle
from kernelopt_bot.publish.bundle import Bundle
from kernelopt_bot.publish.content import branch_name, gone, publication
from kernelopt_bot.publish.github import GitHubForge
from kernelopt_bot.publish.publication import Published
from kernelopt_bot.publish.reading import facts_of, policy_at
from kernelopt_bot.publish.seen import Seen, finished
from kernelopt_bot.publish.show import Place, show
from kernelopt_bot.report.build import build
from kernelopt_bot.search.result import RunResult

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
def command(path: Path, made: Path, result: str, where: str) -> int:
    """Check the result of `kernelopt execute` and publish it; conclude the check run whatever came of it."""
    token = phases.take_token()
    stop_commands()
    here = phases.workflow(os.environ)
    order = phases.read_order(path)
    forge = GitHubForge(here.repository, token)
    config = policy_at(forge.github, order.policy_sha)
    job = order.job
    if job.operation == "close":
        ended = _source_closed(forge, job, config)
        _outputs(None, ended, made)
        click.echo(outcome.said(ended))
        return 0
    with tempfile.TemporaryDirectory(prefix="kernelopt-publish-") as scratch:
        held, seen, published, error = _judged(forge, here, order, config, made, Path(scratch), result, where)
    _shown(forge, here, job, seen)
    _outputs(held, published, made)
    click.echo(outcome.said(published))
    if error:
        raise error
    return 0


def _judged(forge: GitHubForge, here: Workflow, order: Order, config: Config, made: Path, scratch: Path, result: str,
            where: str) -> tuple[Bundle | None, Seen, Published, UserError | None]:
    """What was published, and what is to be seen of it. An error is raised only after it was shown."""
    job = order.job
    about = {"head_sha": job.head_sha, "asked": job.asked_by_person, "run_url": here.url}
    stopped = result == "cancelled"
    held = None
    try:
        if (made / "bundle.json").exists():
            held = bundle.read(made, scratch, job, config.artifact.root)
        refused = recheck(job, facts_of(forge.github, job, here.runs(forge.github), again=True), Policy.of(config))
        if refused is not None:
            seen = Seen("refused", job.head_sha, refused.reason, asked=job.asked_by_person, run_url=here.url)
            return held, seen, Published("reported", reason=refused.reason), None
        if held is None:
            seen = finished(None, cancelled=stopped, **about)  # type: ignore[arg-type]
            return None, seen, Published("reported", reason=seen.reason or "the run was cancelled"), None
        published = _published(forge, here, job, config, held, where)
    except UserError as e:
        reason = f"{e.what} {e.where}".strip()
        seen = Seen("error", job.head_sha, reason, asked=job.asked_by_person, run_url=here.url)
        return held, seen, Published("reported", reason=reason), e
    seen = finished(held.summary, cancelled=stopped, pull_number=published.number, pull_url=published.url,
                    unpublished=published.reason if published.number is None else "",
                    **about)  # type: ignore[arg-type]
    return held, seen, published, None


def _published(forge: GitHubForge, here: Workflow, job: Job, config: Config, held: Bundle, where: str) -> Published:
    """Raises UserError."""
    wanted, pull = config.publish, job.pull_request
    sweep = "" if job.number else job.source_branch
    new = publication(
        held.run, build(held.run), held.root, base_ref=job.source_branch, base_sha=job.head_sha,
        branch_prefix=wanted.branch_prefix, subject=wanted.commit_message, labels=wanted.labels, draft=wanted.draft,
        sweep=sweep, reviewers=wanted.reviewers, author=pull.author if pull and not pull.bot else "",
        whole_report=here.url)
    if job.report_only:
        return Published("reported", reason="the pull request comes from a fork: its result is a report")
    if where == "report":
        return Published("reported", reason="publication is switched off")
    if new is not None:
        return forge.publish(new)
    ended = gone(held.run, branch_prefix=wanted.branch_prefix, sweep=sweep) if job.operation == "optimize" else None
    if ended is not None and (done := forge.withdraw(ended)).operation == "closed":
        return done
    return Published("reported", reason="nothing is faster than the best applicable baseline")


def _source_closed(forge: GitHubForge, job: Job, config: Config) -> Published:
    pull = job.pull_request
    assert pull is not None
    ours = branch_name(RunResult((), "", pull_request=job.number), config.publish.branch_prefix)
    return forge.source_closed(ours, job.number, merged_into=pull.base_ref if pull.merged else "")


def _shown(forge: GitHubForge, here: Workflow, job: Job, seen: Seen) -> None:
    """Each of these alone may be refused; the result stands. Nothing is checked out, so annotations stand at line 1."""
    summary = os.environ.get("GITHUB_STEP_SUMMARY")
    place = Place(job.number or None, here.external_id, here.app, Path(summary) if summary else None)
    for failed in show(forge.github, seen, place, lambda path: ""):
        click.echo(f"note: {failed}", err=True)
    if job.comment_id:
        with phases.said_only("reacting"):
            content = REACTIONS["done" if seen.state in ("gained", "nothing") else "failed"]
            forge.github.request("POST", f"issues/comments/{job.comment_id}/reactions", {"content": content},
                                 repeatable=True, doing="reacting to a comment")


def _outputs(held: Bundle | None, published: Published, made: Path) -> None:
    run = held.run if held is not None else RunResult((), "")
    phases.outputs(outcome.values(run, published, made / "report.json" if held is not None else None))

