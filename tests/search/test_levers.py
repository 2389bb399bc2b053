from __future__ import annotations

import pytest
import torch._inductor.config as inductor

from kernelopt_bot.compiler.program import Graph, Kernel, Program, Step
from kernelopt_bot.contract import options as contract
from kernelopt_bot.device.profile import Profile, Roofs, StepProfile
from kernelopt_bot.search import levers
from kernelopt_bot.search.levers import Device

ROOFS = Roofs("", "", 1e12, {}, 1 << 20, 100, "assumed")


def program(vendor: tuple[str, ...] = (), kernels: tuple[tuple[str, dict[str, int]], ...] = ()) -> Program:
    steps: list[Step] = []
    made: dict[str, Kernel] = {}
    for name in vendor:
        steps.append(Step(0, len(steps), "vendor", name, "call", (1, 1)))
    for heuristic, sizes in kernels:
        name = f"kernel_{len(steps)}"
        made[name] = Kernel(name, name, "", "h", heuristic, {}, (), sizes)
        steps.append(Step(0, len(steps), "kernel", name, "call", (1, 1)))
    return Program("t", "cuda", (Graph(0, "", (), (), tuple(steps), made),), "2.13.0", "3.7.1", "x")


def profile(gap: float | None) -> Profile:
    return Profile(ROOFS, 100.0, 90.0, gap, ())


FULL = program(("extern_kernels.convolution", "extern_kernels.addmm"),
               (("pointwise", {"x": 8}), ("reduction", {"x": 8, "r0_": 65536}), ("persistent_reduction", {"r0_": 32}),
                ("pointwise", {"x": 8}), ("pointwise", {"x": 8})))


def names(device: Device, given: Program) -> list[str]:
    return [name for c in levers.dispatch(given, None, device) for name in c.options]


@pytest.mark.parametrize("device", ["cuda", "cpu"])
def test_only_allowed_options_that_differ_from_the_default_are_proposed(device: Device) -> None:
    defaults = inductor.get_config_copy()
    found = [*levers.dispatch(FULL, None, device), *levers.launch(FULL, None, device)]
    assert len(found) > 8 and len({c.id for c in found}) == len(found)
    for candidate in found:
        assert contract.check(candidate.lever, candidate.options, device) == []
        assert any(defaults[name] != value for name, value in candidate.options.items()), candidate.options
        assert candidate.rationale and candidate.technique


@pytest.mark.parametrize(("given", "asked", "left_out"), [
    (program(("extern_kernels.convolution",)), "layout_optimization", "coordinate_descent_tuning"),
    (program((), (("persistent_reduction", {"r0_": 32}),)), "unroll_reductions_threshold", "layout_optimization"),
    (program((), (("pointwise", {"x": 8}),)), "triton.prefer_nd_tiling", "triton.cooperative_reductions"),
])
def test_the_facts_of_the_program_decide(given: Program, asked: str, left_out: str) -> None:
    found = names("cuda", given)
    assert asked in found and left_out not in found


def test_an_empty_program_asks_for_nothing() -> None:
    for device in ("cuda", "cpu"):
        assert not levers.dispatch(program(), None, device) and not levers.launch(program(), None, device)


def test_cheap_ones_come_first() -> None:
    found = names("cuda", FULL)
    assert found[0] == "layout_optimization"
    assert found.index("max_autotune_gemm") > len(found) * 0.7


def test_launch_levers_follow_the_measured_gap() -> None:
    assert levers.launch(FULL, profile(0.5), "cuda")[0].options == {"triton.cudagraphs": True}
    assert levers.launch(FULL, profile(0.5), "cpu")[0].options == {"cpp_wrapper": True}
    assert levers.launch(FULL, profile(None), "cpu")
    assert not levers.launch(FULL, profile(0.001), "cuda")


def test_combining_keeps_the_earlier_on_a_conflict() -> None:
    found = {c.technique: c for c in levers.dispatch(FULL, None, "cuda")}
    first, second = found["unroll_reductions_threshold=32"], found["unroll_reductions_threshold=1"]
    other = found["layout_optimization=False"]
    both = levers.combine("dispatch", [first, second, other], "cuda")
    assert both is not None
    assert both.options == {"unroll_reductions_threshold": 32, "layout_optimization": False}
    assert levers.combine("dispatch", [first], "cuda") is None and levers.combine("dispatch", [], "cuda") is None


def measured(call_us: float, *steps: tuple[str, float, float]) -> Profile:
    """Steps as (kind, time, floor) in microseconds."""
    return Profile(ROOFS, call_us, None, 0.0, tuple(
        StepProfile(0, n, "s", kind, time, 0, None, floor, time / floor, time - floor)
        for n, (kind, time, floor) in enumerate(steps)))


def asked(given: Program, found: Profile) -> set[str]:
    return {name for c in levers.dispatch(given, found, "cuda") for name in c.options}


def test_nothing_is_compiled_for_what_the_steps_cannot_save() -> None:
    single = program((), (("reduction", {"x": 8, "r0_": 65536}),))
    assert asked(single, measured(100.0, ("kernel", 90.0, 89.5))) == set(), "at its floor"
    assert {"split_reductions", "coordinate_descent_tuning"} <= asked(single, measured(100.0, ("kernel", 90.0, 60.0)))


def test_several_kernels_may_become_fewer_and_vendor_calls_faster_whatever_their_floors() -> None:
    given = program(("extern_kernels.convolution",), (("pointwise", {"x": 8}),) * 4)
    at_floor = measured(100.0, ("vendor", 50.0, 1.0), *[("kernel", 10.0, 9.9)] * 4)
    found = asked(given, at_floor)
    assert {"layout_optimization", "aggressive_fusion"} <= found and "triton.prefer_nd_tiling" not in found
    small = measured(1000.0, ("vendor", 950.0, 1.0), *[("kernel", 1.0, 0.9)] * 4)
    assert "layout_optimization" in asked(given, small) and "aggressive_fusion" not in asked(given, small)
