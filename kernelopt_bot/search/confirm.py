"""The stitched whole verified again: a new process, new seeds, every baseline. Only these figures are reported."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelopt_bot.contract.candidate import Lever
from kernelopt_bot.gates import model, performance, statistics
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.search import sets
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.result import Comparison, FirstCall, LeverGain, Noise
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.sets import Write
from kernelopt_bot.search.stack import DEFAULT, Stack, Stage
from kernelopt_bot.targets.target import Target

FIRST_CALL_TIMEOUT_S = 600.0
CPU_REASON = "CUDA graphs need a GPU; on a CPU this mode is default torch.compile"


@dataclass(frozen=True)
class Confirmation:
    verdicts: tuple[Verdict, ...]
    headline: Comparison | None
    against: tuple[Comparison, ...]
    not_applicable: Mapping[str, str]
    noise: Noise | None
    levers: tuple[LeverGain, ...]
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    secret: str = ""
    sets: Mapping[str, Comparison] = field(default_factory=dict)
    interrupted: bool = False
    """By Ctrl-C after the gates had passed: what it says holds."""

    @property
    def passed(self) -> bool:
        return bool(self.verdicts) and all(v.lets_on for v in self.verdicts)


def baselines(has_gpu: bool) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """The arms to beat, and why others do not apply."""
    arms = [dict(DEFAULT), {**DEFAULT, "name": "eager", "kind": "eager"}]
    if has_gpu:
        arms.append({**DEFAULT, "name": "reduce-overhead", "mode": "reduce-overhead"})
    arms.append({**DEFAULT, "name": "max-autotune", "mode": "max-autotune"})
    return arms, {} if has_gpu else {"reduce-overhead": CPU_REASON}


def confirm(session: Session, target: Target, stages: Sequence[Stage], settings: Settings,
            floor_s: float | None, write: Write | None = None) -> Confirmation:
    """Gates 3 and 4 of the last stage's stack, and each lever's gain on top of the ones before.

    With `write`, also the gains of sets of levers. Raises WorkerError only if the model cannot be loaded again.
    """
    stack = stages[-1].stack
    secret = secrets.token_hex(32)
    gates = session.config.gates
    seed = bootstrap_seed(secret)
    arms, not_applicable = baselines(session.has_gpu)
    lever: Lever = "kernel" if stack.kernels else "launch"
    with session.confirming_worker() as worker:
        load(session, worker, target)
        session.progress.update("confirming: model gate with new seeds")
        verdicts = [model.check(worker, artifact=str(stack.folder), options={}, secret=secret, seeds=gates.seeds,
                                inits=gates.inits, precision=session.precision(), kernels=bool(stack.kernels))]
        if not verdicts[0].lets_on:
            return Confirmation(tuple(verdicts), None, (), not_applicable, None, (), secret=secret)
        session.progress.update("confirming: timing against every baseline")
        measured = performance.measure(
            worker, candidate=stack.arm("candidate"), baselines=arms, settings=settings, lever=lever,
            has_gpu=session.has_gpu, secret=secret, seed=seed, floor_s=floor_s)
        verdicts.append(measured.verdict)
        against = decisive(measured, session, settings)
        missing = {a["name"] for a in arms} - {c.baseline for c in against}
        not_applicable |= {name: "it could not be compiled or timed here" for name in missing}
        headline = min(against, key=lambda c: c.speedup) if measured.verdict.lets_on and against else None
        gains = tuple(LeverGain(s.lever, s.adopted, None, s.reason) for s in stages)
        apart: Mapping[str, Comparison] = {}
        interrupted = False
        if measured.verdict.lets_on:
            session.progress.update("confirming: each lever by itself")
            try:
                gains = lever_gains(session, worker, stages, against, settings, secret)
                apart = sets.measure(session, worker, stages, settings, secret, write) if write is not None else {}
            except KeyboardInterrupt:
                # What is confirmed is confirmed: only how the gain divides is not known.
                interrupted = True
    return Confirmation(tuple(verdicts), headline, measured.comparisons, not_applicable, measured.noise, gains,
                        measured.peak_bytes, secret, apart, interrupted)


def decisive(measured: Measured, session: Session, settings: Settings) -> tuple[Comparison, ...]:
    """The comparisons in the configured metric and cache state (a CPU knows only warm caches)."""
    cache = settings.cache if session.has_gpu else "warm"
    return tuple(c for c in measured.comparisons if (c.metric, c.cache) == (settings.metric, cache))


def lever_gains(session: Session, worker: Worker, stages: Sequence[Stage], against: Sequence[Comparison],
                settings: Settings, secret: str) -> tuple[LeverGain, ...]:
    """Each lever over the stack before it. A single lever's gain is the gain over the default, measured already."""
    changed = [s for s in stages if s.adopted]
    gains: list[LeverGain] = []
    before = Stack()
    for stage in stages:
        if not stage.adopted:
            gains.append(LeverGain(stage.lever, 0, None, stage.reason))
            continue
        comparison: Comparison | None = None
        if len(changed) == 1:
            comparison = next((c for c in against if c.baseline == "default"), None)
        else:
            measured = performance.measure(
                worker, candidate=stage.stack.arm("candidate"), baselines=[before.arm("default")],
                settings=replace(settings, budget_s=settings.budget_s / 2), lever=stage.lever, has_gpu=session.has_gpu,
                secret=secret, seed=bootstrap_seed(secret), others=False)
            comparison = next(iter(decisive(measured, session, settings)), None)
        gains.append(LeverGain(stage.lever, stage.adopted, comparison))
        before = stage.stack
    return tuple(gains)


def first_calls(session: Session, target: Target, stack: Stack) -> FirstCall | None:
    """Seconds to the first output in fresh processes, with empty and with warm caches; None if it cannot be had."""
    seconds: list[float] = []
    try:
        for arm in (stack.arm("candidate"), dict(DEFAULT)):
            for state in ("cold", "warm"):
                session.progress.update(f"first call: {arm['name']}, {state} caches")
                # One cache folder for both states, so that the second process finds the first one's code.
                with session.model_worker("model") as worker:
                    load(session, worker, target)
                    answer = worker.call("first_call", {"arm": arm, "cache": f"first-call-{arm['name']}"},
                                         timeout=FIRST_CALL_TIMEOUT_S)
                    seconds.append(float(answer["seconds"]))
    except WorkerError as e:
        session.progress.note(f"first call: not measured: {e}")
        return None
    return FirstCall(*seconds)


@dataclass(frozen=True)
class Untouched:
    """The compiler's own code where nothing was adopted; `against` has it in the candidate's place."""

    against: tuple[Comparison, ...] = ()
    noise: Noise | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)


def untouched(session: Session, worker: Worker, settings: Settings, *, others: bool) -> Untouched:
    """The default against itself, where no candidate came as far as gate 4: how noisy this machine is.

    With `others` also eager and reduce-overhead, but not max-autotune, which is slow to compile. Empty, with a note,
    where it cannot be measured.
    """
    session.progress.update("timing the baselines" if others else "the default against itself (A/A)")
    arms = [a for a in baselines(session.has_gpu)[0] if a["name"] != "max-autotune"] if others else [dict(DEFAULT)]
    pairs = [["default", performance.CONTROL], *([a["name"], "default"] for a in arms if a["name"] != "default")]
    cache = settings.cache if session.has_gpu else "warm"
    rng = np.random.default_rng(bootstrap_seed(session.secret))
    found: list[Comparison] = []
    try:
        answer = worker.call("time_model", {
            "arms": [*arms, {**DEFAULT, "name": performance.CONTROL}], "pairs": pairs, "metric": settings.metric,
            "cache": cache, "budget_s": settings.budget_s / 2, "secret": session.secret, "check": False,
            **({"caches": "shared"} if others else {})}, timeout=FIRST_CALL_TIMEOUT_S)
        for sample in answer["samples"]:
            e = statistics.estimate(sample["a_s"], sample["b_s"], rng, confidence=settings.confidence)
            baseline, candidate = map(str, sample["pair"])
            found.append(Comparison(baseline, candidate, settings.metric, cache, e.speedup, e.low, e.high,
                                    e.a_s * 1e3, e.b_s * 1e3, e.blocks))
        peak = {str(arm): int(size) for arm, size in answer["peak_bytes"].items()}
    except (WorkerError, ValueError) as e:
        session.progress.note(f"A/A control: not measured: {e}")
        return Untouched()
    aa = next((c for c in found if c.candidate == performance.CONTROL), None)
    noise = Noise(aa.speedup, aa.low, aa.high, aa.pairs) if aa is not None else None
    return Untouched(tuple(found) if others else (), noise, peak if others else {})
