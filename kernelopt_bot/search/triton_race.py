"""Times of a Triton kernel's launches under several configurations, weighed by how often each launch was recorded."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

import numpy as np

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates import statistics as gate_statistics
from kernelopt_bot.gates.answers import Malformed
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.result import WORTHWHILE, Comparison, Noise
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.triton_calls import Case

BASELINE = "your kernel"
PAIRS, CONFIRMED = 12, 40
"""Pairs of a race, and of the confirmation."""
TIMEOUT_S = 600.0


@dataclass(frozen=True)
class Times:
    """Medians in microseconds. `others[n][c]`: of configuration n on case c, None where it was not timed."""

    counts: tuple[int, ...]
    before: tuple[float, ...]
    others: tuple[tuple[float | None, ...], ...]

    def total(self, n: int | None) -> float | None:
        """Of the whole mix under one configuration, None for the user's own."""
        times = self.before if n is None else self.others[n]
        if any(t is None for t in times):
            return None
        return sum(c * t for c, t in zip(self.counts, times, strict=True) if t is not None)

    def facts(self, n: int) -> dict[str, Any]:
        """Of a trial: what it gains over the mix."""
        before, after = self.total(None), self.total(n)
        if before is None or after is None:
            return {"note": "not timed on every launch"}
        gain = before / after
        return {"step_speedup": gain, "before_us": before, "after_us": after,
                "note": "" if gain >= WORTHWHILE else f"not faster in the race of launches: {gain:.3f}x"}

    def picked(self, *, single: bool, without: AbstractSet[int]) -> list[int | None]:
        """The configuration for each case, None where the user's own stays. `single`: one for all of them."""
        free = [n for n in range(len(self.others)) if n not in without]
        if single:
            totals = {n: t for n in free if (t := self.total(n)) is not None}
            best = min(totals, key=lambda n: totals[n], default=None)
            own = self.total(None) or 0.0
            return [best if best is not None and own / totals[best] >= WORTHWHILE else None] * len(self.before)
        chosen: list[int | None] = []
        for case, own in enumerate(self.before):
            # An autotuner may take any of its list for any launch, so what stays must run on all of them.
            times = {n: t for n in free if self.total(n) is not None and (t := self.others[n][case]) is not None}
            best = min(times, key=lambda n: times[n], default=None)
            chosen.append(best if best is not None and own / times[best] >= WORTHWHILE else None)
        return chosen


@dataclass(frozen=True)
class Confirmed:
    verdict: Verdict
    comparison: Comparison | None
    noise: Noise | None


def raced(cases: Sequence[Case], candidates: Sequence[Sequence[KernelCandidate]], arguments: Sequence[Any],
          worker: Worker, session: Session) -> Times:
    """One interleaved race a case; `candidates[n][c]` for case c. Raises WorkerError."""
    before: list[float] = []
    columns: list[list[float | None]] = []
    for c, (case, given) in enumerate(zip(cases, arguments, strict=True)):
        session.progress.update(f"racing on launch {c}", c, len(cases))
        answer = _asked("tune_step", case, [row[c] for row in candidates], given, worker, session, PAIRS)
        before.append(statistics.median(answer["baseline_us"]))
        # Those that were stopped as hopeless here may be the best of the mix.
        columns.append([statistics.median(r["us"]) if r.get("us") else None for r in answer["candidates"]])
    rows = tuple(tuple(column[n] for column in columns) for n in range(len(candidates)))
    return Times(tuple(c.count for c in cases), tuple(before), rows)


def confirmed(cases: Sequence[Case], chosen: Sequence[KernelCandidate], arguments: Sequence[Any], worker: Worker,
              session: Session) -> Confirmed:
    """Gate 4 over the mix, in a process that has raced nothing; the user's own kernel also runs against itself.
    `chosen`: the candidate for each case. Raises WorkerError."""
    totals: list[list[float]] = [[], [], []]
    for case, candidate, given in zip(cases, chosen, arguments, strict=True):
        same = case.candidate(case.plan, case.source, "", "")
        answer = _asked("time_step", case, [candidate, same], given, worker, session, CONFIRMED)
        arms = [answer["baseline_us"], *(r.get("us") or [] for r in answer["candidates"])]
        if len({len(a) for a in arms}) != 1 or not arms[0]:
            raise Malformed("a launch could not be timed in the confirmation")
        for total, arm in zip(totals, arms, strict=True):
            weighed = [case.count * us * 1e-6 for us in arm]
            total[:] = [a + b for a, b in zip(total, weighed, strict=True)] if total else weighed
    rng = np.random.default_rng(bootstrap_seed(session.secret))
    gates = session.config.gates
    try:
        gain = gate_statistics.estimate(totals[0], totals[1], rng, confidence=gates.confidence)
        control = gate_statistics.estimate(totals[0], totals[2], rng, confidence=gates.confidence)
    except ValueError as e:
        return Confirmed(Verdict("performance", Status.NOT_MEASURED, str(e)), None, None)
    noise = Noise(control.speedup, control.low, control.high, control.blocks)
    found = Comparison(BASELINE, "candidate", "latency", "cold", gain.speedup, gain.low, gain.high,
                       gain.a_s * 1e3, gain.b_s * 1e3, gain.blocks)
    needed = max(gates.min_gain, gate_statistics.noise_floor(control))
    evidence = {"speedup": gain.speedup, "low": gain.low, "high": gain.high, "needed": needed, "pairs": gain.blocks,
                "weights": [c.count for c in cases]}
    if gain.low <= needed:
        return Confirmed(Verdict("performance", Status.FAIL, f"{gain.speedup:.3f}x, at least {gain.low:.3f}x: "
                                 f"{needed:.3f}x is needed", evidence), found, noise)
    return Confirmed(Verdict("performance", Status.PASS, evidence=evidence), found, noise)


def _asked(method: str, case: Case, candidates: Sequence[KernelCandidate], arguments: Any, worker: Worker,
           session: Session, pairs: int) -> dict[str, Any]:
    if not worker.alive:
        worker.restart()
    return worker.call(method, {
        "baseline": case.baseline_json(), "pairs": pairs, "cache": "cold", "arguments": list(arguments),
        "candidates": [{"source": c.source, "plan": c.plan.to_json()} for c in candidates],
        "secret": session.secret}, timeout=TIMEOUT_S)
