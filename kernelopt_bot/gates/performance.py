"""Gate 4: is it faster, by interleaved timings, a paired interval and an A/A control?"""

from __future__ import annotations

import statistics as plain
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from kernelopt_bot.contract.candidate import Lever
from kernelopt_bot.gates import statistics
from kernelopt_bot.gates.answers import Caller, Malformed, judged
from kernelopt_bot.gates.sampling import CONTROL as CONTROL
from kernelopt_bot.gates.sampling import Arm, Samples
from kernelopt_bot.gates.sampling import Sample as Sample
from kernelopt_bot.gates.statistics import Estimate
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import WorkerError
from kernelopt_bot.search.result import Comparison, Noise

FLOOR_SHARE = 0.95
"""Below this share of the physical floor a time is an error of measurement or a cheat."""
PROFILED_CALLS = 10

DECIDING_SHARE, OTHER_SHARE = 0.6, 0.13
"""Of the measuring time: the metric and cache state that decide, and each of the three others."""
DECIDING_ROUNDS, OTHER_ROUNDS = 3, 2
STATES = tuple((metric, cache) for metric in ("latency", "throughput") for cache in ("cold", "warm"))


@dataclass(frozen=True)
class Settings:
    """`config.gates`, as far as this gate needs it; `budget_s` bounds the sampling of all metrics and cache states."""

    min_gain: float = 1.03
    metric: str = "latency"
    cache: str = "cold"
    no_regress: float = 0.97
    confidence: float = 0.95
    memory_limit: float = 1.10
    memory_slack_bytes: int = 256 << 20
    budget_s: float = 8.0


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
    return judge(estimates, settings=settings, peak_bytes=peak_bytes, floor_s=floor_s, decisive=decisive)


def judge(
    estimates: Sequence[tuple[Sample, Estimate]], *, settings: Settings, peak_bytes: Mapping[str, int],
    floor_s: float | None, decisive: Collection[str] = ("default",),
) -> Measured:
    """As `decide`, over estimates."""
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
    if (low := below_floor(pairs, floor_s)) is not None and floor_s:
        return f"{_under(low.b_s, floor_s)}: it cannot have moved the bytes"
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


def below_floor(pairs: Sequence[tuple[Sample, Estimate]], floor_s: float | None) -> Estimate | None:
    """The first pair whose candidate, and not its baseline, is below FLOOR_SHARE of the floor.

    A baseline below it says that the floor is wrong: bytes were counted that nobody needs to move.
    """
    return next((e for _, e in pairs if floor_s and e.b_s < FLOOR_SHARE * floor_s <= e.a_s), None)


def _under(seconds: float, floor_s: float) -> str:
    return f"{seconds * 1e6:.1f} us is below {FLOOR_SHARE} of the physical floor of {floor_s * 1e6:.1f} us"


def second_opinion(first_s: float, device_s: Sequence[float], floor_s: float) -> Verdict:
    """The verdict on a time below the floor (seconds a call), given the profiler's device times of single calls.

    Never a pass: if the device itself was busy for less than the floor, the bytes were not moved (fail); if it was busy
    for longer, the two measurements contradict each other (not measured).
    """
    again = plain.median(device_s)
    if again < FLOOR_SHARE * floor_s:
        return Verdict("performance", Status.FAIL, f"{_under(first_s, floor_s)}, and by the profiler the device works "
                       f"for {again * 1e6:.1f} us: it cannot have moved the bytes")
    return _no(f"{_under(first_s, floor_s)}, but by the profiler the device works for {again * 1e6:.1f} us: the timing "
               "is wrong")


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
    comes first, with the A/A control; with `others`, the other metrics and cache states follow, whatever it said.
    Rounds of growing length stop as soon as more would not change the answer. A time below the physical floor is
    measured again by the profiler. `seed` draws the bootstrap.
    """
    if lever in ("kernel", "region") and not has_gpu:
        return Measured(_no("no GPU"))
    if not has_gpu:
        settings = replace(settings, cache="warm")
    samples = Samples(worker, candidate, secret, settings.confidence, np.random.default_rng(seed))
    judges = [b for b in baselines if b["name"] in decisive]
    measured = Measured(_no("nothing was timed"))
    profiled: list[float] = []

    def rounds(metric: str, cache: str, seconds: Sequence[float], threshold: float, against: Sequence[Arm],
               ) -> Verdict | None:
        nonlocal measured
        decides = (metric, cache) == (settings.metric, settings.cache)
        end_s = samples.spent_s + sum(seconds)
        for number, budget in enumerate(seconds):
            samples.collect(metric, cache, budget, against, control=decides, check=decides and number == 0)
            if (objection := samples.objection(decisive)) is not None:
                return objection
            if samples.settled(metric, cache, threshold, decisive) or samples.spent_s > end_s:
                break
        try:
            measured = judge(samples.estimates(), settings=settings, peak_bytes=samples.peak_bytes, floor_s=floor_s,
                             decisive=decisive)
        except ValueError as e:
            measured = Measured(_no(str(e)))
        return None

    def decided() -> Verdict:
        budget = settings.budget_s
        seconds = statistics.rounds(DECIDING_SHARE * budget, count=DECIDING_ROUNDS)
        stopped = rounds(settings.metric, settings.cache, seconds, settings.min_gain, baselines)
        for metric, cache in STATES if others else ():
            if stopped is None and not _left_out(metric, cache, settings, has_gpu):
                stopped = rounds(metric, cache, statistics.rounds(OTHER_SHARE * budget, count=OTHER_ROUNDS),
                                 settings.no_regress, judges)
        if stopped is None and measured.verdict.lets_on and samples.rounds > 1:
            samples.check(judges)
            stopped = samples.objection(decisive)
        return stopped or _again(samples, measured.verdict, floor_s if has_gpu else None, decisive, profiled)

    verdict = judged("performance", decided)
    taken = samples.states_taken()
    named = [{"metric": m, "cache": c, "decides": (m, c) == (settings.metric, settings.cache),
              "state": "measured" if (m, c) in taken else _why_not(m, c, settings, has_gpu, others)} for m, c in STATES]
    evidence = {**verdict.evidence, "states": samples.states, "timer": samples.timer, "measured": named,
                "compile_s": samples.compile_s, "profiler_s": profiled}
    return replace(measured, verdict=replace(verdict, evidence=evidence), compile_s=samples.compile_s,
                   failed=samples.failed)


def _left_out(metric: str, cache: str, settings: Settings, has_gpu: bool) -> str:
    """Why this is no metric and cache state beside the one that decides; '' if it is one."""
    if (metric, cache) == (settings.metric, settings.cache):
        return "it decides"
    return "" if has_gpu or cache == "warm" else "not applicable: a CPU's caches are not emptied"


def _why_not(metric: str, cache: str, settings: Settings, has_gpu: bool, others: bool) -> str:
    why = _left_out(metric, cache, settings, has_gpu)
    if why.startswith("not applicable"):
        return why
    return "not measured" if why or others else "not measured: left to the confirmation"


def _again(samples: Samples, verdict: Verdict, floor_s: float | None, decisive: Collection[str],
           profiled: list[float]) -> Verdict:
    """The verdict, after the profiler has measured a time below the floor a second time."""
    try:
        pairs = [(s, e) for s, e in samples.estimates() if s.baseline in decisive and s.candidate != CONTROL]
    except ValueError:
        return verdict
    low = below_floor(pairs, floor_s)
    if low is None or floor_s is None:
        return verdict
    try:
        profiled += samples.device_times(samples.candidate, PROFILED_CALLS)
    except (WorkerError, Malformed) as e:
        return replace(verdict, reason=f"{verdict.reason} (not measured again: {e})")
    return replace(second_opinion(low.b_s, profiled, floor_s), evidence=verdict.evidence)
