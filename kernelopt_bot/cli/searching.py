"""From a job and a repository to a result: what `kernelopt run` and `kernelopt execute` share."""

from __future__ import annotations

import difflib
import os
import shlex
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from kernelopt_bot.agents import assemble
from kernelopt_bot.agents.spend import tightened
from kernelopt_bot.cli.optimize import overridden
from kernelopt_bot.cli.progress import shown
from kernelopt_bot.config import Config, Traced
from kernelopt_bot.errors import InputError
from kernelopt_bot.events.commands import Command
from kernelopt_bot.events.job import Job
from kernelopt_bot.search.deadline import NEVER, Deadline
from kernelopt_bot.search.executor import Finished
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.result import RunResult, TargetResult
from kernelopt_bot.search.run import run_all
from kernelopt_bot.search.sweep import NONE_OPEN, Opened, Swept, Verified, held_in
from kernelopt_bot.search.sweeping import dated, rooms_of, sweep_all, verify_each, with_interpreter
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
    swept: Swept | None = None
    """Of a sweep."""


def search(repository: Repository, job: Job, traced: Traced, folder: Path, *, opened: Opened = NONE_OPEN,
           deadline: Deadline = NEVER) -> Searched:
    """Do what `job` asks for at its head commit; `folder` is the run's. `opened`: for a sweep's caps. Raises UserError
    where nothing can be run."""
    config = with_workflows(asked_for(traced.config, job.command), os.environ.get("KERNELOPT_PYTHON", ""))
    found = _targets(repository, job, traced)
    if found is None:
        why = "it conflicts with the branch that it goes into"
        lost = tuple(Verified(a, "failed", why) for a in _offered(repository, job, job.head_sha, config))
        nothing = Affected(job.base_sha, job.head_sha, (), ())
        return Searched(Finished((), why, limited=True), _run(job, nothing, why), lost)
    entries = [e.path for e in repository.entries(found.head)]
    done = Searched(Finished((), ""), RunResult((), ""))
    if found.targets or (job.sweep and _artifacts(entries, config)):
        refuse_committed_interpreter(config.environment.python, Path.cwd(), entries)
        with shown() as progress:
            progress.note(f"targets: {', '.join(t.name for t in found.targets)}")
            clean = checkout(repository, found.head, folder / "checkout")
            for path, reason in clean.skipped:
                progress.note(f"not in the checkout: {path}: {reason}")
            done = _done(repository, job, found, config, clean.root, folder, progress, opened, deadline)
    return replace(done, run=_run(job, found, done.finished.stopped, done.finished.results))


def _run(job: Job, found: Affected, stopped: str, results: tuple[TargetResult, ...] = ()) -> RunResult:
    command = shlex.join(["kernelopt", "optimize", *(f"{t.path}:{t.entry}" for t in found.targets)])
    # Of what was merged here only the job's own commit is known elsewhere.
    return RunResult(results, command, skipped=found.skipped, base_sha=found.base, head_sha=job.head_sha,
                     repository=job.repository, pull_request=job.number or None, stopped=stopped)


def _offered(repository: Repository, job: Job, head: str, config: Config) -> tuple[str, ...]:
    """The artifact folders that `head` adds to the job's base, or changes."""
    start = repository.merge_base(job.base_sha, head) or job.base_sha
    below = f"{config.artifact.root}/"
    names = [p.removeprefix(below).split("/") for p in repository.changed(start, head) if p.startswith(below)]
    return tuple(sorted({below + parts[0] for parts in names if len(parts) > 1}))


def _done(repository: Repository, job: Job, found: Affected, config: Config, root: Path, folder: Path,
          progress: Progress, opened: Opened, deadline: Deadline) -> Searched:
    """Without its run. Raises UserError."""
    nothing = RunResult((), "")
    if job.sweep:
        held = dated(held_in(root, config.artifact.root), repository, found.head)
        made = sweep_all(found.targets, held, config=config, root=root, base=Path.cwd(), folder=folder,
                         rooms=rooms_of(folder.parent.parent / "report.json"), progress=progress, opened=opened,
                         search=job.operation == "optimize", deadline=deadline, memory=_memory(job, progress))
        return Searched(made.finished, nothing, made.swept.verified, made.swept)
    if job.operation in ("verify", "reverify"):
        only = _offered(repository, job, found.head, config) if job.operation == "reverify" else None
        there = {f"{config.artifact.root}/{t.name}": "" for t in found.targets
                 if (root / config.artifact.root / t.name / "manifest.json").is_file()
                 and (only is None or f"{config.artifact.root}/{t.name}" in only)}
        verified, interrupted = verify_each(there, found.targets, with_interpreter(config, Path.cwd()), root, progress,
                                            deadline)
        stopped = "interrupted while verifying" if interrupted else ""
        return Searched(Finished((), stopped, interrupted=interrupted), nothing, verified)
    finished = run_all(found.targets, config=config, root=root, base=Path.cwd(), folder=folder, progress=progress,
                       deadline=deadline, memory=_memory(job, progress), gather=assemble.gather(config.agents))
    return Searched(finished, nothing)


def _artifacts(paths: list[str], config: Config) -> bool:
    return any(p.startswith(f"{config.artifact.root}/") and p.endswith("/manifest.json") for p in paths)


def _memory(job: Job, progress: Progress) -> Memory:
    """Outcomes and lessons of this repository."""
    return Memory.of(job.repository or str(Path.cwd()), writes=_teaches(job), note=progress.note)


def _teaches(job: Job) -> bool:
    """Only runs of the default branch, and never a fork's, add to what later searches begin with."""
    return not job.is_fork and job.pull_request is None and job.source_branch == job.default_branch


def asked_for(config: Config, command: Command | None) -> Config:
    """The policy with what the command asks for, which authorise has held against the policy's limits.

    Raises InputError.
    """
    if command is None:
        return config
    if command.max_cost is not None and (unknown := config.agents.unpriced):
        raise InputError(f"the price of the model {unknown[0]!r} is not known, so its cost cannot be limited",
                         where="agents.prices in .kernelopt.yml", fix="add it, or ask without --max-cost")
    limits = tightened(config.agents.limits, command.max_cost)
    config = config.model_copy(update={"agents": config.agents.model_copy(update={"limits": limits})})
    return overridden(config, levers=",".join(command.levers), device="", sandbox=None, budget=command.budget_s)


def with_workflows(config: Config, python: str) -> Config:
    """The configuration with the workflow's interpreter where it names none itself."""
    if not python or config.environment.python:
        return config
    return config.model_copy(update={"environment": config.environment.model_copy(update={"python": python})})


def _targets(repository: Repository, job: Job, traced: Traced) -> Affected | None:
    """None: what is to be verified conflicts with where it goes."""
    if job.operation == "reverify":
        together = repository.merged(job.head_sha, repository.commit(job.base_sha))
        return everything(repository, together, traced) if together else None
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


def refuse_committed_interpreter(python: str, base: Path, tracked: list[str]) -> None:
    """Raises InputError if the commit under test holds the interpreter's environment, or a part of the way to it.

    What is readable in the jail follows from the environment's own files: a pull request must not write them.
    """
    if "/" not in python:
        return
    named = Path(os.path.normpath(base / python))
    # Also by the way that links lead; not of the interpreter itself, which in an environment is one.
    real = Path(os.path.realpath(named.parent)) / named.name
    own, below = set(), []
    for inside in (os.path.relpath(named, base), os.path.relpath(real, os.path.realpath(base))):
        path = PurePosixPath(inside)
        if ".." in path.parts:
            continue
        prefix = path.parent.parent
        own |= {str(path), *(str(p) for p in path.parents), str(prefix / "pyvenv.cfg")}
        below += [str(prefix / part) + "/" for part in ("bin", "lib", "lib64")]
    found = next((t for t in tracked if t in own or any(t.startswith(b) for b in below)), "")
    if found:
        raise InputError("the interpreter's environment is committed to the repository", where=shown_path(found),
                         fix="create it in a step of the workflow, and keep it out of git")
