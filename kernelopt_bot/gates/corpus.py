"""A corpus of candidates, dishonest and honest, through the product's own gates 1 and 2."""

from __future__ import annotations

import itertools
import queue
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from kernelopt_bot.gates import correctness, static
from kernelopt_bot.gates.answers import Caller
from kernelopt_bot.gates.corpus_case import Case, load
from kernelopt_bot.gates.verdict import Status, Verdict

__all__ = ["MULTIPROCESSORS", "Case", "Outcome", "Runner", "load", "summary"]

ONLY = {
    "gpu": ("cuda", "only a GPU can decide it, and there is none"),
    "interpreter": ("interpret", "a read outside of a buffer that changes no result: only the interpreter sees it"),
}
"""Expectation -> the one lane that can decide it, and the reason why another skips it."""
MULTIPROCESSORS = 132
"""`num_sms` of plans without a GPU: an H200's."""
AHEAD = 2
"""Cases that wait for gate 2, or are in gate 1, for each compiling worker."""
START_S = 120.0


class Worker(Caller, Protocol):
    """A `sandbox.client.Worker`."""

    @property
    def alive(self) -> bool: ...

    def restart(self) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """What became of a case. `got`: the gate that refused it, `accepted`, `undecided` or `skipped`."""

    case: Case
    got: str
    reason: str = ""
    seconds: Mapping[str, float] = field(default_factory=dict)
    """What each gate took, by its name; workers' restarts are in it."""

    @property
    def skipped(self) -> bool:
        return self.got == "skipped"

    @property
    def right(self) -> bool:
        """An adversary refused by any gate, or an honest candidate accepted; being undecided is neither."""
        if self.case.expect == "honest":
            return self.got == "accepted"
        return self.got in ("static", "correctness")

    @property
    def note(self) -> str:
        """What a reader should know of a case that is right in another way than was expected."""
        if self.skipped or not self.right or self.case.expect == "honest":
            return ""
        if self.case.expect not in ONLY and self.got != self.case.expect:
            return f"refused by another gate than {self.case.expect}"
        return "" if self.case.because in self.reason else f"refused for another reason than {self.case.because!r}"

    def to_json(self) -> dict[str, Any]:
        return {"name": self.case.name, "about": self.case.about, "expected": self.case.expect, "got": self.got,
                "reason": self.reason, "right": self.right, "note": self.note,
                "seconds": {gate: round(s, 3) for gate, s in self.seconds.items()}}


@dataclass(frozen=True)
class Runner:
    """Gates 1 and 2 as a search runs them: gate 1 some cases ahead, gate 2 strictly one case after another."""

    compilers: Sequence[Worker]
    checker: Worker
    """Interprets, or has a GPU."""
    lane: Literal["cuda", "interpret"]
    secret: str
    precision: Mapping[str, float]
    arch: int = 90
    multiprocessors: int = MULTIPROCESSORS
    budget_s: float = 60.0
    known: dict[str, static.Compiled] = field(default_factory=dict, repr=False)
    """Kernel source of a baseline -> its facts: compiled once for all its cases, as in a search."""

    def run(self, cases: Sequence[Case]) -> Iterator[Outcome]:
        """The cases' outcomes, in order, as they become known."""
        idle: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.compilers:
            idle.put(worker)
        sources = {case.baseline.kernel.source for case in cases} - self.known.keys()
        answers = static.baselines(sorted(sources), _ready(self.compilers[0]), arch=self.arch)
        # A case whose baseline has no facts yet asks for them itself: an error may be the worker's own.
        self.known.update({source: answer for source, answer in answers.items() if isinstance(answer, Mapping)})
        todo = iter(cases)
        with ThreadPoolExecutor(len(self.compilers)) as pool:
            def ahead(count: int) -> list[Future[tuple[Outcome, KernelCandidate | None]]]:
                return [pool.submit(self._static, case, idle) for case in itertools.islice(todo, count)]

            waiting = deque(ahead(AHEAD * len(self.compilers)))
            try:
                while waiting:
                    outcome, candidate = waiting.popleft().result()
                    waiting += ahead(1)
                    yield outcome if candidate is None else self._correctness(outcome, candidate)
            finally:
                pool.shutdown(cancel_futures=True)

    def _static(self, case: Case, idle: queue.SimpleQueue[Worker]) -> tuple[Outcome, KernelCandidate | None]:
        """Gate 1: what became of a case, and its candidate if gate 2 is to decide."""
        if case.expect in ONLY and ONLY[case.expect][0] != self.lane:
            return Outcome(case, "skipped", ONLY[case.expect][1]), None
        try:
            plan = Plan.from_json(case.plan)
        except (TypeError, KeyError, ValueError) as e:
            return Outcome(case, "static", f"no plan: {type(e).__name__}: {e}"), None
        candidate = KernelCandidate(case.name, "", 0, (0,), case.source, plan, "corpus")
        worker = idle.get()
        begin = time.monotonic()
        try:
            (verdict,) = static.check_kernels(
                [candidate], case.baseline.kernel, _ready(worker), arch=self.arch, known=self.known,
                integers={**correctness.integers(case.baseline.step), "num_sms": self.multiprocessors})
        finally:
            idle.put(worker)
        outcome = Outcome(case, _got(verdict), verdict.reason, {"static": time.monotonic() - begin})
        return outcome, candidate if verdict.lets_on else None

    def _correctness(self, outcome: Outcome, candidate: KernelCandidate) -> Outcome:
        case, begin = outcome.case, time.monotonic()
        verdict = correctness.check_kernel(
            candidate, case.baseline.kernel, case.baseline.step, case.baseline.call(case.stats), _ready(self.checker),
            lane=self.lane, secret=self.secret, precision=self.precision, budget_s=self.budget_s,
            timeout_s=case.limit_s)
        return replace(outcome, got=_got(verdict), reason=verdict.reason,
                       seconds={**outcome.seconds, "correctness": time.monotonic() - begin})


def summary(outcomes: Sequence[Outcome]) -> tuple[str, bool]:
    """(the last line, whether all is well). What was skipped counts neither way, and is named in the line."""
    skipped = [o.case.name for o in outcomes if o.skipped]
    honest = [o for o in outcomes if o.case.expect == "honest"]
    adversaries = [o for o in outcomes if o.case.expect != "honest" and not o.skipped]
    escapes, accepted = sum(not o.right for o in adversaries), sum(o.right for o in honest)
    last = f"ESCAPES {escapes} of {len(adversaries)} adversaries, {accepted} of {len(honest)} honest accepted"
    if skipped:
        why = "; ".join(dict.fromkeys(o.reason for o in outcomes if o.skipped))
        last = f"skipped {len(skipped)} ({why}): {', '.join(skipped)}\n{last}"
    return last, not escapes and accepted == len(honest)


def _got(verdict: Verdict) -> str:
    if verdict.status is Status.FAIL:
        return verdict.gate
    return "accepted" if verdict.lets_on else "undecided"


def _ready(worker: Worker) -> Worker:
    if not worker.alive:
        worker.restart()
        worker.call("hello", {}, timeout=START_S)  # a case's own limit is not for loading torch
    return worker
