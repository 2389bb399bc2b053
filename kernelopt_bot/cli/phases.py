"""What the phases authorise, execute and publish hand to each other and to the workflow."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import TypeAdapter, ValidationError

from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.events.job import Job
from kernelopt_bot.events.wire import LONGEST
from kernelopt_bot.process import ProcessError
from kernelopt_bot.publish.github import GitHub
from kernelopt_bot.publish.runs import Runs
from kernelopt_bot.report.write import write_whole
from kernelopt_bot.search.sweep import NONE_OPEN, Opened

TOKENS = ("GITHUB_TOKEN", "GH_TOKEN")
APP_TOKEN = "KERNELOPT_APP_TOKEN"


@dataclass(frozen=True)
class Order:
    """`job.json`: what authorise decided. Made on a hosted runner before any code of the repository ran."""

    job: Job
    policy_sha: str
    """Commit of the default branch whose configuration is the policy in every phase."""
    opened: Opened = NONE_OPEN
    """Of a sweep: our open pull requests, for its caps."""


_ORDER = TypeAdapter(Order)


def write_order(order: Order, path: Path) -> None:
    """Raises InputError or Unavailable."""
    write_whole(path, _ORDER.dump_json(order) + b"\n")


def read_order(path: Path) -> Order:
    """Raises InputError."""
    try:
        with path.open("rb") as file:
            text = file.read(LONGEST + 1)
        if len(text) > LONGEST:
            raise InputError("the job is too long", where=str(path), fix="hand on job.json unchanged")
        return _ORDER.validate_json(text, strict=True)
    except OSError as e:
        raise InputError(f"the job cannot be read: {e.strerror}", where=str(path),
                         fix="run `kernelopt authorise` first, and hand on its job.json") from None
    except ValidationError as e:
        first = e.errors(include_url=False, include_input=False)[0]
        raise InputError(f"the job is malformed: {first['msg']}", where=".".join(map(str, first["loc"])) or str(path),
                         fix="hand on job.json unchanged") from None


@dataclass(frozen=True)
class Workflow:
    """The workflow run of this process, by its environment."""

    repository: str
    run_id: int
    attempt: str
    server: str
    app: str
    """Slug of the App whose token it is: only the App that made a check run may change it."""
    writer: str = ""
    """Login of who makes branches, pull requests and the dashboard, where an App's own token does; '': `login`."""

    @property
    def external_id(self) -> str:
        """The same in all phases of one attempt."""
        return f"kernelopt-{self.run_id}-{self.attempt}"

    @property
    def url(self) -> str:
        return f"{self.server}/{self.repository}/actions/runs/{self.run_id}" if self.run_id else ""

    @property
    def login(self) -> str:
        """Who writes our comments."""
        return f"{self.app}[bot]"

    def runs(self, github: GitHub) -> Runs:
        return Runs(github, self.run_id)


def workflow(environment: Mapping[str, str]) -> Workflow:
    """Raises InputError outside a workflow."""
    repository, run = environment.get("GITHUB_REPOSITORY", ""), environment.get("GITHUB_RUN_ID", "0")
    if not repository or not run.isdecimal():
        raise InputError("GITHUB_REPOSITORY or GITHUB_RUN_ID is not that of a workflow run", where="the environment",
                         fix="run this phase in a workflow; by hand use `kernelopt optimize PATH`")
    writer = environment.get("KERNELOPT_APP_SLUG", "")
    return Workflow(repository, int(run), environment.get("GITHUB_RUN_ATTEMPT", "1"),
                    environment.get("GITHUB_SERVER_URL", "") or "https://github.com",
                    environment.get("KERNELOPT_APP", "") or "github-actions", f"{writer}[bot]" if writer else "")


def take_token() -> str:
    """The token of this process, which nothing that it starts may find; masked in the log where there is a runner."""
    return _masked(next((t for t in [os.environ.pop(name, "") for name in TOKENS] if t), ""))


def take_app_token() -> str:
    """The same for the token of an App, minted for publish alone: branch and pull request are the App's then, so that
    their checks start by themselves. Check run and comment stay with the job's token, which made them."""
    return _masked(os.environ.pop(APP_TOKEN, ""))


def _masked(token: str) -> str:
    if token and os.environ.get("GITHUB_ACTIONS") == "true":
        click.echo(f"::add-mask::{token}", err=True)
    return token


def outputs(values: Mapping[str, object]) -> None:
    """Step outputs, where GITHUB_OUTPUT names a file; each value becomes one line."""
    path = os.environ.get("GITHUB_OUTPUT")
    if path:
        with open(path, "a", encoding="utf-8") as stream:
            stream.writelines(f"{name}={' '.join(str(value).split())}\n" for name, value in values.items())


@contextlib.contextmanager
def said_only(doing: str) -> Iterator[None]:
    """For what people see beside the result: a refusal there is said in the log and costs nothing else."""
    try:
        yield
    except (UserError, ProcessError) as e:
        click.echo(f"note: {doing}: {' '.join(str(e).split())}", err=True)
