"""The configuration's sections on events: part of the policy, so always of the default branch or the base."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

if TYPE_CHECKING:
    from kernelopt_bot.config import Config

Word = Annotated[str, Field(min_length=1, max_length=200)]
Words = Annotated[tuple[Word, ...], Field(strict=False, max_length=200)]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Events(_Section):
    """What starts a run by itself. Commands in comments are separate."""

    automatic: bool = Field(default=True, description=(
        "Pull requests start runs by themselves; false: only `run_label` and commands do."))
    push: Words = Field(default=(), description="Branches whose pushes start a run; patterns as in `paths`.")
    run_label: str = Field(default="kernelopt", min_length=1, max_length=50, description=(
        "Label on a pull request that asks for a run."))
    opt_out_label: str = Field(default="no-kernelopt", min_length=1, max_length=50, description=(
        "Label on a pull request that stops every run, also a command's."))
    paths: Words = Field(default=(), description=(
        "Only changes of these files start a run; empty: of any. Patterns with * ? [ ], in which * also matches /."))
    ignore_paths: Words = Field(default=(), description="Changes of these files never start a run.")
    ignore_authors: Words = Field(default=(), description="Logins whose pull requests start no run by themselves.")
    ignore_branches: Words = Field(default=(), description=(
        "Head branches that start no run by themselves; patterns as in `paths`."))
    bots: bool = Field(default=False, description="Whether pull requests opened by bots start runs.")
    drafts: bool = Field(default=False, description="Whether drafts start runs.")
    quiet_s: float = Field(default=300.0, ge=0.0, le=3600.0, description=(
        "Seconds without a newer push before a run begins."))
    runs_a_day: int = Field(default=3, ge=0, le=1000, description=(
        "Runs that events may start for one pull request or branch in a day (UTC)."))


class Commands(_Section):
    """Who may ask in a comment or by a label, and for how much."""

    permission: Literal["write", "maintain", "admin"] = Field(default="write", description=(
        "Least effective permission of who asks. One that cannot be read is no permission."))
    a_day: int = Field(default=10, ge=0, le=1000, description=(
        "Runs that commands and labels may start for one pull request in a day (UTC)."))
    budget_minutes: float = Field(default=60.0, gt=0.0, le=1440.0, description=(
        "Most that `--budget` may ask for, in minutes."))
    cost: float = Field(default=5.0, ge=0.0, le=100_000.0, description=(
        "Most that `--max-cost` may ask for, in US dollars."))


class Runner(_Section):
    """What is promised of the machine that executes."""

    ephemeral: bool = Field(default=False, description=(
        "The runner is used for one job and then destroyed. Only then may code of a fork run on it, by command only."))


@dataclass(frozen=True)
class Policy:
    """All that `decide`, `authorise` and `recheck` need of the configuration."""

    events: Events = field(default_factory=Events)
    commands: Commands = field(default_factory=Commands)
    runner: Runner = field(default_factory=Runner)
    own_prefix: str = "kernelopt-"
    """Begins the names of our own branches."""

    @staticmethod
    def of(config: Config) -> Policy:
        return Policy(config.events, config.commands, config.runner, config.publish.branch_prefix)
