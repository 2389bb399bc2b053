"""Real cubins for a GPU that is not there."""

from __future__ import annotations

from typing import Any

import pytest

from kernelopt_bot.contract.candidate import Launch, Parameter, Plan
from kernelopt_bot.sandbox.client import WorkerFailed
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import (
    COLUMNS,
    IMPORTS,
    ROWS,
    SOFTMAX,
    SOFTMAX_BODY,
    WRAPPERS,
    kernels_of,
    softmax_plan,
)

INFERENCE = kernels_of(WRAPPERS / "h200_torch2.11_inference.py")
BACKWARD = kernels_of(WRAPPERS / "h200_torch2.11_backward.py")
ARCH = {"arch": 90}
INTEGERS = {"xnumel": ROWS, "r0_numel": COLUMNS}


def test_a_captured_layer_norm_compiles_as_on_the_gpu(compiler: KernelWorker) -> None:
    source = INFERENCE["triton_per_fused_native_layer_norm_0"]
    answer = compiler.call("compile_baseline", {"source": source, "target": ARCH})
    assert answer["grid_type"] == "Grid1D"
    assert answer["parameters"] == ["in_ptr0", "in_ptr1", "in_ptr2", "out_ptr2", "xnumel", "r0_numel"]
    facts = answer["configs"][0]["facts"]
    assert 16 <= facts["registers"] <= 64 and facts["spills"] == 0 and facts["shared"] > 0
    assert facts["instructions"]["LDG"] >= 3 and facts["instructions"]["MUFU"] >= 1


def test_every_configuration_of_the_heuristics_is_compiled(compiler: KernelWorker) -> None:
    source = INFERENCE["triton_poi_fused_addmm_gelu_view_1"]
    configs = compiler.call("compile_baseline", {"source": source, "target": ARCH})["configs"]
    assert len({c["constexprs"]["XBLOCK"] for c in configs}) == len(configs) == 2


@pytest.mark.parametrize("name", BACKWARD)
def test_backward_kernels_compile(compiler: KernelWorker, name: str) -> None:
    answer = compiler.call("compile_baseline", {"source": BACKWARD[name], "target": ARCH})
    assert all(c["facts"]["cubin_bytes"] > 1000 for c in answer["configs"])


def candidate(
    compiler: KernelWorker, body: str = SOFTMAX_BODY, plan: dict[str, Any] | None = None
) -> list[dict[str, Any]]:
    answer = compiler.call("compile_candidate", {
        "source": IMPORTS + body, "plan": plan or softmax_plan(), "integers": INTEGERS, "target": ARCH,
        "baseline": SOFTMAX})
    return list(answer["launches"])


def test_a_candidate_compiles_to_facts(compiler: KernelWorker) -> None:
    (facts,) = candidate(compiler)
    assert facts["registers"] > 0 and facts["cubin_bytes"] > 1000 and facts["instructions"]["STG"] >= 1


def test_spills_are_seen(compiler: KernelWorker) -> None:
    # 8 rows of 1024 over 32 threads: 256 values a thread, which has 255 registers
    plan = softmax_plan(8)
    plan["launches"][0]["constexprs"].update(WIDTH=1024, COLUMNS=1024)
    plan["launches"][0]["num_warps"] = 1
    (facts,) = candidate(compiler, plan=plan)
    assert facts["spills"] > 0 and facts["instructions"]["STL"] > 0


@pytest.mark.parametrize(("precision", "flagged"), [("tf32", True), ("ieee", False)])
def test_a_weaker_matrix_instruction_is_counted(compiler: KernelWorker, precision: str, flagged: bool) -> None:
    body = f"""
@triton.jit
def product(a, b, out, N: tl.constexpr):
    i = tl.arange(0, N)[:, None]
    j = tl.arange(0, N)[None, :]
    x = tl.load(a + N * i + j)
    y = tl.load(b + N * i + j)
    tl.store(out + N * i + j, tl.dot(x, y, input_precision="{precision}"))
"""
    plan = Plan(
        (Parameter("a", "*fp32", divisible=True), Parameter("b", "*fp32", divisible=True),
         Parameter("out", "*fp32", True, False, True)),
        (Launch("product", ("1",), ("a", "b", "out"), {"N": 64}),),
    )
    answer = compiler.call("compile_candidate", {"source": IMPORTS + body, "plan": plan.to_json(), "integers": {},
                                                 "target": ARCH})
    assert (answer["launches"][0]["instructions"].get("TF32", 0) > 0) is flagged


@pytest.mark.parametrize(("old", "new", "words"), [
    ("tl.sum(power, 1)", "tl.sum(missing, 1)", "missing is not defined"),
    ("WIDTH: tl.constexpr, XBLOCK", "XBLOCK", "constexpr"),
    ("def rows", "def other", "rows"),
    ("power / total, mask)", "tl.zeros([3], tl.float32), mask)", "power of 2|shape"),
])
def test_a_compile_error_carries_the_compilers_words(compiler: KernelWorker, old: str, new: str, words: str) -> None:
    assert old in SOFTMAX_BODY
    with pytest.raises(WorkerFailed, match=words) as caught:
        candidate(compiler, SOFTMAX_BODY.replace(old, new))
    assert caught.value.kind == "compile_failed"


def test_the_plans_types_must_be_the_kernels(compiler: KernelWorker) -> None:
    plan = softmax_plan()
    plan["parameters"][0]["type"] = "*fp16"
    with pytest.raises(WorkerFailed, match=r"in_ptr0 is \*fp32"):
        candidate(compiler, plan=plan)


def test_an_interpreting_worker_does_not_compile(interpreter: KernelWorker) -> None:
    with pytest.raises(WorkerFailed, match="interprets kernels"):
        interpreter.call("compile_baseline", {"source": SOFTMAX, "target": ARCH})
