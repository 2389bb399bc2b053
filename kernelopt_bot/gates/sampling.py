"""What `time_model` answers, pooled over the rounds of one measurement, with the estimates over it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kernelopt_bot.gates import statistics
from kernelopt_bot.gates.answers import Caller, Malformed, need, number
from kernelopt_bot.gates.statistics import Estimate, Times
from kernelopt_bot.gates.verdict import Status, Verdict

Arm = Mapping[str, Any]
"""As `time_model` takes it: name, kind, mode, options, artifact."""

CONTROL = "default again"
"""Name of the A/A arm: default torch.compile, compiled a second time."""

COMPILE_ALLOWANCE_S = 600.0
"""On top of the measuring time: every arm is compiled first, some with autotuning."""


@dataclass(frozen=True)
class Sample:
    """Raw times in seconds of one pair of arms, interleaved a b b a."""

    baseline: str
    candidate: str
    metric: str
    cache: str
    a_s: Times
    b_s: Times


class Samples:
    """Of all rounds, pooled by pair, metric and cache state; and what else the worker said of the arms."""

    def __init__(self, worker: Caller, candidate: Arm, secret: str, confidence: float,
                 rng: np.random.Generator) -> None:
        self.worker, self.candidate, self.secret = worker, candidate, secret
        self.peak_bytes: dict[str, int] = {}
        self.compile_s: dict[str, float] = {}
        self.states: list[Any] = []
        """Of the device, before and after each round."""
        self.failed: dict[str, str] = {}
        self.timer = ""
        """How times were taken, in the worker's words."""
        self.rounds = 0
        self.spent_s = 0.0
        """Of all samples together, without compilation and warming up."""
        self._wrong: dict[str, str] = {}
        self._confidence, self._rng = confidence, rng
        self._samples: dict[tuple[str, str, str, str], Sample] = {}
        self._estimates: dict[tuple[str, str, str, str], Estimate] = {}

    def collect(self, metric: str, cache: str, seconds: float, baselines: Sequence[Arm], *, control: bool,
                check: bool) -> None:
        """One round of `time_model`. `check`: outputs are compared too. Raises WorkerError, Malformed."""
        arms = [*baselines, self.candidate]
        pairs = [[str(b["name"]), str(self.candidate["name"])] for b in baselines]
        if control:
            first = next((b for b in baselines if b["name"] == "default"), baselines[0])
            arms.append({**first, "name": CONTROL})
            pairs.append([str(first["name"]), CONTROL])
        answer = self._call(arms, pairs, metric, cache, seconds, check)
        timer = need(answer, "timer", str)
        if self.timer not in ("", timer):
            raise Malformed(f"times of two kinds, which must not be mixed: {self.timer!r} and {timer!r}")
        self.timer, self.rounds = timer, self.rounds + 1
        for sample in need(answer, "samples", list):
            a, b = need(sample, "pair", list)
            a_s, b_s = _times(sample, "a_s"), _times(sample, "b_s")
            self.spent_s += (sum(a_s) + sum(b_s)) * number(sample, "calls_per_sample", 1.0)
            self._add(Sample(str(a), str(b), metric, cache, a_s, b_s))
        for arm, size in need(answer, "peak_bytes", Mapping).items():
            if size is not None:
                self.peak_bytes[arm] = max(self.peak_bytes.get(arm, 0), int(number({"n": size}, "n")))
        for arm, spent in (answer.get("compile_s") or {}).items():
            self.compile_s.setdefault(str(arm), number({"n": spent}, "n"))
        self.states += [answer.get("state_before"), answer.get("state_after")]
        self.failed |= {str(arm): str(why) for arm, why in (answer.get("failed") or {}).items()}

    def check(self, baselines: Sequence[Arm]) -> None:
        """The outputs once more, after all timing. Raises WorkerError, Malformed."""
        self._call([*baselines, self.candidate], [], "latency", "warm", 0.0, True)

    def _call(self, arms: Sequence[Arm], pairs: Sequence[Sequence[str]], metric: str, cache: str, seconds: float,
              check: bool) -> dict[str, Any]:
        answer = self.worker.call("time_model", {
            "arms": [dict(a) for a in arms], "pairs": [list(p) for p in pairs], "metric": metric, "cache": cache,
            "budget_s": seconds, "secret": self.secret, "check": check}, timeout=COMPILE_ALLOWANCE_S + 4 * seconds)
        for arm, result in need(answer, "checked", Mapping).items():
            if not need(result, "passed", bool):
                self._wrong[str(arm)] = str(result.get("reason"))
        for arm, count in (answer.get("replaced") or {}).items():
            if number(count, "expected") != number(count, "found"):
                self._wrong[str(arm)] = f"{count.get('found')} of {count.get('expected')} runs were replaced"
        return answer

    def device_times(self, arm: Arm, calls: int) -> list[float]:
        """Seconds of device work of each call of the arm, by the profiler. Raises WorkerError, Malformed."""
        answer = self.worker.call("device_time", {"arm": dict(arm), "calls": calls}, timeout=COMPILE_ALLOWANCE_S)
        found = [number({"t": t}, "t", -1.0) for t in need(answer, "device_s", list)]
        if not found or min(found) <= 0:
            raise Malformed("the profiler's times are not all above zero")
        return found

    def objection(self, decisive: Collection[str]) -> Verdict | None:
        """What no timing can make good: an arm that does not compile, or does not compute."""
        name = str(self.candidate["name"])
        if name in self.failed:
            return Verdict("performance", Status.FAIL, f"the candidate does not run: {self.failed[name]}")
        if name in self._wrong:
            return Verdict("performance", Status.FAIL, f"the candidate does not compute: {self._wrong[name]}")
        for baseline in [*sorted(decisive), CONTROL]:
            if baseline in self.failed:
                return Verdict("performance", Status.NOT_MEASURED,
                               f"the baseline {baseline} does not run: {self.failed[baseline]}")
        return None

    def estimates(self) -> list[tuple[Sample, Estimate]]:
        """In the order measured. Raises ValueError where a sample is too short or has a bad time."""
        for key, sample in self._samples.items():
            if key not in self._estimates:
                try:
                    self._estimates[key] = statistics.estimate(
                        sample.a_s, sample.b_s, self._rng, confidence=self._confidence)
                except ValueError as e:
                    raise ValueError(f"{sample.candidate} against {sample.baseline}, {sample.metric}, {sample.cache}: "
                                     f"{e}") from e
        return [(s, self._estimates[key]) for key, s in self._samples.items()]

    def states_taken(self) -> set[tuple[str, str]]:
        """(metric, cache) of what was sampled."""
        return {(metric, cache) for _, _, metric, cache in self._samples}

    def settled(self, metric: str, cache: str, threshold: float, decisive: Collection[str]) -> bool:
        """Whether more of this metric and cache state would not change what the decisive pairs say."""
        try:
            found = [e for s, e in self.estimates() if s.baseline in decisive and s.candidate != CONTROL
                     and (s.metric, s.cache) == (metric, cache)]
        except ValueError:
            return False
        return all(statistics.settled(e, threshold) for e in found)

    def _add(self, sample: Sample) -> None:
        key = (sample.baseline, sample.candidate, sample.metric, sample.cache)
        before = self._samples.get(key)
        if before is not None:
            sample = replace(sample, a_s=[*before.a_s, *sample.a_s], b_s=[*before.b_s, *sample.b_s])
        self._samples[key] = sample
        self._estimates.pop(key, None)


def _times(sample: object, key: str) -> list[float]:
    """Whole blocks only, so that pooled rounds keep the order a b b a."""
    times = [number({"t": t}, "t", -1.0) for t in need(sample, key, list)]
    return times[: len(times) // 2 * 2]
