from __future__ import annotations

from dataclasses import replace

import pytest

from kernelopt_bot.compiler.program import Graph, Kernel, Program, Step
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.sites import configured, places

ROOFS = Roofs("", "", 1e12, {}, 1 << 20, 100, "assumed")


def kernel(name: str, heuristic: str = "pointwise") -> Kernel:
    return Kernel(name, name, "source", name, heuristic, {}, (), {"x": 8})


def step(index: int, name: str, run: str, kind: str = "kernel") -> Step:
    return Step(0, index, kind, name, "call", (index, index), hash=run)  # type: ignore[arg-type]


STEPS = (step(0, "small", "s"), step(1, "large", "l"), step(2, "small", "s"),
         step(3, "extern_kernels.mm", "m", "vendor"), step(4, "cpp", "c"), step(5, "unseen", "u"))
GRAPH = Graph(0, "", (), (), STEPS, {
    "small": kernel("small"), "large": kernel("large"), "cpp": kernel("cpp", "cpp"), "unseen": kernel("unseen")})
RAW = {"calls": [{"line": n, "name": STEPS[n].name} for n in (0, 1, 2, 3, 4)]}
CAPTURED = Captured(Program("t", "cuda", (GRAPH,), "2.13.0", "3.7.1", "x"), (RAW,), 0, ())


def timed(index: int, time_us: float, floor_us: float) -> StepProfile:
    return StepProfile(0, index, STEPS[index].name, "kernel", time_us, 1024, None, floor_us, time_us / floor_us,
                       time_us - floor_us)


def profile(*steps: StepProfile) -> Profile:
    return Profile(ROOFS, 100.0, 90.0, 0.1, steps)


def test_one_place_for_each_run_counted_over_all_its_calls() -> None:
    found = {p.site.kernel.name: p for p in places(CAPTURED, None, ROOFS)}
    assert set(found) == {"small", "large"}, "no vendor call, no C++ kernel, nothing that was not recorded"
    assert found["small"].calls == 2 and found["small"].call == RAW["calls"][0]
    assert found["large"].calls == 1 and found["large"].savings_us == 0.0


@pytest.mark.parametrize(("small_us", "large_us", "first"), [(9.0, 12.0, "small"), (3.0, 12.0, "large")])
def test_ranked_by_what_all_calls_can_save(small_us: float, large_us: float, first: str) -> None:
    found = places(CAPTURED, profile(timed(0, small_us, 1.0), timed(1, large_us, 1.0)), ROOFS)
    assert found[0].site.kernel.name == first
    assert {p.site.kernel.name: p.savings_us for p in found} == {"small": 2 * (small_us - 1), "large": large_us - 1}


def test_what_is_at_its_floor_is_left_alone() -> None:
    at_floor, near = timed(0, 1.0, 0.96), timed(1, 1.0, 0.90)
    assert [p.site.kernel.name for p in places(CAPTURED, profile(at_floor, near), ROOFS)] == ["large"]
    unmeasured = replace(at_floor, time_us=None, headroom=1.0)
    assert len(places(CAPTURED, profile(unmeasured, near), ROOFS)) == 2


def test_the_baselines_configurations_come_from_the_worker() -> None:
    place = places(CAPTURED, None, ROOFS)[0]
    site = configured(place, {"configs": [{"constexprs": {"XBLOCK": 128}, "num_warps": 4, "num_stages": 1}]})
    assert site.configs[0].constexprs == {"XBLOCK": 128} and site.step == place.site.step
    with pytest.raises(KeyError):
        configured(place, {"configs": [{"constexprs": {}}]})
