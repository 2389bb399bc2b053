import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from kernelopt_bot.gates import performance, statistics
from kernelopt_bot.gates.performance import CONTROL, Measured, Sample, Settings
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.client import Worker, WorkerCrashed
from tests.gates.simulation import MACHINES, Machine

SETTINGS = Settings()
BLOCKS = 250
"""A simulated measurement: 1000 calls, 1 s for a model of 1 ms. `time_model` takes up to 400."""


QUIET = Machine(noise=0.01)


def sample(speedup: float, *, baseline: str = "default", candidate: str = "candidate", metric: str = "latency",
           cache: str = "cold", machine: Machine = QUIET, blocks: int = 60, seed: int = 1) -> Sample:
    a, b = machine.times(np.random.default_rng(seed), speedup, blocks)
    return Sample(baseline, candidate, metric, cache, a.tolist(), b.tolist())


AA = sample(1.0, candidate=CONTROL, seed=2)


def decide(*samples: Sample, peak: Mapping[str, int] | None = None, floor_s: float | None = None,
           **changes: Any) -> Measured:
    return performance.decide(samples, settings=dataclasses.replace(SETTINGS, **changes), peak_bytes=peak or {},
                              rng=np.random.default_rng(3), floor_s=floor_s)


def test_a_clear_gain_passes() -> None:
    found = decide(sample(1.2), AA)
    assert (found.verdict.status, found.verdict.reason) == (Status.PASS, "")
    (comparison,) = found.comparisons
    assert (comparison.baseline, comparison.metric, comparison.cache) == ("default", "latency", "cold")
    assert comparison.low < 1.2 < comparison.high
    assert comparison.baseline_ms == pytest.approx(1.0, rel=0.02)
    assert found.noise is not None
    assert found.noise.low < 1 < found.noise.high


@pytest.mark.parametrize(("samples", "kwargs", "status", "words"), [
    ([sample(1.0), AA], {}, Status.FAIL, "the lower bound is not above 1.03"),
    ([sample(0.9), AA], {}, Status.FAIL, "0.9"),
    ([sample(1.1), sample(1.0, candidate=CONTROL, machine=Machine(noise=0.6))], {}, Status.FAIL, "A/A noise"),
    ([sample(1.1), sample(0.8, candidate=CONTROL)], {}, Status.FAIL, "A/A noise"),
    ([sample(1.2), AA, sample(0.9, metric="throughput")], {}, Status.FAIL, "(throughput, cold): it may be slower"),
    ([sample(1.2), AA, sample(0.9, cache="warm")], {}, Status.FAIL, "(latency, warm): it may be slower"),
    ([sample(1.2), AA, sample(1.0, cache="warm")], {}, Status.PASS, ""),
    ([sample(1.2), AA, sample(0.5, baseline="max-autotune")], {}, Status.PASS, ""),
    ([sample(1.2), AA], {"floor_s": 0.9e-3}, Status.FAIL, "physical floor"),
    ([sample(1.2), AA], {"floor_s": 0.8e-3}, Status.PASS, ""),
    ([sample(1.2), AA], {"floor_s": 5e-3}, Status.PASS, ""),
    ([sample(1.2), AA], {"peak": {"default": 100 << 30, "candidate": 111 << 30}}, Status.FAIL, "peak memory"),
    ([sample(1.2), AA], {"peak": {"default": 100 << 30, "candidate": 109 << 30}}, Status.PASS, ""),
    ([sample(1.2), AA], {"peak": {"default": 1000, "candidate": 255 << 20}}, Status.PASS, ""),
    ([sample(1.2), AA], {"peak": {"default": 1000, "candidate": 257 << 20}}, Status.FAIL, "peak memory"),
    ([sample(1.2)], {}, Status.NOT_MEASURED, "A/A"),
    ([AA], {}, Status.NOT_MEASURED, "against default"),
    ([sample(1.2, baseline="eager"), AA], {}, Status.NOT_MEASURED, "against default"),
    ([sample(1.2, cache="warm"), AA], {}, Status.NOT_MEASURED, "against default"),
    ([sample(1.2, blocks=9), AA], {}, Status.NOT_MEASURED, "9 blocks"),
    ([Sample("default", "candidate", "latency", "cold", [1.0] * 40, [0.0] * 40), AA], {}, Status.NOT_MEASURED,
     "finite"),
    ([sample(1.2, metric="throughput", cache="warm"),
      sample(1.0, candidate=CONTROL, metric="throughput", cache="warm")],
     {"metric": "throughput", "cache": "warm"}, Status.PASS, ""),
])
def test_decide(samples: list[Sample], kwargs: dict[str, Any], status: Status, words: str) -> None:
    found = decide(*samples, **kwargs)
    assert found.verdict.status is status
    assert words in found.verdict.reason


def adopted(draws: np.random.Generator, machine: Machine, speedup: float) -> bool:
    """One whole measurement: the candidate and the control on the same machine."""
    a, b = machine.times(draws, speedup, BLOCKS)
    c, d = machine.times(draws, 1.0, BLOCKS)
    found = performance.decide(
        (Sample("default", "candidate", "latency", "cold", a, b), Sample("default", CONTROL, "latency", "cold", c, d)),
        settings=SETTINGS, peak_bytes={}, rng=draws, floor_s=None)
    return found.verdict.lets_on


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
def test_true_gains_are_found(machine: str) -> None:
    """A true 5% at least 95 times in 100, a true 1.5x always."""
    draws = np.random.default_rng(5)
    assert sum(adopted(draws, MACHINES[machine], 1.05) for _ in range(100)) >= 95
    assert all(adopted(draws, MACHINES[machine], 1.5) for _ in range(10))


@pytest.mark.slow
@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize("speedup", [0.97, 1.0])
def test_what_is_not_faster_is_not_adopted(machine: str, speedup: float) -> None:
    """At most once in 1000 runs on every machine; a fast bound first, since the interval holds the estimate."""
    draws = np.random.default_rng(17)
    wrong = 0
    for _ in range(1000):
        a, b = MACHINES[machine].times(draws, speedup, BLOCKS)
        found = statistics.winsorised_mean(statistics.log_ratios(a, b))
        if np.exp(float(found)) > SETTINGS.min_gain:
            wrong += statistics.estimate(a, b, draws).low > SETTINGS.min_gain
    assert wrong <= 1


class Script:
    """Answers `time_model` with simulated times."""

    def __init__(self, speedups: Mapping[tuple[str, str], float], *, blocks: int = 40, **answer: Any) -> None:
        self.speedups, self.blocks, self.answer = speedups, blocks, answer
        self.asked: list[dict[str, Any]] = []
        self.draws = np.random.default_rng(9)

    def call(self, method: str, params: Mapping[str, Any], *, timeout: float,
             progress: Callable[[dict[str, Any]], None] | None = None) -> dict[str, Any]:
        self.asked.append(dict(params))
        samples = []
        for a, b in params["pairs"]:
            speedup = 1.0 if b == CONTROL else self.speedups.get((params["metric"], params["cache"]), 1.0)
            x, y = Machine(noise=0.02).times(self.draws, speedup, self.blocks)
            samples.append({"pair": [a, b], "a_s": x.tolist(), "b_s": y.tolist()})
        return {"samples": samples, "compile_s": {"default": 1.0}, "peak_bytes": {"default": 10, "candidate": 10},
                "state_before": None, "state_after": None, "failed": {}, "checked": {}, "replaced": {}, **self.answer}


CANDIDATE: dict[str, Any] = {"name": "candidate", "kind": "artifact", "mode": None, "options": {}, "artifact": "/a"}
BASELINES: list[dict[str, Any]] = [{"name": n, "kind": "compile", "mode": None, "options": {}, "artifact": None}
             for n in ("default", "max-autotune")]
ALL = {(m, c): 1.3 for m in ("latency", "throughput") for c in ("cold", "warm")}


def measure(script: Any, *, gpu: bool = True, **changes: Any) -> Measured:
    return performance.measure(script, **{
        "candidate": CANDIDATE, "baselines": BASELINES, "settings": SETTINGS, "lever": "kernel", "has_gpu": gpu,
        "secret": "s", "seed": 1, **changes})


def test_measure_takes_all_states_once_it_may_pass() -> None:
    script = Script(ALL)
    found = measure(script)
    assert found.verdict.status is Status.PASS
    assert [(p["metric"], p["cache"]) for p in script.asked] == [
        ("latency", "cold"), ("latency", "warm"), ("throughput", "cold"), ("throughput", "warm")]
    assert len(found.comparisons) == 5
    assert found.peak_bytes == {"default": 10, "candidate": 10}
    assert [a["name"] for a in script.asked[1]["arms"]] == ["default", "candidate"]
    assert [a["name"] for a in script.asked[0]["arms"]] == ["default", "max-autotune", "candidate", CONTROL]


def test_measure_stops_early_when_it_is_hopeless() -> None:
    script = Script({("latency", "cold"): 0.8})
    assert measure(script).verdict.status is Status.FAIL
    assert len(script.asked) == 1


def test_measure_goes_on_where_it_is_undecided() -> None:
    script = Script({("latency", "cold"): 1.03}, blocks=12)
    measured = measure(script)
    assert [p["budget_s"] for p in script.asked[:2]] == [pytest.approx(10 / 3), pytest.approx(20 / 3)]
    assert measured.verdict.evidence["pairs"][0]["blocks"] == 24


def test_a_state_that_regresses_is_found() -> None:
    found = measure(Script({**ALL, ("throughput", "warm"): 0.9}))
    assert found.verdict.status is Status.FAIL
    assert "(throughput, warm)" in found.verdict.reason


def test_no_gpu() -> None:
    for lever in ("kernel", "region"):
        found = measure(Script(ALL), gpu=False, lever=lever)
        assert (found.verdict.status, found.verdict.reason) == (Status.NOT_MEASURED, "no GPU")
    found = measure(script := Script(ALL), gpu=False, lever="launch")
    assert found.verdict.status is Status.PASS
    assert {p["cache"] for p in script.asked} == {"warm"}


@pytest.mark.parametrize(("answer", "status", "words"), [
    ({"failed": {"candidate": "unsupported: x"}}, Status.FAIL, "does not run"),
    ({"failed": {"default": "unsupported: x"}}, Status.NOT_MEASURED, "default does not run"),
    ({"failed": {"max-autotune": "x"}}, Status.PASS, ""),
    ({"checked": {"candidate": {"passed": False, "reason": "zeros"}}}, Status.FAIL, "zeros"),
    ({"checked": {"default": {"passed": True, "reason": ""}}}, Status.PASS, ""),
    ({"replaced": {"candidate": {"expected": 2, "found": 1}}}, Status.FAIL, "1 of 2 runs"),
    ({"checked": None}, Status.NOT_MEASURED, "checked"),
    ({"samples": [{"pair": ["default", "candidate"], "a_s": ["x"], "b_s": []}]}, Status.NOT_MEASURED, "'x'"),
])
def test_arms_that_do_not_work(answer: dict[str, Any], status: Status, words: str) -> None:
    found = measure(Script(ALL, **answer))
    assert found.verdict.status is status
    assert words in found.verdict.reason


def test_a_crash_is_a_failure() -> None:
    class Crash:
        def call(self, method: str, params: Any, *, timeout: float, progress: Any = None) -> dict[str, Any]:
            raise WorkerCrashed("it was ended by SIGSEGV")

    assert measure(Crash()).verdict.status is Status.FAIL


@pytest.mark.slow
def test_real_worker_does_not_adopt_the_same_code(model: Worker) -> None:
    same = {**BASELINES[0], "name": "candidate", "options": {"split_reductions": True}}
    found = performance.measure(
        model, candidate=same, baselines=BASELINES[:1], settings=dataclasses.replace(SETTINGS, budget_s=1.0),
        lever="dispatch", has_gpu=False, secret="s", seed=1)
    assert found.verdict.status in (Status.FAIL, Status.NOT_MEASURED)
    assert found.noise is not None or "blocks" in found.verdict.reason
