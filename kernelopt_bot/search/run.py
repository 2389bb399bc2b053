"""All targets of a run, one after the other, on one device that nobody else uses meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.agents.party import Gather, Party, nobody
from kernelopt_bot.compiler.program import Lane
from kernelopt_bot.config import Config
from kernelopt_bot.device.lock import gpu_lock
from kernelopt_bot.device.state import gpus, visible, wait_until_idle
from kernelopt_bot.errors import InputError, UserError
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.binds import is_script, resolve_python
from kernelopt_bot.sandbox.gpu import pick
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.pipeline import optimise
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.search.session import Session
from kernelopt_bot.targets.target import Target

LOCK_WAIT_S = 600.0
KEPT_IN_SCRATCH = frozenset({"cache", "tmp", "home"})
"""Compiled headers and the compiler's probe of the processor take some fifteen seconds to make."""


@dataclass(frozen=True)
class Finished:
    results: tuple[TargetResult, ...]
    stopped: str
    """Why the run ended early ('' if it did not)."""
    interrupted: bool = False
    bug: Exception | None = None
    """What ended the run unexpectedly: to be raised once the finished results are written."""


def device_of(config: Config) -> tuple[str, Lane]:
    """The device and lane that `config.device` means on this machine. Raises Unavailable if it is not there."""
    if config.device in ("cpu", "pretend"):
        return "cpu", "cpu"
    present = visible(gpus())
    if config.device == "auto" and not present:
        return "cpu", "cpu"
    return pick("cuda" if config.device == "auto" else config.device, present).uuid, "cuda"


def interpreter_of(config: Config, base: Path) -> str:
    """The user's interpreter, absolute; a relative one starts at `base`.

    A virtual environment's link stays a link: its place says which environment it is. Raises InputError if there is no
    such interpreter, if it does not start, or if it is a script below `base`: to see what a version manager's shim
    stands for it has to be run outside a jail, and a checkout holds what a pull request wrote.
    """
    wanted = config.environment.python
    if not wanted:
        return sys.executable
    if "/" in wanted:
        # As it is written and as it really is: neither may lie in the checkout.
        wanted = os.path.abspath(base / wanted)
        inside = any(Path(p).is_relative_to(q) for p in (wanted, os.path.realpath(wanted))
                     for q in (base.absolute(), base.resolve()))
        if inside and os.path.isfile(wanted) and is_script(wanted):
            raise InputError(f"the interpreter {config.environment.python!r} is a script in the checkout",
                             where="environment.python in .kernelopt.yml",
                             fix="name the interpreter itself, or a virtual environment's link to it")
    return resolve_python(wanted)


@contextlib.contextmanager
def exclusive(device: str, lane: Lane, progress: Progress, wait_s: float = 60.0) -> Iterator[None]:
    """Nothing else of ours on this GPU, and nobody else's work on it at the start, for which `wait_s` seconds are
    waited. Raises Unavailable."""
    if lane != "cuda":
        yield
        return
    with gpu_lock(device, timeout=LOCK_WAIT_S, waiting=progress.note):
        wait_until_idle(device, timeout=wait_s, waiting=progress.note)
        yield


def run_all(targets: Sequence[Target], *, config: Config, root: Path, base: Path, folder: Path,
            progress: Progress, gather: Gather = nobody) -> Finished:
    """Optimise the targets of the checkout `root`. What is finished survives whatever happens to the next one.

    `base` is where a relative `environment.python` starts; `folder` is the run's. `gather`: the brains that a target's
    search has beside the built-in one. Raises UserError before the first target only: no such device, device busy, no
    jail, no interpreter. A bug is in `Finished.bug`.
    """
    device, lane = device_of(config)
    python = interpreter_of(config, base)
    with exclusive(device, lane, progress, config.budget.gpu_wait_s):
        progress.update("choosing a jail")
        jail, _ = probe.select(config.sandbox, python=python, device=device)
        try:
            return _each(targets, config, root, folder, jail, python, device, lane, progress, gather)
        finally:
            shutil.rmtree(folder / "scratch", ignore_errors=True)


def _each(targets: Sequence[Target], config: Config, root: Path, folder: Path, jail: Jail, python: str, device: str,
          lane: Lane, progress: Progress, gather: Gather) -> Finished:
    results: list[TargetResult] = []
    device_s = config.budget.gpu_minutes * 60
    for target in targets:
        try:
            session = _session(target, config, root, folder, jail, python, device, lane, device_s, progress,
                               party=gather(folder / target.name))
            result = optimise(session, target)
            device_s = session.budget.left().device_s
            results.append(result)
            if result.interrupted:
                return Finished(tuple(results), f"interrupted while optimising {target.name}", interrupted=True)
        except UserError as e:
            return Finished(tuple(results), f"{target.name}: {e.what}")
        except KeyboardInterrupt:
            return Finished(tuple(results), f"interrupted while optimising {target.name}", interrupted=True)
        except Exception as e:
            return Finished(tuple(results), f"{target.name}: a bug in KernelOPT: {type(e).__name__}", bug=e)
        finally:
            forget(folder / "scratch")
    return Finished(tuple(results), "")


def forget(scratch: Path) -> None:
    """Remove what one target's workers left, but the caches that every target of a run would have to make again."""
    for worker in scratch.iterdir() if scratch.is_dir() else ():
        for path in worker.iterdir() if worker.is_dir() and not worker.is_symlink() else ():
            if path.name in KEPT_IN_SCRATCH:
                continue
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path, ignore_errors=True)
            else:
                path.unlink(missing_ok=True)


def _session(target: Target, config: Config, root: Path, folder: Path, jail: Jail, python: str, device: str,
             lane: Lane, device_s: float, progress: Progress, *, party: Party | None = None) -> Session:
    own = folder / target.name
    limits = config.budget
    return Session(
        config=config, root=root, folder=own, scratch=folder / "scratch", jail=jail, python=python, device=device,
        lane=lane, secret=secrets.token_hex(32), progress=progress, archive=Archive(own),
        budget=Budget(limits.wall_s, device_s, limits.candidates), party=party)
