"""Which pieces stay in a stack when a lever's are left out."""

from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.search.sets import SETS, only
from kernelopt_bot.search.stack import Stack, Stage
from tests.report.results import kernel

LAYOUT = OptionsCandidate("d", "dispatch", {"layout_optimization": False}, "layout")
GRAPHS = OptionsCandidate("l", "launch", {"triton.cudagraphs": True, "layout_optimization": True}, "graphs")
KERNEL = AdoptedKernel(kernel("k1"))
REGION = AdoptedKernel(replace(kernel("k2"), lever="region"))


def stages() -> list[Stage]:
    dispatch = Stack().with_options(LAYOUT)
    launch = dispatch.with_options(GRAPHS)
    return [Stage("dispatch", dispatch, 1, ""), Stage("launch", launch, 1, ""),
            Stage("kernel", launch.with_kernels((KERNEL,)), 1, ""),
            Stage("region", launch.with_kernels((KERNEL, REGION)), 1, "")]


def test_an_option_that_launch_changed_has_its_earlier_value_back() -> None:
    stack = only(stages(), SETS["kernel+dispatch"])
    assert dict(stack.options) == {"layout_optimization": False} and stack.kernels == (KERNEL,)


def test_region_kernels_are_left_out_by_their_lever() -> None:
    stack = only(stages(), SETS["kernel+dispatch+launch"])
    assert dict(stack.options) == {"layout_optimization": True, "triton.cudagraphs": True}
    assert stack.kernels == (KERNEL,)


def test_all_levers_give_the_whole_stack() -> None:
    whole = stages()[-1].stack
    stack = only(stages(), {"dispatch", "launch", "kernel", "region"})
    assert (dict(stack.options), stack.kernels) == (dict(whole.options), whole.kernels)


def test_nothing_but_launch_leaves_nothing() -> None:
    launch = Stage("launch", Stack().with_options(GRAPHS), 1, "")
    assert only([launch], SETS["kernel+dispatch"]).empty
