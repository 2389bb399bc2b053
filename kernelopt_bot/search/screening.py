"""A quick, biased look at many option candidates at once, so that gates are spent on the promising ones.

A screening is no gate: it only orders and discards, and nothing that it measured is reported as a gain.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.gates import statistics
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search.stack import DEFAULT, Stack

TIMEOUT_S = 900.0
TOGETHER = 3
"""Candidates compiled and timed in one call."""
SECONDS = {True: 0.4, False: 1.0}
"""Measuring time for each candidate, on a GPU and on a CPU, whose calls vary more."""


@dataclass(frozen=True)
class Screened:
    candidate: OptionsCandidate
    speedup: float
    """Over the stack; 0.0 if it could not be compiled."""
    high: float
    promising: bool
    """Whether gate 4 can still pass: its lower bound has to be above `min_gain`, so the upper one must be, and a third
    of that gain has to show already: gates take longer than screenings."""
    reason: str


def screen(worker: Worker, stack: Stack, candidates: Sequence[OptionsCandidate], settings: Settings, secret: str,
           seed: int, *, has_gpu: bool, limit_s: float = math.inf, clock: Callable[[], float] = time.monotonic,
           ) -> tuple[Screened, ...]:
    """Fastest first; some at a time in the given order, none any more after `limit_s` (seconds). Raises WorkerError."""
    found: list[Screened] = []
    begin = clock()
    for start in range(0, len(candidates), TOGETHER):
        if found and clock() - begin > limit_s:
            break
        found += _some(worker, stack, candidates[start : start + TOGETHER], settings, secret, seed, has_gpu)
    return tuple(sorted(found, key=lambda s: -s.speedup))


def _some(worker: Worker, stack: Stack, candidates: Sequence[OptionsCandidate], settings: Settings, secret: str,
          seed: int, has_gpu: bool) -> list[Screened]:
    # While nothing is adopted it is the arm of gate 4 that follows, which then need not be compiled again.
    before = {**DEFAULT, "name": "default" if stack.empty else "before", "options": dict(stack.options)}
    arms = [{**DEFAULT, "name": c.id, "options": {**stack.options, **c.options}} for c in candidates]
    answer = worker.call("time_model", {
        "arms": [before, *arms], "pairs": [[before["name"], c.id] for c in candidates], "metric": settings.metric,
        "cache": settings.cache, "budget_s": SECONDS[has_gpu] * len(candidates), "secret": secret, "check": False,
        "caches": "shared",
    }, timeout=TIMEOUT_S)
    samples = {str(s["pair"][1]): s for s in answer["samples"]}
    failed = answer.get("failed", {})
    rng = np.random.default_rng(seed)
    found = []
    for candidate in candidates:
        sample = samples.get(candidate.id)
        if sample is None:
            found.append(Screened(candidate, 0.0, 0.0, False, f"not compiled: {failed.get(candidate.id, 'no answer')}"))
            continue
        ratios = statistics.log_ratios(sample["a_s"], sample["b_s"])
        centre = float(np.exp(statistics.winsorised_mean(ratios)))
        means = statistics.bootstrap(ratios, rng)
        high = float(np.exp(np.quantile(means, 0.975)))
        promising = high > settings.min_gain and centre > 1.0 + (settings.min_gain - 1.0) / 3
        found.append(Screened(candidate, centre, high, promising,
                              f"screening: {centre:.3f}x [up to {high:.3f}]"))
    return found
