"""A sweep carried out: what is due is verified, what pays most is searched, each artifact gets its proposal."""

from __future__ import annotations

import json
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernelopt_bot.config import Config
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.report.facts import is_faster
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search import sweep
from kernelopt_bot.search.deadline import NEVER, WORDS, Deadline
from kernelopt_bot.search.executor import Finished
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.search.run import device_of, interpreter_of, run_all
from kernelopt_bot.search.sweep import NONE_OPEN, Held, Opened, Plan, Room, Swept, Verified
from kernelopt_bot.search.verify import verify
from kernelopt_bot.targets.git import Repository
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_kernels import TritonTarget

LONGEST_REASON = 2000


@dataclass(frozen=True)
class Sweeping:
    """`due`: artifact -> why it was to be verified."""

    due: Mapping[str, str]
    swept: Swept
    finished: Finished


def sweep_all(targets: Sequence[Target], held: Sequence[Held], *, config: Config, root: Path, base: Path, folder: Path,
              rooms: Mapping[str, Room], progress: Progress, opened: Opened = NONE_OPEN, search: bool = True,
              dry_run: bool = False, deadline: Deadline = NEVER, memory: Memory | None = None) -> Sweeping:
    """Verify what is due of `held` in the checkout `root`, then search `targets` within the caps of `config.sweep`.

    `base`, `folder`, `deadline`, `memory`: as `run_all` takes them. `search`: false only verifies; `dry_run` does
    neither. Raises UserError where no worker can run here.
    """
    config = with_interpreter(config, base)
    waiting = _due(held, config, root, progress)
    verified, interrupted = ((), False) if dry_run else verify_each(waiting, targets, config, root, progress, deadline)
    if interrupted:
        swept = Swept(verified, Plan(), sweep.settle(held, _states(verified), {}))
        return Sweeping(waiting, swept, Finished((), "interrupted while verifying", interrupted=True))
    states = {v.artifact: v.state for v in verified}
    plan = sweep.plan([t.name for t in targets], held, states, rooms, now=time.time(), settings=config.sweep,
                      opened=opened if search else Opened(waiting="only a verification was asked for"))
    finished = Finished((), "")
    if plan.searches and not dry_run:
        known = {t.name: t for t in targets}
        limits = config.budget.model_copy(update={"gpu_minutes": config.sweep.gpu_minutes})
        finished = run_all([known[s.target] for s in plan.searches],
                           config=config.model_copy(update={"budget": limits}), root=root, base=root, folder=folder,
                           progress=progress, deadline=deadline, memory=memory)
    searched = {r.target.name: is_faster(r) for r in finished.results if ended(r)}
    return Sweeping(waiting, Swept(verified, plan, sweep.settle(held, _states(verified), searched)), finished)


def _states(verified: Sequence[Verified]) -> dict[str, tuple[str, str]]:
    return {v.artifact: (v.state, v.reason) for v in verified}


def ended(result: TargetResult) -> bool:
    """Whether the search came to its end, so that finding nothing says something about the target."""
    return not (result.error or result.interrupted or result.limit or result.unreached)


def with_interpreter(config: Config, base: Path) -> Config:
    """With the interpreter's own path: of a checkout only tracked files are there. Raises InputError."""
    found = config.environment.model_copy(update={"python": interpreter_of(config, base)})
    return config.model_copy(update={"environment": found})


def dated(held: Sequence[Held], repository: Repository, commit: str = "HEAD") -> tuple[Held, ...]:
    """With the time of the last commit up to `commit` that changed each; unknown where git does not say."""
    try:
        times = [repository.run("log", "-1", "--format=%ct", commit, "--", h.artifact).decode().strip() for h in held]
    except UserError:
        return tuple(held)
    return tuple(replace(h, since=float(t)) if t.isdigit() else h for h, t in zip(held, times, strict=True))


def rooms_of(report: Path) -> dict[str, Room]:
    """Of our own earlier `report.json`; none where there is no readable one."""
    try:
        return sweep.rooms_in(json.loads(report.read_text(encoding="utf-8")))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}


def _due(held: Sequence[Held], config: Config, root: Path, progress: Progress) -> dict[str, str]:
    """Artifact -> why it is to be verified. Raises UserError where no worker can run."""
    if not held:
        return {}
    device, _ = device_of(config)
    python = interpreter_of(config, root)
    jail, _ = probe.select(config.sandbox, python=python, device=device)
    progress.update("looking at this machine's versions")
    scratch = Path(tempfile.mkdtemp(prefix="kernelopt-sweep-"))
    try:
        with Worker("kernel", python=python, jail=jail, scratch=scratch / "hello", device=device) as worker:
            here = worker.call("hello", {}, timeout=120)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    gpu = here["gpu"]
    stack = {"torch": here["torch"], "triton": here["triton"], "device": gpu["name"] if gpu else here["cpu"],
             **({"driver": gpu["driver"]} if gpu else {})}
    reasons = {h.artifact: sweep.due(h, stack, time.time(), config.sweep) for h in held}
    return {artifact: reason for artifact, reason in reasons.items() if reason}


def verify_each(waiting: Mapping[str, str], targets: Iterable[Target], config: Config, root: Path, progress: Progress,
                deadline: Deadline = NEVER) -> tuple[tuple[Verified, ...], bool]:
    """Each artifact of `waiting` (folder -> why) by the gates on this machine, and whether an interruption ended it.
    One that cannot be verified here costs the others nothing."""
    # A kernel has no artifact: one of its name belongs to nothing.
    known = {t.name: t for t in targets if not isinstance(t, TritonTarget)}

    def target_of(name: str) -> Target:
        if name not in known:
            raise InputError(f"there is no target {name}", where=str(root),
                             fix="remove the artifact, or list the target")
        return known[name]

    found = []
    for artifact, why in waiting.items():
        if deadline.reached:
            found.append(Verified(artifact, "not measured", WORDS))
            continue
        progress.note(f"verifying {artifact}{': ' + why if why else ''}")
        try:
            outcome = verify(root / artifact, target_of, config=config, root=root, progress=progress)
        except KeyboardInterrupt:
            return (*found, Verified(artifact, "not measured", "interrupted")), True
        except UserError as e:
            found.append(Verified(artifact, "not measured", " ".join(str(e).split())[:LONGEST_REASON]))
        else:
            found.append(Verified(artifact, str(outcome.state), outcome.reason[:LONGEST_REASON]))
    return tuple(found), False
