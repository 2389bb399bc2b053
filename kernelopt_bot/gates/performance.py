"""Gate 4: is it faster, by interleaved timings, a paired interval and an A/A control?"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelopt_bot.contract.candidate import Lever
from kernelopt_bot.gates import statistics
from kernelopt_bot.gates.answers import Caller, judged, need, number
from kernelopt_bot.gates.statistics import Estimate, Times
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.search.result import Comparison, Noise

Arm = Mapping[str, Any]
"""As `time_model` takes it: name, kind, mode, options, artifact."""

CONTROL = "default again"
"""Name of the A/A arm: default torch.compile, compiled a second time."""

FLOOR_SHARE = 0.95
"""Below this share of the physical floor a time is an error of measurement or a cheat."""

COMPILE_ALLOWANCE_S = 600.0
"""On top of the measuring time: every arm is compiled first, some with autotuning."""


@dataclass(frozen=True)
class Settings:
    """`config.gates`, as far as this gate needs it; `budget_s` is measuring time for one metric and cache state."""

    min_gain: float = 1.03
    metric: str = "latency"
    cache: str = "cold"
    no_regress: float = 0.97
    confidence: float = 0.95
    memory_limit: float = 1.10
    memory_slack_bytes: int = 256 << 20
    budget_s: float = 10.0


@dataclass(frozen=True)
class Sample:
    """Raw times in seconds of one pair of arms, interleaved a b b a."""

    baseline: str
    candidate: str
    metric: str
    cache: str
    a_s: Times
    b_s: Times


@dataclass(frozen=True)
class Measured:
    """`decisive` baselines decide; `comparisons` holds every pair but the control, in the order measured."""

    verdict: Verdict
    comparisons: tuple[Comparison, ...] = ()
    noise: Noise | None = None
    peak_bytes: Mapping[str, int] = field(default_factory=dict)
    compile_s: Mapping[str, float] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    """Arm -> why it could not be run: baselines that do not apply."""


def decide(
    samples: Sequence[Sample], *, settings: Settings, rng: np.random.Generator, peak_bytes: Mapping[str, int],
    floor_s: float | None, decisive: Collection[str] = ("default",),
) -> Measured:
    """The verdict over raw samples.

    Pass: against each of the `decisive` baselines, for the configured metric and cache state, the lower bound is above
    `min_gain` and above the A/A control's noise; no other measured metric and cache state regresses against them; peak
    memory is within its limit; the time is not below the physical floor `floor_s` (seconds a call; None if unknown).
    Samples against other baselines are compared and not judged. Not measured: a sample that decides, or the control,
    is missing or too short.
    """
    estimates: list[tuple[Sample, Estimate]] = []
    for sample in samples:
        try:
            found = statistics.estimate(sample.a_s, sample.b_s, rng, confidence=settings.confidence)
        except ValueError as e:
            return Measured(_no(f"{sample.candidate} against {sample.baseline}, {sample.metric}, {sample.cache}: {e}"))
        estimates.append((sample, found))
    comparisons = tuple(_comparison(s, e) for s, e in estimates if s.candidate != CONTROL)
    controls = [e for s, e in estimates if s.candidate == CONTROL and _decides(s, settings)]
    noise = max(controls, key=statistics.noise_floor, default=None)
    if noise is None:
        return Measured(_no("no A/A control"), comparisons)
    judged_pairs = [(s, e) for s, e in estimates if s.baseline in decisive and s.candidate != CONTROL]
    missing = set(decisive) - {s.baseline for s, _ in judged_pairs if _decides(s, settings)}
    evidence = _evidence(estimates, noise, settings, peak_bytes, floor_s)
    if missing:
        verdict = _no(f"no {settings.metric} with {settings.cache} cache against {', '.join(sorted(missing))}")
    elif (reason := _objection(judged_pairs, statistics.noise_floor(noise), settings, peak_bytes, floor_s)) is not None:
        verdict = Verdict("performance", Status.FAIL, reason)
    else:
        verdict = Verdict("performance", Status.PASS)
    aa = Noise(noise.speedup, noise.low, noise.high, noise.blocks)
    return Measured(replace(verdict, evidence=evidence), comparisons, aa, dict(peak_bytes))


def _no(reason: str) -> Verdict:
    return Verdict("performance", Status.NOT_MEASURED, reason)


def _decides(sample: Sample, settings: Settings) -> bool:
    return (sample.metric, sample.cache) == (settings.metric, settings.cache)


def _objection(
    pairs: Sequence[tuple[Sample, Estimate]], noise: float, settings: Settings, peak_bytes: Mapping[str, int],
    floor_s: float | None,
) -> str | None:
    """The first reason against adoption; of several the one that says most."""
    for _, e in pairs:
        # A baseline below the floor says that the floor is wrong: bytes were counted that nobody needs to move.
        if floor_s and e.b_s < FLOOR_SHARE * floor_s <= e.a_s:
            return (f"{e.b_s * 1e6:.1f} us is below {FLOOR_SHARE} of the physical floor of {floor_s * 1e6:.1f} us: "
                    "it cannot have moved the bytes")
    for sample, e in pairs:
        what = (f"{e.speedup:.3f}x [{e.low:.3f}, {e.high:.3f}] against {sample.baseline} "
                f"({sample.metric}, {sample.cache})")
        if _decides(sample, settings) and e.low <= settings.min_gain:
            return f"{what}: the lower bound is not above {settings.min_gain}"
        if _decides(sample, settings) and e.low <= noise:
            return f"{what}: the lower bound is not above the A/A noise of {noise:.3f}x"
        if not _decides(sample, settings) and e.low < settings.no_regress:
            return f"{what}: it may be slower than {settings.no_regress} of the baseline"
        used, allowed = peak_bytes.get(sample.candidate), _allowed(peak_bytes.get(sample.baseline), settings)
        if used is not None and allowed is not None and used > allowed:
            return f"peak memory of {used} bytes, at most {allowed:.0f} are allowed (baseline {sample.baseline})"
    return None


def _allowed(baseline: int | None, settings: Settings) -> float | None:
    return None if baseline is None else max(baseline * settings.memory_limit, baseline + settings.memory_slack_bytes)


def _comparison(sample: Sample, e: Estimate) -> Comparison:
    return Comparison(sample.baseline, sample.candidate, sample.metric, sample.cache, e.speedup, e.low, e.high,
                      e.a_s * 1e3, e.b_s * 1e3, e.blocks)


def _evidence(
    estimates: Sequence[tuple[Sample, Estimate]], noise: Estimate, settings: Settings, peak_bytes: Mapping[str, int],
    floor_s: float | None,
) -> dict[str, Any]:
    return {
        "settings": settings.__dict__, "noise_floor": statistics.noise_floor(noise), "floor_s": floor_s,
        "peak_bytes": dict(peak_bytes),
        "pairs": [{"baseline": s.baseline, "candidate": s.candidate, "metric": s.metric, "cache": s.cache,
                   **e.__dict__} for s, e in estimates],
        "outliers": "winsorised at 20%; none removed",
    }


def measure(
    worker: Caller, *, candidate: Arm, baselines: Sequence[Arm], settings: Settings, lever: Lever, has_gpu: bool,
    secret: str, seed: int, floor_s: float | None = None, decisive: Collection[str] = ("default",),
    others: bool = True,
) -> Measured:
    """Times the candidate's arm against each of `baselines` (which must hold the decisive ones) in a model worker.

    Without a GPU a `kernel` or `region` candidate is not measured, and only warm caches exist. The pair that decides
    comes first, with the A/A control; with `others`, the other metric and cache state follow only if it passed. Rounds
    of growing length stop as soon as more would not change the answer. `seed` draws the bootstrap.
    """
    if lever in ("kernel", "region") and not has_gpu:
        return Measured(_no("no GPU"))
    if not has_gpu:
        settings = replace(settings, cache="warm")
    rng = np.random.default_rng(seed)
    session = _Session(worker, candidate, secret)
    measured = Measured(_no("nothing was timed"))

    def judge() -> Verdict:
        nonlocal measured
        for seconds in statistics.rounds(settings.budget_s):
            session.collect(settings.metric, settings.cache, seconds, baselines, control=True)
            if (objection := session.objection(decisive)) is not None:
                return objection
            measured = _decide(session, settings, rng, floor_s, decisive)
            if _settled(session, settings, rng, decisive):
                break
        states = [(m, c) for m in ("latency", "throughput") for c in (("cold", "warm") if has_gpu else ("warm",))]
        for metric, cache in states if others else ():
            if (metric, cache) != (settings.metric, settings.cache) and measured.verdict.lets_on:
                judges = [b for b in baselines if b["name"] in decisive]
                session.collect(metric, cache, settings.budget_s / 2, judges, control=False)
                if (objection := session.objection(decisive)) is not None:
                    return objection
                measured = _decide(session, settings, rng, floor_s, decisive)
        return measured.verdict

    verdict = judged("performance", judge)
    evidence = {**verdict.evidence, "states": session.states}
    return replace(measured, verdict=replace(verdict, evidence=evidence), compile_s=session.compile_s,
                   failed=session.failed)


class _Session:
    """Samples of all rounds, pooled by pair, metric and cache state."""

    def __init__(self, worker: Caller, candidate: Arm, secret: str) -> None:
        self.worker, self.candidate, self.secret = worker, candidate, secret
        self.samples: dict[tuple[str, str, str, str], Sample] = {}
        self.peak_bytes: dict[str, int] = {}
        self.compile_s: dict[str, float] = {}
        self.states: list[Any] = []
        self.failed: dict[str, str] = {}
        self.wrong: dict[str, str] = {}

    def collect(
        self, metric: str, cache: str, seconds: float, baselines: Sequence[Arm], *, control: bool
    ) -> None:
        """One call of `time_model`. Raises WorkerError, Malformed."""
        arms = [*baselines, self.candidate]
        name = str(self.candidate["name"])
        pairs = [[str(b["name"]), name] for b in baselines]
        if control:
            first = next((b for b in baselines if b["name"] == "default"), baselines[0])
            arms.append({**first, "name": CONTROL})
            pairs.append([str(first["name"]), CONTROL])
        answer = self.worker.call("time_model", {
            "arms": [dict(a) for a in arms], "pairs": pairs, "metric": metric, "cache": cache, "budget_s": seconds,
            "secret": self.secret, "check": True}, timeout=COMPILE_ALLOWANCE_S + 4 * seconds)
        for sample in need(answer, "samples", list):
            a, b = need(sample, "pair", list)
            self.add(Sample(str(a), str(b), metric, cache, _times(sample, "a_s"), _times(sample, "b_s")))
        for arm, size in need(answer, "peak_bytes", Mapping).items():
            if size is not None:
                self.peak_bytes[arm] = max(self.peak_bytes.get(arm, 0), int(number({"n": size}, "n")))
        for arm, spent in (answer.get("compile_s") or {}).items():
            self.compile_s.setdefault(str(arm), number({"n": spent}, "n"))
        self.states += [answer.get("state_before"), answer.get("state_after")]
        self.failed |= {str(arm): str(why) for arm, why in (answer.get("failed") or {}).items()}
        for arm, result in need(answer, "checked", Mapping).items():
            if not need(result, "passed", bool):
                self.wrong[str(arm)] = str(result.get("reason"))
        for arm, count in (answer.get("replaced") or {}).items():
            if number(count, "expected") != number(count, "found"):
                self.wrong[str(arm)] = f"{count.get('found')} of {count.get('expected')} runs were replaced"

    def objection(self, decisive: Collection[str]) -> Verdict | None:
        """What no timing can make good: an arm that does not compile, or does not compute."""
        name = str(self.candidate["name"])
        if name in self.failed:
            return Verdict("performance", Status.FAIL, f"the candidate does not run: {self.failed[name]}")
        if name in self.wrong:
            return Verdict("performance", Status.FAIL, f"the candidate does not compute: {self.wrong[name]}")
        for baseline in [*sorted(decisive), CONTROL]:
            if baseline in self.failed:
                return _no(f"the baseline {baseline} does not run: {self.failed[baseline]}")
        return None

    def add(self, sample: Sample) -> None:
        key = (sample.baseline, sample.candidate, sample.metric, sample.cache)
        before = self.samples.get(key)
        if before is not None:
            sample = replace(sample, a_s=[*before.a_s, *sample.a_s], b_s=[*before.b_s, *sample.b_s])
        self.samples[key] = sample


def _times(sample: object, key: str) -> list[float]:
    """Whole blocks only, so that pooled rounds keep the order a b b a."""
    times = [number({"t": t}, "t", -1.0) for t in need(sample, key, list)]
    return times[: len(times) // 2 * 2]


def _decide(
    session: _Session, settings: Settings, rng: np.random.Generator, floor_s: float | None, decisive: Collection[str]
) -> Measured:
    return decide(tuple(session.samples.values()), settings=settings, rng=rng, peak_bytes=session.peak_bytes,
                  floor_s=floor_s, decisive=decisive)


def _settled(session: _Session, settings: Settings, rng: np.random.Generator, decisive: Collection[str]) -> bool:
    """Whether every pair that decides is."""
    for sample in session.samples.values():
        if sample.baseline in decisive and sample.candidate != CONTROL and _decides(sample, settings):
            try:
                found = statistics.estimate(sample.a_s, sample.b_s, rng, confidence=settings.confidence)
            except ValueError:
                return False
            if not statistics.settled(found, settings.min_gain):
                return False
    return True
