"""The levers `dispatch` and `launch`: other decisions of the same compiler, by its own options."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import Lever, OptionsCandidate
from kernelopt_bot.device.profile import Profile
from kernelopt_bot.gates import correctness, model, performance, static
from kernelopt_bot.gates.performance import Measured, Settings
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search import levers, screening
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials

SCREENED = {"cuda": 6, "cpu": 2}
"""Candidates compiled for a first look, cheapest first; C++ code takes some ten seconds to compile."""
SCREENING_SHARE = 0.25
"""Of what is left of the wall time: a large model's compilations would leave nothing for the gates."""
ATTEMPTS: Mapping[Lever, int] = {"dispatch": 2, "launch": 1}
"""Candidates of one lever taken through the gates, most promising first."""


@dataclass(frozen=True)
class Outcome:
    stack: Stack
    measured: Measured | None
    """Gate 4 of the last adoption."""
    reason: str
    """Why nothing was adopted ('' if something was)."""


def run(session: Session, worker: Worker, stack: Stack, program: Program, profile: Profile, lever: Lever,
        trials: Trials, settings: Settings, environment: Mapping[str, Any], class_name: str) -> Outcome:
    """Raises WorkerError only where no verdict can hold it (screening), Unavailable for the disk."""
    propose = levers.launch if lever == "launch" else levers.dispatch
    proposed = [c for c in propose(program, profile, "cuda" if session.has_gpu else "cpu")
                if not set(c.options.items()) <= set(stack.options.items())]
    allowed: list[tuple[OptionsCandidate, Verdict]] = []
    for candidate in proposed:
        verdict = static.check_options(candidate, session.inside)
        if verdict.lets_on:
            allowed.append((candidate, verdict))
        else:
            trials.judged(candidate, verdict)
    allowed = allowed[:SCREENED[session.lane]]
    if not allowed:
        return Outcome(stack, None, "no option of this lever applies to the program")
    session.progress.update(f"{lever}: screening {len(allowed)} candidates")
    verdicts = {c.id: v for c, v in allowed}
    found = screening.screen(worker, stack, [c for c, _ in allowed], settings, session.secret,
                             bootstrap_seed(session.secret), has_gpu=session.has_gpu,
                             limit_s=SCREENING_SHARE * session.budget.left().wall_s, clock=session.budget.now)
    promising = [s for s in found if s.promising]
    seen = {s.candidate.id for s in found}
    for candidate, verdict in allowed:
        if candidate.id not in seen:
            trials.judged(candidate, verdict, note="not screened: compiling the ones before took long enough")
    for s in found:
        trials.judged(s.candidate, verdicts[s.candidate.id],
                      note=s.reason if s.promising else f"discarded in {s.reason}")
    best: Outcome | None = None
    reason = f"no candidate looked faster in screening (best {found[0].speedup:.3f}x)" if found else ""
    for s in promising[:ATTEMPTS[lever]]:
        if spent := session.budget.exhausted():
            reason = spent
            break
        current = best.stack if best else stack
        trial, outcome = _gates(session, worker, current, program, s.candidate, verdicts[s.candidate.id], lever, trials,
                                settings, environment, class_name)
        if outcome is None:
            stop = trial.stopped_by
            reason = f"{s.candidate.technique}: {stop.gate} gate: {stop.reason}" if stop else reason
            continue
        best = outcome
        session.progress.note(f"{lever}: adopted {s.candidate.technique}")
        if lever == "launch":
            break
    return best or Outcome(stack, None, reason)


def _gates(session: Session, worker: Worker, stack: Stack, program: Program, candidate: OptionsCandidate,
           first: Verdict, lever: Lever, trials: Trials, settings: Settings, environment: Mapping[str, Any],
           class_name: str) -> tuple[Trial, Outcome | None]:
    """Gates 2 to 4 of one candidate on top of the stack: one draw, one metric. The confirmation takes all of them."""
    whole = replace(candidate, options={**stack.options, **candidate.options})
    session.progress.update(f"{lever}: {candidate.technique}: correctness")
    trial = trials.judged(candidate, first, correctness.check_options(
        whole, worker, secret=session.secret, precision=session.precision()))
    if trial.stopped_by:
        return trial, None
    extended = stack.with_options(candidate).written(
        session.artifacts / candidate.id, program, class_name, environment)
    session.progress.update(f"{lever}: {candidate.technique}: model")
    trial = trials.update(trial, model.check(
        worker, artifact=str(extended.folder), options={}, secret=session.secret, seeds=1, inits=1,
        precision=session.precision()))
    if trial.stopped_by:
        return trial, None
    session.progress.update(f"{lever}: {candidate.technique}: performance")
    measured = performance.measure(
        worker, candidate=extended.arm("candidate"), baselines=[stack.arm("default")], settings=settings, lever=lever,
        has_gpu=session.has_gpu, secret=session.secret, seed=bootstrap_seed(session.secret), others=False)
    trial = trials.update(trial, measured.verdict)
    if trial.stopped_by:
        return trial, None
    trial = trials.record(replace(trial, adopted=True))
    return trial, Outcome(extended, measured, "")
