"""From a job and a repository to a result: what `kernelopt run` and `kernelopt execute` share."""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from kernelopt_bot.agents import assemble
from kernelopt_bot.agents.lessons import Lessons
from kernelopt_bot.cli.optimize import overridden
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, Traced
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.job import Job
from kernelopt_bot.publish.bundle import Verified
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.result import RunResult
from kernelopt_bot.search.run import Finished, interpreter_of, run_all
from kernelopt_bot.search.verify import verify
from kernelopt_bot.targets.checkout import checkout
from kernelopt_bot.targets.diff import affected, everything
from kernelopt_bot.targets.git import Repository
from kernelopt_bot.targets.git import shown as shown_path
from kernelopt_bot.targets.target import Affected, Target


@dataclass(frozen=True)
class Searched:
    finished: Finished
    run: RunResult
    verified: tuple[Verified, ...] = ()


def search(repository: Repository, job: Job, traced: Traced, folder: Path) -> Searched:
    """Do what `job` asks for at its head commit; `folder` is the run's. Raises UserError where nothing can be run."""
    config = with_interpreter(asked_for(traced.config, job.command), os.environ.get("KERNELOPT_PYTHON", ""))
    found = _targets(repository, job, traced)
    finished = Finished((), "")
    verified: tuple[Verified, ...] = ()
    if found.targets:
        tracked = [e.path for e in repository.entries(found.head)]
        refuse_committed_interpreter(config.environment.python, Path.cwd(), tracked)
        with shown() as progress:
            progress.note(f"targets: {', '.join(t.name for t in found.targets)}")
            clean = checkout(repository, found.head, folder / "checkout")
            for path, reason in clean.skipped:
                progress.note(f"not in the checkout: {path}: {reason}")
            if job.operation == "verify" or job.sweep:
                verified = _verified(found, config, clean.root, progress)
            if job.operation == "optimize":
                finished = run_all(found.targets, config=config, root=clean.root, base=Path.cwd(), folder=folder,
                                   progress=progress, gather=assemble.gather(config.agents, lessons=_lessons(job)))
    run = RunResult(
        finished.results, shlex.join(["kernelopt", "optimize", *(f"{t.path}:{t.entry}" for t in found.targets)]),
        skipped=found.skipped, base_sha=found.base, head_sha=found.head, repository=job.repository,
        pull_request=job.number or None, stopped=finished.stopped)
    return Searched(finished, run, verified)


def _lessons(job: Job) -> Lessons:
    """Of this repository; only runs of its default branch, and never a fork's, add to them."""
    own = not job.is_fork and job.pull_request is None and job.source_branch == job.default_branch
    return Lessons.of(job.repository or str(Path.cwd()), writes=own)


def asked_for(config: Config, command: Command | None) -> Config:
    """The policy with what the command asks for, which authorise has held against the policy's limits.

    Raises InputError.
    """
    if command is None:
        return config
    return overridden(config, levers=",".join(command.levers), device="", sandbox=None, budget=command.budget_s)


def with_interpreter(config: Config, python: str) -> Config:
    """The configuration with the workflow's interpreter where it names none itself."""
    if not python or config.environment.python:
        return config
    return config.model_copy(update={"environment": config.environment.model_copy(update={"python": python})})


def _targets(repository: Repository, job: Job, traced: Traced) -> Affected:
    wanted = job.command.targets if job.command else ()
    if not wanted and not job.sweep and job.operation == "optimize":
        return affected(repository, job.base_sha, job.head_sha, traced)
    found = everything(repository, job.head_sha, traced)
    return named(found, wanted) if wanted else found


def named(found: Affected, wanted: tuple[str, ...]) -> Affected:
    """Those of the targets that a command names. Raises InputError with the nearest name for one that is not there."""
    chosen: dict[str, Target] = {}
    for word in wanted:
        fitting = [t for t in found.targets if word in (t.name, t.path, f"{t.path}:{t.entry}")]
        if not fitting:
            near = difflib.get_close_matches(word, [t.name for t in found.targets], 1)
            raise InputError("there is no such target", where=word[:200],
                             fix=f"did you mean {near[0]}?" if near else "name a target of this commit")
        chosen |= {t.name: t for t in fitting}
    return Affected(found.base, found.head, found.changed, tuple(chosen.values()), found.skipped)


def _verified(found: Affected, config: Config, root: Path, progress: Progress) -> tuple[Verified, ...]:
    """Each committed artifact of the targets, by the gates on this machine."""
    # Of the checkout only tracked files are there; the interpreter's environment is not one of them.
    python = interpreter_of(config, Path.cwd())
    unset = config.model_copy(update={"environment": config.environment.model_copy(update={"python": ""})})
    config = with_interpreter(unset, python)
    outcomes = []
    for target in found.targets:
        artifact = f"{config.artifact.root}/{target.name}"
        if not (root / artifact / "manifest.json").is_file():
            continue
        progress.note(f"verifying {artifact}")
        try:
            outcome = verify(root / artifact, lambda name, target=target: target, config=config,  # type: ignore[misc]
                             root=root, progress=progress)
        except UserError as e:
            outcomes.append(Verified(artifact, "not measured", " ".join(str(e).split())[:2000]))
        else:
            outcomes.append(Verified(artifact, outcome.state, outcome.reason[:2000]))
    return tuple(outcomes)


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
