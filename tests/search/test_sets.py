"""Which pieces stay in a stack when a lever's are left out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.search import capturing
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.sets import SETS, measure, only
from kernelopt_bot.search.stack import Stack, Stage
from tests.report.results import kernel
from tests.search.conftest import TARGET

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


CHUNKS = OptionsCandidate("c", "dispatch", {"cpp.min_chunk_size": 65536}, "chunks")
WRAPPER = OptionsCandidate("w", "launch", {"cpp_wrapper": True}, "wrapper")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_set_is_timed_apart_and_one_that_cannot_be_built_is_left_out(session: Callable[..., Session]) -> None:
    made = session()
    dispatch = Stack().with_options(CHUNKS)
    stages = [Stage("dispatch", dispatch, 1, ""), Stage("launch", dispatch.with_options(WRAPPER), 1, "")]
    written: list[Stack] = []
    with made.model_worker("model") as worker:
        versions = worker.call("hello", {}, timeout=120)
        load(made, worker, TARGET)
        program = capturing.capture(worker, TARGET.name, "cpu", "cpu", versions, save=False).program

        def write(worker: Worker, stack: Stack) -> Stack:
            written.append(stack)
            environment = {"torch": versions["torch"], "triton": versions["triton"], "device": "cpu"}
            return stack.written(made.artifacts / "set", program, TARGET.entry, environment)

        def refuse(worker: Worker, stack: Stack) -> Stack:
            raise InputError("kernel k replaces nothing")

        found = measure(made, worker, stages, Settings(budget_s=2.0), made.secret, write)
        assert measure(made, worker, stages, Settings(budget_s=2.0), made.secret, refuse) == {}
        assert measure(made, worker, stages[:1], Settings(budget_s=2.0), made.secret, refuse) == {}
    assert [dict(s.options) for s in written] == [{"cpp.min_chunk_size": 65536}]
    gain = found["kernel+dispatch"]
    assert set(found) == {"kernel+dispatch"} and gain.baseline == "default" and (gain.metric, gain.cache) == (
        "latency", "warm")
    assert 0.0 < gain.low <= gain.speedup <= gain.high
