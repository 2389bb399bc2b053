"""`kernelopt authorise`: the first phase, on a hosted runner. No code of the repository runs in it."""

from __future__ import annotations

import os
import time
from dataclasses import replace
from pathlib import Path

import click

from kernelopt_bot.cli import phases
from kernelopt_bot.cli.phases import Order, Workflow
from kernelopt_bot.cli.publishing import branch_of
from kernelopt_bot.cli.runner_log import stop_commands
from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.events.commands import MARKER
from kernelopt_bot.events.job import REACTIONS, Decision, Ignored, Job, Reply
from kernelopt_bot.events.payload import from_environment
from kernelopt_bot.events.policy import authorise, recheck
from kernelopt_bot.events.settings import Policy
from kernelopt_bot.publish import job_summary
from kernelopt_bot.publish.branches import Branches
from kernelopt_bot.publish.comments import is_ours
from kernelopt_bot.publish.github import GitHub
from kernelopt_bot.publish.opened import opened, ours
from kernelopt_bot.publish.permission import needing
from kernelopt_bot.publish.reading import facts_of, head_of, policy_at
from kernelopt_bot.publish.rest import Json
from kernelopt_bot.publish.runs import artifact_of, source_of
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.show import Place, show
from kernelopt_bot.report import escape
from kernelopt_bot.search.sweep import NONE_OPEN

_NOTHING = {"execute": "false", "proceed": "false", "artifact": "", "head-sha": "", "source": "none"}


@click.command("authorise")
@click.option("--job", "path", type=click.Path(path_type=Path, dir_okay=False), default=Path("kernelopt-job/job.json"),
              show_default=True, help="Where the job is written, for the other phases.")
@click.option("--wait/--no-wait", default=True, show_default=True,
              help="Wait for the quiet period after a push, then look again.")
def command(path: Path, wait: bool) -> int:
    """Decide what this workflow run's event asks for, and who may ask.

    Reads the event, the policy of the default branch and permissions. Writes the job, and the outputs `execute` and
    `proceed`: whether the next phases have something to do.
    """
    token = phases.take_token()
    stop_commands()
    here = phases.workflow(os.environ)
    github = GitHub(here.repository, token)
    decision, policy_sha, policy = _decided(github, here, wait=wait)
    if isinstance(decision, Job) and decision.operation == "close":
        decision = _after_merge(github, decision, policy)
    if isinstance(decision, Job) and decision.operation in ("status", "cancel"):
        decision = _answered(github, here, decision)
    if not isinstance(decision, Job):
        click.echo(f"nothing to do: {decision.reason}")
        _summary(f"Nothing to do: {decision.reason}.")
        if isinstance(decision, Reply):
            _reply(github, here, decision)
        phases.outputs({**_NOTHING, "reason": decision.reason})
        return 0
    counted = NONE_OPEN
    if decision.sweep and decision.operation == "optimize":
        counted = opened(github, policy, branch_of(decision, policy.publish.branch_prefix))
    phases.write_order(Order(decision, policy_sha, counted), path)
    _queued(github, here, decision)
    runs = "true" if decision.executes else "false"
    click.echo(f"{decision.operation} {source_of(decision)} at {decision.head_sha}")
    phases.outputs({"execute": runs, "proceed": "true", "artifact": artifact_of(decision), "reason": "",
                    "head-sha": decision.head_sha, "source": source_of(decision)})
    return 0


def _decided(github: GitHub, here: Workflow, *, wait: bool) -> tuple[Decision, str, Config]:
    """The decision, and the configuration that is the policy, with its commit. Raises UserError."""
    first = from_environment(os.environ)
    if isinstance(first, Ignored) and os.environ.get("GITHUB_EVENT_NAME") == "issue_comment":
        return first, "", Config()  # Chatter, under every policy: not one request for it.
    about = github.request("GET", "", doing="reading the repository")
    policy_sha = head_of(github, str(about["default_branch"]))
    if not policy_sha:
        raise UserError("the default branch cannot be read, and it holds the policy", where=here.repository,
                        fix="give the job `contents: read`")
    config = policy_at(github, policy_sha)
    policy = Policy.of(config)
    job = from_environment(os.environ, policy)
    if not isinstance(job, Job):
        return job, policy_sha, config
    if job.repository != here.repository:
        raise InputError("the event is of another repository", where=job.repository, fix="run in its own workflow")
    runs = here.runs(github)
    decision = authorise(job, facts_of(github, job, runs), policy)
    if isinstance(decision, Job) and decision.wait_s and wait:
        click.echo(f"waiting {decision.wait_s:.0f} s for newer pushes (events.quiet_s)")
        time.sleep(decision.wait_s)
        decision = replace(decision, wait_s=0.0)
        decision = recheck(decision, facts_of(github, decision, runs, again=True), policy) or decision
    return decision, policy_sha, config


def _answered(github: GitHub, here: Workflow, job: Job) -> Reply | Ignored:
    """`status` and `cancel`, which need no runner with a GPU. Raises UserError."""
    runs = here.runs(github)
    if job.operation == "cancel":
        ended = runs.cancel(job)
        text = "\n".join(f"Cancelled: {r['html_url']}" for r in ended) or "No run of this pull request is unfinished."
        reason = f"{len(ended)} runs cancelled"
    else:
        text = "\n".join(f"{str(r['status']).replace('_', ' ')}: {r['html_url']}" for r in runs.unfinished(job))
        text, reason = text or "No run of this pull request is unfinished.", "the status was asked for"
    if job.event != "issue_comment":
        return Ignored(reason)
    return Reply(text, REACTIONS["done"], reason, job.number, job.comment_id)


def _after_merge(github: GitHub, job: Job, policy: Config) -> Job:
    """Ours must hold where it goes after the merge of its source. The job as it is where there is nothing of ours, the
    branch is somebody else's now, or that cannot be read: publish says what there is to say."""
    pull = job.pull_request
    if pull is None or not pull.merged:
        return job
    try:
        branch = branch_of(job, policy.publish.branch_prefix)
        mine = next((p for p in ours(github, policy.publish.branch_prefix) if p["head"]["ref"] == branch), None)
        into = head_of(github, pull.base_ref)
        tip = Branches(github).tip(branch) if mine is not None and into else None
    except UserError as e:
        click.echo(f"note: looking for our pull request: {' '.join(str(e).split())}", err=True)
        return job
    if tip is None or not tip.ours or not into:
        return job
    return replace(job, operation="reverify", head_sha=tip.sha, base_sha=into)


def _reply(github: GitHub, here: Workflow, reply: Reply) -> None:
    with phases.said_only("reacting to the comment"), needing("pull-requests: write"):
        _react(github, reply.comment_id, reply.reaction)
    if not reply.text:
        return
    with phases.said_only("answering the comment"), needing("pull-requests: write"):
        first = f"{MARKER}:reply {reply.comment_id} -->"
        path = f"issues/{reply.number}/comments"

        def find() -> Json | None:
            there = github.pages(path, limit=3000, doing="looking for our answer")
            return next((c for c in there if is_ours(c, here.login, first)), None)

        if find() is None:
            github.request("POST", path, {"body": f"{first}\n{reply.text}\n"}, find=find, doing="answering a comment")


def _react(github: GitHub, comment: int, content: str) -> None:
    if comment:
        github.request("POST", f"issues/comments/{comment}/reactions", {"content": content}, repeatable=True,
                       doing="reacting to a comment")


def _queued(github: GitHub, here: Workflow, job: Job) -> None:
    if not job.executes:
        return
    with phases.said_only("reacting to the comment"):
        _react(github, job.comment_id, REACTIONS["seen"])
    seen = Seen("queued", job.head_sha, asked=job.asked_by_person, run_url=here.url)
    # What is in the comment of an earlier run stays true of its commit until this run has an answer.
    place = Place(job.number if job.comment_id else None, here.external_id, here.app)
    for failed in show(github, seen, place):
        click.echo(f"note: {failed}", err=True)
    with phases.said_only("reacting to the comment"):
        _react(github, job.comment_id, REACTIONS["started"])


def _summary(text: str) -> None:
    path = os.environ.get("GITHUB_STEP_SUMMARY")
    if path:
        with phases.said_only("the job's summary"):
            job_summary.append_text(lambda room: f"### KernelOPT\n\n{escape.text(text)}\n", Path(path))
