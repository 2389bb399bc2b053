"""The way of one target: load, capture, profile, levers, confirmation, artifact. Whatever fails, the baseline stays."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.compiler.example import Example
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import Lever
from kernelopt_bot.device import profiling
from kernelopt_bot.device.profile import Profile, Roofs
from kernelopt_bot.errors import InputError, Unavailable, UserError
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.search import capturing, confirm, kernel_lever, memory, options_lever, pretend_lever, spots
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.confirm import Confirmation, Untouched
from kernelopt_bot.search.explain import declined, explain
from kernelopt_bot.search.loading import covered, load
from kernelopt_bot.search.result import FirstCall, LeverGain, Noise, TargetResult
from kernelopt_bot.search.runs import region_places, run_places
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.sets import Write
from kernelopt_bot.search.sites import places
from kernelopt_bot.search.stack import DEFAULT, Stack, Stage
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.targets.target import Target

ORDER: tuple[Lever, ...] = ("dispatch", "launch", "region", "kernel")
"""Regions before the kernels that they hold. Kernels last: in a launch-bound model their gain shows only once the host
no longer holds the device up."""
LAUNCH_BOUND = 0.5
"""Share of a call in which the device waits for the host, from which the lever `launch` goes first: it is the one with
the most to gain then, and what other options do to the device is seen only when the host no longer holds it up."""
LAUNCH_BOUND_ORDER: tuple[Lever, ...] = ("launch", "dispatch", "region", "kernel")
INTERRUPTED = "interrupted"


@dataclass
class _Work:
    """What is known of the target so far."""

    session: Session
    target: Target
    trials: Trials
    settings: Settings
    versions: Mapping[str, Any]
    loaded: dict[str, Any]
    captured: Captured
    roofs: Roofs
    profile: Profile
    stack: Stack = field(default_factory=Stack)
    stages: list[Stage] = field(default_factory=list)
    last: Measured | None = None
    limit: str = ""
    """The limit of the budget that was reached before the levers `unreached`, in words."""
    unreached: list[Lever] = field(default_factory=list)
    untouched: Untouched = field(default_factory=Untouched)
    """The A/A control where no gate measured one; of a benchmark the baselines too."""

    @property
    def environment(self) -> dict[str, Any]:
        """Of the artifact's manifest."""
        gpu = self.versions.get("gpu")
        known = {"torch": self.versions["torch"], "triton": self.versions["triton"],
                 "device": gpu["name"] if gpu else self.versions["cpu"]}
        return {**known, "driver": gpu["driver"], "capability": list(gpu["capability"])} if gpu else known


def optimise(session: Session, target: Target) -> TargetResult:
    """Everything about one target. An anticipated failure becomes `error`; bugs and a full disk are raised."""
    trials = Trials(session.archive, session.budget)
    work: _Work | None = None
    try:
        with session.model_worker("model") as worker:
            work = _begin(session, worker, target, trials)
            with session.budget.searching(session.config.budget.search_s):
                _levers(work, worker)
            if work.last is None:
                work.untouched = confirm.untouched(session, worker, work.settings, others=session.config.benchmark)
        return _finish(work)
    except KeyboardInterrupt:
        error: UserError = Unavailable("interrupted before the confirmation; nothing of this target is adopted",
                                       where=str(session.archive.path), kind=INTERRUPTED,
                                       fix="run again; the file keeps every verdict so far")
    except WorkerError as e:
        error = explain(e, target, "the search")
    except UserError as e:
        if e.kind in ("disk_full", "unwritable"):
            raise
        error = e
    finally:
        session.close()
    session.progress.note(f"{target.name}: {error.what}")
    return replace(_result(session, target, trials, work), error=str(error), interrupted=error.kind == INTERRUPTED,
                   bad_input=isinstance(error, InputError), error_kind=error.kind)


def _expect(session: Session) -> None:
    """Workers of the kernel lever and the confirmation, started while the model is loaded."""
    if {"kernel", "region"} & set(session.config.levers):
        session.expect(functools.partial(session.kernel_worker, "kernels", compiles=True))
    session.expect(session.confirming_worker)


def _begin(session: Session, worker: Worker, target: Target, trials: Trials) -> _Work:
    """Load, capture and profile. Raises WorkerError, UserError."""
    progress = session.progress
    progress.update(f"{target.name}: loading the model")
    versions = worker.call("hello", {}, timeout=120)
    if session.has_gpu:
        _expect(session)
    loaded = load(session, worker, target)
    if loaded["varies"]:
        raise declined(target, loaded["varies"])
    gpu = versions.get("gpu")
    device = str(gpu["name"] if gpu else versions["cpu"])
    progress.update(f"{target.name}: capturing what the compiler makes of it")
    captured = capturing.capture(worker, target.name, session.lane, device, versions)
    progress.update(f"{target.name}: measuring the device")
    ceilings = session.ceilings(versions)
    progress.update(f"{target.name}: profiling {len(captured.program.kernel_steps)} kernels")
    profile = capturing.profile(worker, captured, ceilings, {})
    return _Work(session, target, trials, session.settings(), versions, loaded, captured, ceilings, profile)


def _levers(work: _Work, worker: Worker) -> None:
    """Each lever that was asked for, on top of what was adopted before it."""
    asked = work.session.config.levers
    gap = work.profile.launch_gap
    order = LAUNCH_BOUND_ORDER if work.session.has_gpu and gap is not None and gap > LAUNCH_BOUND else ORDER
    for lever in order:
        if lever not in asked:
            continue
        if reason := work.session.budget.exhausted():
            work.limit = reason
            work.unreached.append(lever)
        before = work.stack
        if not reason:
            with work.session.budget.device() if work.session.has_gpu else nullcontext():
                reason = (_kernels if lever in ("kernel", "region") else _options)(work, worker, lever)
        adopted = sum(t.adopted and t.candidate.lever == lever for t in work.trials.all())
        work.stages.append(Stage(lever, work.stack, adopted if work.stack is not before else 0, reason))


def _options(work: _Work, worker: Worker, lever: Lever) -> str:
    outcome = options_lever.run(
        work.session, worker, work.stack, work.captured.program, work.profile, lever, work.trials, work.settings,
        work.environment, work.target.entry)
    if outcome.measured is not None:
        work.stack, work.last = outcome.stack, outcome.measured
    return outcome.reason


def _kernels(work: _Work, worker: Worker, lever: Lever) -> str:
    session = work.session
    if not session.has_gpu:
        try:
            return pretend_lever.run(session, worker, work.target.name, work.versions, work.trials, work.target.entry,
                                     lever)
        except WorkerError as e:
            # The other levers do not depend on the pretended GPU.
            return f"no GPU, and the pretended one does not take this model: {str(e).splitlines()[0]}"
    captured, profile = work.captured, work.profile
    if work.stack.options:
        captured = capturing.capture(worker, work.target.name, session.lane, captured.program.device, work.versions,
                                     options=work.stack.options)
        profile = capturing.profile(worker, captured, work.roofs, work.stack.options)
    if lever == "region":
        found = [spots.of_run(p) for p in region_places(captured, profile, work.roofs)]
    else:
        taken = _taken(work.stack, captured.program)
        found = [s for s in (*map(spots.of_place, places(captured, profile, work.roofs)),
                             *map(spots.of_run, run_places(captured, profile, work.roofs))) if not s.hashes & taken]
    found.sort(key=lambda s: -s.savings_us)
    if session.memory is not None:
        where = memory.Environment.of(work.environment)
        found = [session.memory.guided(s, where) for s in found]
    if not found and lever == "region":
        return "no vendor call with the kernel after it that a technique takes as one"
    if not found:
        return "every generated kernel is at its floor" if captured.program.kernel_steps else "no generated kernel"
    major, minor = work.versions["gpu"]["capability"]
    with session.kernel_worker("kernels", compiles=True) as kernel_worker:
        kept = kernel_lever.search(session, kernel_worker, work.trials, worker.scratch, found, profile.call_us,
                                   10 * int(major) + int(minor), correctness.least_peak(captured.program))
    floor = profiling.physical_floor_s(captured.program, work.roofs)
    stack, measured, reason = kernel_lever.adopt(
        session, worker, work.stack, captured, kept, work.trials, work.settings, floor, work.environment,
        work.target.entry, profile.call_us, lever)
    if measured is not None:
        work.stack, work.last, work.captured = stack, measured, captured
    return reason


def _taken(stack: Stack, program: Program) -> frozenset[str]:
    """Hashes of the steps that adopted regions replace."""
    return frozenset(program.graphs[k.candidate.graph].steps[i].hash for k in stack.kernels for i in k.candidate.steps)


def _finish(work: _Work) -> TargetResult:
    """Confirm the stack in new processes; what fails is taken off again, last lever first."""
    session, target = work.session, work.target
    result = _result(session, target, work.trials, work)
    if work.stack.empty:
        return replace(result, levers=tuple(LeverGain(s.lever, 0, None, s.reason) for s in work.stages),
                       noise=result.noise or _noise(work), against=work.untouched.against,
                       peak_memory=work.untouched.peak_bytes)
    floor = profiling.physical_floor_s(work.captured.program, work.roofs)
    stages, confirmation = list(work.stages), None
    while stages and any(s.adopted for s in stages):
        confirmation = confirm.confirm(session, target, stages, work.settings, floor,
                                       _writer(work) if session.config.benchmark else None)
        if confirmation.passed:
            break
        session.progress.note("confirmation failed: " + next(
            f"{v.gate}: {v.reason}" for v in confirmation.verdicts if not v.lets_on))
        stages = _without_last(stages, confirmation, work.trials)
    assert confirmation is not None
    if not confirmation.passed:
        levers = tuple(LeverGain(s.lever, 0, None, s.reason) for s in stages)
        return replace(_confirmed(result, confirmation), trials=work.trials.all(), levers=levers, headline=None)
    stack = stages[-1].stack
    _remember(work, stack)
    result = replace(_confirmed(result, confirmation), trials=work.trials.all())
    first: FirstCall | None = None
    interrupted = confirmation.interrupted
    if not interrupted and not session.config.benchmark and (not session.budget.exhausted() or not session.has_gpu):
        try:
            first = confirm.first_calls(session, target, stack)
        except KeyboardInterrupt:
            interrupted = True
    return replace(result, first_call=first, artifact=_ship(work, stack, confirmation), interrupted=interrupted,
                   spent=session.budget.spent())


def _remember(work: _Work, stack: Stack) -> None:
    """What the confirmation passed, for later searches in this repository."""
    known = work.session.memory
    for kernel in stack.kernels if known is not None else ():
        candidate, gain = kernel.candidate, kernel.evidence.get("step_speedup")
        if known is not None and isinstance(gain, float):
            known.record(work.captured.program.graphs[candidate.graph], candidate, gain,
                         memory.Environment.of(work.environment))


def _writer(work: _Work) -> Write:
    """Writes what was never on the way of the search, so that its program has to be captured first."""

    def write(worker: Worker, stack: Stack) -> Stack:
        program: Program = work.captured.program
        if stack.kernels:
            program = capturing.capture(worker, work.target.name, work.session.lane, program.device, work.versions,
                                        options=stack.options, save=False).program
        digest = hashlib.sha256(repr((sorted(stack.options.items()), len(stack.kernels))).encode()).hexdigest()[:10]
        return stack.written(work.session.artifacts / f"set-{digest}", program, work.target.entry, work.environment)

    return write


def _without_last(stages: list[Stage], confirmation: Confirmation, trials: Trials) -> list[Stage]:
    """The stages with the last adopting lever's pieces taken back."""
    at = max(i for i, s in enumerate(stages) if s.adopted)
    lever = stages[at].lever
    why = next(v for v in confirmation.verdicts if not v.lets_on)
    for trial in trials.all():
        if trial.adopted and trial.candidate.lever == lever:
            trials.record(replace(trial, adopted=False, note=f"not confirmed: {why.gate} gate: {why.reason}"))
    before = stages[at - 1].stack if at else Stack()
    reason = f"not confirmed in a new process: {why.gate} gate: {why.reason}"
    return [*stages[:at], *(replace(s, stack=before, adopted=0, reason=reason if i == 0 else s.reason)
                            for i, s in enumerate(stages[at:]))]


def _ship(work: _Work, stack: Stack, confirmation: Confirmation) -> str:
    """Write the artifact with its confirmed figures, where publication takes it from."""
    headline = confirmation.headline
    evidence = {} if headline is None else {
        "speedup": headline.speedup, "low": headline.low, "high": headline.high, "baseline": headline.baseline,
        "metric": headline.metric, "cache": headline.cache}
    relative = f"{work.session.config.artifact.root}/{work.target.name}"
    program: Program = work.captured.program
    folder = work.session.folder.parent / "bundle" / relative
    target = work.target
    example = Example(target.path, target.inputs, target.init, target.roots)
    stack.written(folder, program, target.entry, work.environment, evidence, example)
    return relative


def _confirmed(result: TargetResult, c: Confirmation) -> TargetResult:
    return replace(result, stitched=c.verdicts, headline=c.headline, against=c.against, not_applicable=c.not_applicable,
                   noise=c.noise or result.noise, levers=c.levers, peak_memory=c.peak_bytes, sets=c.sets,
                   secret=f"{result.secret},{c.secret}")


def _noise(work: _Work) -> Noise | None:
    return work.last.noise if work.last else work.untouched.noise


def _result(session: Session, target: Target, trials: Trials, work: _Work | None) -> TargetResult:
    environment: dict[str, Any] = {"kernelopt": __version__, "jail": session.jail.name, "lane": session.lane}
    if work is not None:
        environment |= {k: v for k, v in work.versions.items() if k != "gpu"}
        environment["gpu"] = work.versions.get("gpu")
        environment["baseline_arm"] = DEFAULT["name"]
    return TargetResult(
        target=target, program=work.captured.program if work else None, profile=work.profile if work else None,
        trials=trials.all(), levers=(), stitched=(), headline=None, against=(), not_applicable={},
        noise=_noise(work) if work else None, first_call=None, peak_memory={},
        covered=covered(work.loaded) if work else (), secret=session.secret, environment=environment,
        spent=session.budget.spent(), inputs_origin=f"{target.inputs} ({target.origin})",
        limit=work.limit if work else "", unreached=tuple(work.unreached) if work else (),
        agents=tuple(session.said))
