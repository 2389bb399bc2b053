"""The levers `kernel` and `region` on a GPU. `kernel`: generated kernels re-tuned, rewritten and fused; every vendor
call stays. `region`: a vendor call and the kernel after it as one.

For each spot (a step, or a run that can be fused), most savings first: techniques propose and gate 1 filters
(`proposing.py`), the survivors are timed against the compiler's kernel in one interleaved race, and the fastest that
passes gate 2 is kept. Then the stack with all kept kernels goes through gates 3 and 4; if it fails, kernels are
dropped, least gain first. What passes is looked at by compute-sanitizer, gate 2's last word, which takes longer than
many a search; kernels that it accuses are dropped, and the others go through gates 3 and 4 again.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.contract.candidate import KernelCandidate, Lever
from kernelopt_bot.device.sanitizer import NAME
from kernelopt_bot.gates import correctness, model, performance
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import agents_lever
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.finalists import sanitized
from kernelopt_bot.search.proposing import Compiler, Proposals, in_batches
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.spots import Spot
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials

PAIRS = 12
CHECKED = 3
"""Candidates of one spot taken to gate 2, fastest first."""
DROPS = 4
"""Times that the stack is tried again with fewer kernels."""
OPTIMISM = 1.5
"""Kernels may save this much more of a call than alone with cold caches."""
CHECK_S = 30.0
TIMEOUT_S = 300.0
LEAST_SHARE = 0.002
"""Spots that can save less than this share of the call are not worth their search."""


@dataclass(frozen=True)
class Kept:
    """The fastest candidate of a spot that passed gates 1 and 2."""

    trial: Trial
    spot: Spot
    saved_us: float


class KernelSearch:
    """Gate 1, the races of all spots and gate 2, in one kernel worker that is restarted when the GPU is lost."""

    def __init__(self, session: Session, worker: Worker, trials: Trials, scratch: Path,
                 program_bytes: int | None = None) -> None:
        self.program_bytes = program_bytes
        self.session, self.worker, self.trials, self._scratch = session, worker, trials, scratch

    def spot(self, proposed: Proposals) -> Kept | None:
        """The best candidate for one spot, if any passes. Raises WorkerError only when the worker cannot be had."""
        spot = proposed.spot
        if proposed.failure:
            self.session.progress.note(f"kernel: {spot.name}: the baseline's kernel was not understood: "
                                       f"{proposed.failure}")
            return None
        judged = [self.trials.judged(candidate, verdict) for candidate, verdict in proposed.judged]
        passed = [trial for trial in judged if trial.stopped_by is None]
        if not passed:
            return None
        arguments = self.arguments(spot)
        won = [t for t in self.raced(spot, passed, arguments) if t.won]
        for trial in sorted(won, key=lambda t: t.after_us or 0.0)[:CHECKED]:
            trial = self.checked(spot, trial, arguments)
            if trial.stopped_by is None:
                return self.kept(spot, trial)
        return None

    def arguments(self, spot: Spot) -> list[Any]:
        """Of the worker's methods: the recorded calls, lent to it."""
        return spot.arguments([lend(dict(call), self._scratch, self.worker.scratch) for call in spot.recorded])

    def checked(self, spot: Spot, trial: Trial, arguments: list[Any]) -> Trial:
        """The trial with gate 2's verdict."""
        trial = self.trials.update(trial, self._correct(spot, candidate_of(trial), arguments))
        self._revive()
        return trial

    @staticmethod
    def kept(spot: Spot, trial: Trial) -> Kept:
        assert trial.before_us is not None and trial.after_us is not None
        return Kept(trial, spot, (trial.before_us - trial.after_us) * spot.calls)

    def _correct(self, spot: Spot, candidate: KernelCandidate, arguments: list[Any]) -> Verdict:
        return correctness.check_spot(
            candidate, spot.baseline, arguments, self.worker, lane="cuda", secret=self.session.secret,
            precision=self.session.precision(), budget_s=CHECK_S, program_bytes=self.program_bytes)

    def raced(self, spot: Spot, trials: list[Trial], arguments: list[Any]) -> list[Trial]:
        """Those that could be timed, in order; every one is recorded, with its times if it has any."""
        candidates = [{"source": c.source, "plan": c.plan.to_json()} for c in map(candidate_of, trials)]
        params = {"baseline": dict(spot.baseline), "candidates": candidates, "pairs": PAIRS, "cache": "cold",
                  "arguments": arguments, "secret": self.session.secret}
        try:
            answer = self.worker.call("tune_step", params, timeout=TIMEOUT_S)
        except WorkerError as e:
            self.session.progress.note(f"kernel: {spot.name}: the race failed: {e}")
            self._revive()
            return []
        before = statistics.median(answer["baseline_us"])
        timed: list[Trial] = []
        for trial, raced in zip(trials, answer["candidates"], strict=True):
            if not raced.get("us"):
                self.trials.record(replace(trial, note=f"not timed: {raced.get('error', 'no times')}"))
                continue
            after = statistics.median(raced["us"])
            trial = replace(trial, before_us=before, after_us=after, step_speedup=before / after)
            note = "" if trial.won else f"not faster in the race of steps: {before / after:.3f}x"
            timed.append(self.trials.record(replace(trial, note=note)))
        return timed

    def _revive(self) -> None:
        if not self.worker.alive:
            self.worker.restart()


def search(session: Session, worker: Worker, trials: Trials, scratch: Path, found: Sequence[Spot],
           call_us: float | None, arch: int, program_bytes: int | None = None) -> tuple[Kept, ...]:
    """The kept candidates of all spots within the budget, most saved first; of spots that share a step the one that
    saves most.

    `worker` is a kernel worker with the GPU; `scratch` is where the captured tensors lie; `program_bytes` bounds gate
    2's memory.
    """
    work = KernelSearch(session, worker, trials, scratch, program_bytes)
    worth = [s for s in found if not call_us or s.savings_us >= LEAST_SHARE * call_us]
    kept: list[Kept] = []
    compiler = Compiler(worker, arch)
    for n, proposed in enumerate(in_batches(compiler, worth)):
        if session.budget.exhausted():
            break
        name = proposed.spot.name
        session.progress.update(f"kernel: {name}", n, len(worth))
        result = work.spot(proposed)
        if result is not None:
            kept.append(result)
            session.progress.note(f"kernel: {name}: {result.trial.candidate.technique} "
                                  f"{result.trial.step_speedup:.2f}x on the step")
    if session.party is not None and worth and not session.budget.exhausted():
        kept += agents_lever.search(work, session.party, compiler, worth)
    return tuple(compatible(trials, kept))


def compatible(trials: Trials, kept: Sequence[Kept]) -> list[Kept]:
    """Most saved first, without those that share a step with one that saves more."""
    chosen: list[Kept] = []
    for one in sorted(kept, key=lambda k: -k.saved_us):
        other = next((c for c in chosen if c.spot.hashes & one.spot.hashes), None)
        if other is None:
            chosen.append(one)
        else:
            trials.record(replace(one.trial, note=f"shares a step with {other.trial.candidate.id}, which saves more"))
    return chosen


def candidate_of(trial: Trial) -> KernelCandidate:
    assert isinstance(trial.candidate, KernelCandidate)
    return trial.candidate


def adopt(session: Session, worker: Worker, stack: Stack, captured: Captured, kept: Sequence[Kept], trials: Trials,
          settings: Settings, floor_s: float | None, environment: Mapping[str, Any], class_name: str,
          call_us: float | None, lever: Lever = "kernel") -> tuple[Stack, Measured | None, str]:
    """Gates 3 and 4 of the stack with the kept kernels: (stack, gate 4's measurement, why nothing was adopted).

    `call_us`: latency of one call, for Amdahl's law: where all steps together cannot reach `min_gain`, no gate is run.
    """
    reason = "no candidate passed gates 1 and 2 and was faster on its step"
    saved = sum(k.saved_us for k in kept)
    if kept and call_us and call_us < settings.min_gain * (call_us - OPTIMISM * saved):
        reason = f"the kept kernels save {saved:.1f} us of a call of {call_us:.0f} us: less than min_gain asks for"
        for k in kept:
            trials.record(replace(k.trial, note=reason))
        return stack, None, reason
    left = list(kept)
    for attempt in range(DROPS):
        if not left:
            break
        adopted = tuple(AdoptedKernel(candidate_of(k.trial), {"step_speedup": k.trial.step_speedup}) for k in left)
        extended = stack.with_kernels((*stack.kernels, *adopted)).written(
            session.artifacts / f"{lever}s-{attempt}", captured.program, class_name, environment)
        session.progress.update(f"kernel: model gate with {len(left)} kernels")
        whole = model.check(worker, artifact=str(extended.folder), options={}, secret=session.secret, seeds=1, inits=1,
                            precision=session.precision(), kernels=True)
        measured: Measured | None = None
        verdicts = [whole]
        if whole.lets_on:
            session.progress.update(f"kernel: performance gate with {len(left)} kernels")
            measured = performance.measure(
                worker, candidate=extended.arm("candidate"), baselines=[stack.arm("default")], settings=settings,
                lever=lever, has_gpu=session.has_gpu, secret=session.secret,
                seed=bootstrap_seed(session.secret), floor_s=floor_s, others=False)
            verdicts.append(measured.verdict)
        passed = all(v.lets_on for v in verdicts)
        if passed:
            clean = sanitized(session, trials, left, worker.scratch)
            if len(clean) < len(left):
                reason, left = f"{NAME} accuses {len(left) - len(clean)} of {len(left)} kernels", clean
                continue
            left = clean
        # Fewer kernels can help a wrong answer, or one that makes the model slower; not one that gains too little.
        hopeless = measured is not None and all(c.speedup >= 1.0 for c in measured.comparisons)
        last = attempt == DROPS - 1 or hopeless
        for k in left if passed or last else left[-1:]:
            trials.update(k.trial, *verdicts, adopted=passed)
        if passed:
            return extended, measured, ""
        reason = next(f"{v.gate} gate: {v.reason}" for v in verdicts if not v.lets_on)
        if hopeless:
            break
        left = left[:-1]
    return stack, None, reason

