"""The gates again over a committed artifact, for reviewers and nightly sweeps.

Of the artifact only what `committed.read` lets through is used: kernels, plans, options. Seeds, thresholds, baselines
and the target's place come from this release, the configuration and the command line. What runs is not the committed
folder but the one rendered anew.
"""

from __future__ import annotations

import secrets
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal

from kernelopt_bot.compiler._runtime import call_sequence, read_wrapper, run_hash
from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.compiler.program import Kernel, Program
from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.device import profiling, roofs
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import correctness, model, performance, static
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import capturing, pretend_lever
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.committed import Committed, Modified, OtherRelease, read
from kernelopt_bot.search.explain import declined, explain
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.progress import Progress
from kernelopt_bot.search.run import device_of, exclusive, interpreter_of
from kernelopt_bot.search.runs import find_run
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.sites import Place, places
from kernelopt_bot.search.spots import of_place
from kernelopt_bot.search.stack import DEFAULT, Stack
from kernelopt_bot.targets.target import Target

State = Literal["verified", "modified", "stale", "regressed", "failed", "not measured"]
CHECK_S = 30.0
"""Interpreter time for gate 2 of one kernel."""


@dataclass(frozen=True)
class Outcome:
    """`verdicts` by what was judged: the recipe, a kernel file, or the whole."""

    state: State
    reason: str = ""
    verdicts: tuple[tuple[str, Verdict], ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        return {"state": self.state, "reason": self.reason,
                "verdicts": [{"of": what, **v.to_json()} for what, v in self.verdicts]}


@dataclass(frozen=True)
class _Stale(Exception):
    reason: str


def verify(folder: Path, target_of: Callable[[str], Target], *, config: Config, root: Path,
           progress: Progress, earlier: Mapping[str, str] | None = None) -> Outcome:
    """Verify the artifact in `folder`. `target_of(name)` finds the target, which is asked for only once the artifact
    is known to be as written. `earlier`: as `committed.read` takes it.

    Raises InputError (no artifact, no such target), UserError (the target does not load), Unavailable (device, jail).
    """
    place = Path(tempfile.mkdtemp(prefix="kernelopt-verify-"))
    try:
        (place / "texts").mkdir()
        try:
            committed = read(folder, place / "texts", earlier)
        except Modified as e:
            return Outcome("modified", str(e).removeprefix("modified: "))
        except OtherRelease as e:
            return Outcome("stale", f"{e}: verify it with that release, or search again with this one")
        target = target_of(committed.target)
        device, lane = device_of(config)
        python = interpreter_of(config, root)
        with exclusive(device, lane, progress, config.budget.gpu_wait_s):
            jail, _ = probe.select(config.sandbox, python=python, device=device)
            session = Session(
                config=config, root=root, folder=place / "run", scratch=place / "scratch", jail=jail, python=python,
                device=device, lane=lane, secret=secrets.token_hex(32), progress=progress,
                archive=Archive(place / "run"), budget=Budget(config.budget.wall_s, config.budget.wall_s, 10**6))
            try:
                with session.model_worker("model") as worker:
                    return _Verification(session, worker, committed, target).run()
            except _Stale as e:
                return Outcome("stale", e.reason)
            except WorkerError as e:
                raise explain(e, target, "the verification") from e
    finally:
        shutil.rmtree(place, ignore_errors=True)


class _Verification:
    def __init__(self, session: Session, worker: Worker, committed: Committed, target: Target) -> None:
        self.session, self.worker, self.committed, self.target = session, worker, committed, target
        self.verdicts: list[tuple[str, Verdict]] = []
        self.versions: Mapping[str, Any] = {}

    def run(self) -> Outcome:
        """Raises _Stale, WorkerError."""
        committed, session = self.committed, self.session
        self.versions = self.worker.call("hello", {}, timeout=120)
        without_gpu = bool(committed.kernels) and not session.has_gpu
        self.environment(without_gpu)
        session.progress.update("loading and capturing the target")
        loaded = load(session, self.worker, self.target)
        if loaded["varies"]:
            raise declined(self.target, loaded["varies"])
        if without_gpu:
            return self.pretended()
        device = str(committed.environment["device"])
        captured = capturing.capture(self.worker, committed.target, session.lane, device, self.versions,
                                     options=committed.options)
        candidates = self.candidates(captured.program)
        stack = self.rendered(captured.program, candidates)
        self.recipe()
        if candidates and self.passing:
            with session.compiling_worker() as compiler, session.kernel_worker("kernels") as checker:
                self.kernels(captured, candidates, compiler, checker, self.worker.scratch)
        if self.passing:
            self.whole(stack, captured.program)
        return self.outcome()

    @property
    def passing(self) -> bool:
        return all(v.lets_on for _, v in self.verdicts)

    def environment(self, without_gpu: bool) -> None:
        gpu, was = self.versions.get("gpu"), self.committed.environment
        here = {"torch": self.versions["torch"], "triton": self.versions["triton"]}
        if not without_gpu:
            here["device"] = gpu["name"] if gpu else self.versions["cpu"]
            here["capability"] = list(gpu["capability"]) if gpu else None
        for name, value in here.items():
            if was.get(name) != value:
                raise _Stale(f"verified with {name} {was.get(name)}, here is {value}")

    def candidates(self, program: Program) -> tuple[KernelCandidate, ...]:
        """Each kernel with the first place where its run is found."""
        found = []
        for run, plan in self.committed.kernels:
            graph, steps = _place(program, run.hash, run.steps)
            if not steps:
                raise _Stale(f"{run.name}: its run is no longer found in {self.target.name}")
            found.append(KernelCandidate(run.name, run.hash, graph, steps, run.source, plan, "committed"))
        return tuple(found)

    def rendered(self, program: Program, candidates: tuple[KernelCandidate, ...]) -> Stack:
        """The artifact rendered anew. Raises _Stale where the program has changed round the runs."""
        stack = Stack(options=dict(self.committed.options), kernels=tuple(AdoptedKernel(c) for c in candidates))
        try:
            stack = stack.written(self.session.artifacts / self.committed.target, program, self.committed.class_name,
                                  self.committed.environment)
        except InputError as e:
            raise _Stale(f"{e.what}: {e.where}") from e
        assert stack.folder is not None
        anew = read(stack.folder, Path(tempfile.mkdtemp(dir=self.session.folder)))
        for old, new in zip(self.committed.entries, anew.entries, strict=True):
            for key in ("steps", "plan", "source_hash", "replaces", "graphs", "count", "kernel"):
                if old[key] != new[key]:
                    raise _Stale(f"{old['kernel']}: {key} was {old[key]!r}, the program of today gives {new[key]!r}")
        return stack

    def recipe(self) -> None:
        """Gates 1 and 2 of the options."""
        options = self.committed.option_candidates()
        for candidate in options:
            self.verdicts.append(("recipe", static.check_options(candidate, self.session.inside)))
        if options and self.passing:
            self.session.progress.update("recipe: correctness")
            lever = options[-1].lever
            whole = OptionsCandidate("recipe", lever, dict(self.committed.options), "recipe")
            self.verdicts.append(("recipe", correctness.check_options(
                whole, self.worker, secret=self.session.secret, precision=self.session.precision())))

    def kernels(self, captured: Captured, candidates: tuple[KernelCandidate, ...], compiler: Worker, checker: Worker,
                lender: Any) -> None:
        """Gates 1 and 2 of each kernel."""
        session, gpu = self.session, self.versions.get("gpu")
        major, minor = gpu["capability"] if gpu else self.committed.environment.get("capability") or (9, 0)
        ceilings, arch = roofs.pretended(), 10 * int(major) + int(minor)
        known = {p.site.step.hash: p for p in places(captured, None, ceilings)}
        sms = int(gpu["multiprocessors"]) if gpu else ceilings.multiprocessors
        for candidate in candidates:
            session.progress.update(f"{candidate.id}: gates 1 and 2")
            replaced = _replaced(captured, known, candidate)
            if replaced is None:
                self.verdicts.append((candidate.id, Verdict(
                    "correctness", Status.NOT_MEASURED, "its run of steps is not in the program as it was recorded")))
                continue
            verdict = static.check_kernel(candidate, replaced.of, compiler, arch=arch,
                                          integers={**replaced.integers, "num_sms": sms})
            self.verdicts.append((candidate.id, verdict))
            if verdict.lets_on:
                recorded = lend(list(replaced.recorded), lender, checker.scratch) if lender else replaced.recorded
                self.verdicts.append((candidate.id, correctness.check_spot(
                    candidate, replaced.baseline, replaced.arguments(recorded), checker,
                    lane="cuda" if session.has_gpu else "interpret", secret=session.secret,
                    precision=session.precision(), budget_s=CHECK_S,
                    program_bytes=correctness.least_peak(captured.program) if session.has_gpu else None)))

    def pretended(self) -> Outcome:
        """A kernel artifact without a GPU: gates 1 and 2 on the capture for a pretended one; never `verified`."""
        # CUDA graphs need a GPU; they change how kernels are launched, not which.
        options = {n: v for n, v in self.committed.options.items() if n not in ("triton.cudagraphs", "graph_partition")}
        answer = self.worker.call("capture", {"lane": "pretend", "options": options,
                                              "save_limit_bytes": pretend_lever.SAVE_LIMIT_BYTES},
                                  timeout=pretend_lever.TIMEOUT_S)
        with (self.session.kernel_worker("interpret", interpret=True) as interpreter,
              self.session.compiling_worker() as compiler):
            captured = capturing.made(pretend_lever.recorded(answer, self.worker, interpreter), self.target.name,
                                      "pretend", pretend_lever.DEVICE, self.versions, options)
            self.kernels(captured, self.candidates(captured.program), compiler, interpreter, None)
        self.verdicts.append(("whole", Verdict("performance", Status.NOT_MEASURED, "no GPU")))
        return self.outcome()

    def whole(self, stack: Stack, program: Program) -> None:
        """Gates 3 and 4 of the artifact against default torch.compile, as the confirmation of a search has them."""
        session, gates = self.session, self.session.config.gates
        session.progress.update("the whole: model gate")
        verdict = model.check(self.worker, artifact=str(stack.folder), options={}, secret=session.secret,
                              seeds=gates.seeds, inits=gates.inits, precision=session.precision(),
                              kernels=bool(stack.kernels))
        self.verdicts.append(("whole", verdict))
        if not verdict.lets_on:
            return
        session.progress.update("the whole: performance gate")
        measured = performance.measure(
            self.worker, candidate=stack.arm("candidate"), baselines=[dict(DEFAULT)], settings=session.settings(),
            lever="kernel" if stack.kernels else "launch", has_gpu=session.has_gpu, secret=session.secret,
            seed=bootstrap_seed(session.secret),
            floor_s=profiling.physical_floor_s(program, session.ceilings(self.versions)))
        self.verdicts.append(("whole", measured.verdict))

    def outcome(self) -> Outcome:
        stop = next(((what, v) for what, v in self.verdicts if not v.lets_on), None)
        if stop is None:
            return Outcome("verified", "", tuple(self.verdicts))
        what, verdict = stop
        state: State = "failed"
        if verdict.status is Status.NOT_MEASURED:
            state = "not measured"
        elif verdict.gate == "performance":
            state = "regressed"
        return Outcome(state, f"{what}: {verdict.gate} gate: {verdict.reason}", tuple(self.verdicts))


@dataclass(frozen=True)
class _Replaced:
    """What a committed candidate takes the place of, in the terms of gates 1 and 2."""

    of: Kernel | KernelRun
    integers: Mapping[str, int]
    baseline: Mapping[str, Any]
    recorded: tuple[Mapping[str, Any], ...]
    arguments: Callable[[Sequence[Mapping[str, Any]]], list[Any]]


def _replaced(captured: Captured, known: Mapping[str, Place], candidate: KernelCandidate) -> _Replaced | None:
    """`known`: places by hash of their step. None where its run of steps is not recorded."""
    if (place := known.get(candidate.run_hash)) is not None:
        spot = of_place(place)
        return _Replaced(spot.kernel_or_run, spot.integers, spot.baseline, spot.recorded, spot.arguments)
    if (found := find_run(captured, candidate.run_hash, len(candidate.steps))) is None:
        return None
    run, recorded = found
    return _Replaced(run, run.integers, run.baseline(), recorded, partial(correctness.run_arguments, run))


def _place(program: Program, wanted: str, length: int) -> tuple[int, tuple[int, ...]]:
    """Graph and step indices of the first run with this hash; (0, ()) if there is none."""
    for graph in program.graphs:
        sequence, kernels = call_sequence(read_wrapper(graph.source))
        at = {s.lines[0]: s.index for s in graph.steps}
        for i in range(len(sequence) - length + 1):
            calls = sequence[i:i + length]
            if run_hash(calls, kernels) == wanted:
                return graph.index, tuple(at[c.statement.lines[0]] for c in calls)
    return 0, ()

