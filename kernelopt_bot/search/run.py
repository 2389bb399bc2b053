"""All targets of a run, on devices that nobody else uses meanwhile."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernelopt_bot.agents.party import Gather, nobody
from kernelopt_bot.compiler.program import Lane
from kernelopt_bot.config import Config
from kernelopt_bot.device.lock import gpu_lock
from kernelopt_bot.device.state import gpus, visible, wait_until_idle
from kernelopt_bot.errors import InputError
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.binds import is_script, resolve_python
from kernelopt_bot.sandbox.gpu import pick
from kernelopt_bot.sandbox.jail import Jail
from kernelopt_bot.sandbox.turns import Turns, turns_in
from kernelopt_bot.search import triton_lever
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.deadline import NEVER, WORDS, Deadline
from kernelopt_bot.search.executor import Executor, Finished, InProcess
from kernelopt_bot.search.memory import Memory
from kernelopt_bot.search.pipeline import optimise
from kernelopt_bot.search.progress import Named, Progress
from kernelopt_bot.search.result import TargetResult
from kernelopt_bot.search.session import Session
from kernelopt_bot.targets.target import Target
from kernelopt_bot.targets.triton_kernels import TritonTarget

LOCK_WAIT_S = 600.0
KEPT_IN_SCRATCH = frozenset({"cache", "tmp", "home"})
"""Compiled headers and the compiler's probe of the processor take some fifteen seconds to make."""


def device_of(config: Config) -> tuple[str, Lane]:
    """The first of `devices_of`."""
    return devices_of(config)[0]


def devices_of(config: Config) -> tuple[tuple[str, Lane], ...]:
    """Each device that `config.device` means on this machine, once, with its lane. Raises Unavailable if one is not
    there."""
    if config.device in ("cpu", "pretend"):
        return (("cpu", "cpu"),)
    present = visible(gpus())
    if config.device == "auto" and not present:
        return (("cpu", "cpu"),)
    wanted = ["cuda"] if config.device == "auto" else config.device.split(",")
    return tuple(dict.fromkeys((pick(name, present).uuid, "cuda") for name in wanted))


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
            progress: Progress, memory: Memory | None = None, deadline: Deadline = NEVER,
            gather: Gather = nobody) -> Finished:
    """Optimise the targets of the checkout `root`. What is finished survives whatever happens to the next one.

    `memory`: of earlier runs, unless the configuration switches it off. `gather`: the brains that a target's
    search has beside the built-in one. `base` is where a relative
    `environment.python` starts; `folder` is the run's. No target is begun that could not be confirmed before
    `deadline`. Raises UserError before the first target only: no such device, device busy, no jail, no interpreter. A
    bug is in `Finished.bug`.
    """
    devices = devices_of(config)
    python = interpreter_of(config, base)
    executor: Executor = InProcess()
    turns = turns_in(os.environ)
    with contextlib.ExitStack() as held:
        # In one order for everyone, so that two runs never wait for each other.
        for device, lane in sorted(devices) if turns is None else ():
            held.enter_context(exclusive(device, lane, progress, config.budget.gpu_wait_s))
        progress.update("choosing a jail")
        kept = memory if config.memory else None
        try:
            places = []
            for number, (device, lane) in enumerate(devices):
                with turns.turn("beside") if turns else contextlib.nullcontext():
                    jail, _ = probe.select(config.sandbox, python=python, device=device)
                alone = len(devices) == 1
                scratch = folder / "scratch" / ("" if alone else str(number))
                told = progress if alone else Named(progress, f"device {number}")
                places.append(Device(config, root, folder, scratch, jail, python, device, lane, told, kept, deadline,
                                     config.budget.gpu_minutes * 60 / len(devices), gather, turns))
            return executor.run(targets, places)
        finally:
            shutil.rmtree(folder / "scratch", ignore_errors=True)


@dataclass
class Device:
    """One held device: a `Place`."""

    config: Config
    root: Path
    folder: Path
    scratch: Path
    jail: Jail
    python: str
    device: str
    lane: Lane
    progress: Progress
    memory: Memory | None
    deadline: Deadline
    device_s: float
    """Device time left to it, in seconds: the run's is shared out evenly."""
    gather: Gather = nobody
    turns: Turns | None = None
    session: Session | None = None

    def refuses(self) -> str:
        """A budget of no device time would be one without a limit."""
        if self.deadline.reached:
            return WORDS
        minutes = self.config.budget.gpu_minutes
        return f"the {minutes:g} GPU minutes of the run are spent" if minutes > 0 and self.device_s <= 0 else ""

    def search(self, target: Target) -> TargetResult:
        """Raises UserError."""
        try:
            self.session = self.begin(target)
            result = (triton_lever.optimise(self.session, target) if isinstance(target, TritonTarget)
                      else optimise(self.session, target))
            self.device_s = self.session.budget.left().device_s
            return result
        finally:
            forget(self.scratch)

    def begin(self, target: Target) -> Session:
        """The session of one target's search, with what is left to this device."""
        own, limits = self.folder / target.name, self.config.budget
        return Session(
            config=self.config, root=self.root, folder=own, scratch=self.scratch, jail=self.jail, python=self.python,
            device=self.device, lane=self.lane, secret=secrets.token_hex(32), progress=self.progress,
            archive=Archive(own), memory=self.memory, party=self.gather(own), turns=self.turns,
            budget=Budget(min(limits.wall_s, self.deadline.searching_s()), self.device_s, limits.candidates))

    def stop(self) -> None:
        if self.session is not None:
            self.session.budget.stop()


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
