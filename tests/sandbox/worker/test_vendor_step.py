"""Runs that hold a vendor call: a depthwise convolution and its bias, a product and what follows it."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelopt_bot.contract.candidate import Launch, Parameter, Plan
from kernelopt_bot.sandbox.client import WorkerFailed
from kernelopt_bot.sandbox.worker import tensors
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import IMPORTS, inductor_kernel

STATS = {"min": -3, "max": 3, "mean": 0, "std": 1, "finite": True}
BIAS = inductor_kernel("""\
    xnumel = 168
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x2 = xindex
    x1 = xindex // 56
    tmp0 = tl.load(in_out_ptr0 + (x2), xmask)
    tmp1 = tl.load(in_ptr0 + (x1), xmask, eviction_policy='evict_last')
    tmp2 = tmp0 + tmp1
    tl.store(in_out_ptr0 + (x2), tmp2, xmask)
""", {"in_out_ptr0": "*fp32", "in_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 256},
    mutated=("in_out_ptr0",))
DIRECT = """
@triton.jit
def depthwise(p0, p1, p2, p3, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < 168
    channel = i // 56
    y = i // 8 % 7
    x = i % 8
    total = tl.zeros([BLOCK], tl.float32)
    for t in tl.static_range(TAPS):
        value = tl.load(p0 + channel * 90 + (y + t // 3) * 10 + x + t % 3, inside)
        total += value * tl.load(p1 + channel * 9 + t, inside)
    tl.store(p3 + i, total + tl.load(p2 + channel, inside), inside)
"""


def buffer(name: str, role: str = "through", old: bool = True) -> dict[str, Any]:
    return {"name": name, "type": "*fp32", "divisible": True, "role": role, "old": old}


def synthesised(*shape: int) -> dict[str, Any]:
    return {"meta": tensors.meta(torch.empty(shape)), "stats": STATS}


def convolution(worker: KernelWorker, taps: int, **vendor: Any) -> dict[str, Any]:
    """`p3 = convolution(p0, p1, groups=3)`, then `p3 += p2` in place."""
    plan = Plan((Parameter("p0", "*fp32"), Parameter("p1", "*fp32"), Parameter("p2", "*fp32"),
                 Parameter("p3", "*fp32", True, False)),
                (Launch("depthwise", ("2",), ("p0", "p1", "p2", "p3"), {"BLOCK": 128}),))
    call = {"vendor": "extern_kernels.convolution", "arguments": ["p0", "p1"], "result": "p3", "keywords": {
        "bias": None, "stride": [1, 1], "padding": [0, 0], "dilation": [1, 1], "transposed": False,
        "output_padding": [0, 0], "groups": 3}}
    return worker.call("check_step", {
        "baseline": {"kernels": [{**call, **vendor}, {"source": BIAS, "arguments": ["p3", "p2", 168]}],
                     "buffers": [buffer("p0"), buffer("p1"), buffer("p2"), buffer("p3", old=False)]},
        "candidate": {"source": IMPORTS + DIRECT.replace("TAPS", str(taps)), "plan": plan.to_json()},
        "arguments": [worker.save(torch.randn(1, 3, 9, 10)), synthesised(3, 1, 3, 3), synthesised(3),
                      synthesised(1, 3, 7, 8)],
        "lane": "interpret", "secret": "s", "families": ["captured", "normal", "cancelling"],
        "precision": {"m": 2, "k": 4}})


def test_a_direct_kernel_for_a_depthwise_convolution_and_its_bias(interpreter: KernelWorker) -> None:
    answer = convolution(interpreter, 9)
    assert [f["passed"] for f in answer["families"]] == [True] * 3, answer["families"][-1]["reason"]
    assert answer["float64"] == "used" and answer["covered"]
    assert [o["name"] for o in answer["families"][0]["outputs"]] == ["p3"]


def test_a_missing_tap_is_caught(interpreter: KernelWorker) -> None:
    answer = convolution(interpreter, 8)
    assert "p3: " in answer["families"][-1]["reason"] and not answer["families"][-1]["passed"]


@pytest.mark.parametrize(("vendor", "words"), [
    ({"vendor": "os.system"}, "no vendor function 'os.system'"), ({"result": ""}, "needs `out` or a result"),
    ({"arguments": ["p0", "p8"]}, "no buffer p8"),
])
def test_what_no_vendor_call_is(interpreter: KernelWorker, vendor: dict[str, Any], words: str) -> None:
    with pytest.raises(WorkerFailed, match=words) as caught:
        convolution(interpreter, 9, **vendor)
    assert caught.value.kind == "bad_request"


def test_a_product_into_a_buffer_that_lives_only_inside(interpreter: KernelWorker) -> None:
    """`t0 = p0 @ p1.T`, `y = 2 t0`: the weights are seen through a transposed view."""
    body = """
@triton.jit
def product(p0, p1, p2, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    total = tl.zeros([BLOCK], tl.float32)
    for k in range(24):
        total += tl.load(p0 + i // 7 * 24 + k, i < 35) * tl.load(p1 + i % 7 * 24 + k, i < 35)
    tl.store(p2 + i, total * 2.0, i < 35)
"""
    double = inductor_kernel("""\
    xnumel = 35
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tl.store(out_ptr0 + (x0), tmp0 * 2.0, xmask)
""", {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 64})
    plan = Plan((Parameter("p0", "*fp32"), Parameter("p1", "*fp32"), Parameter("p2", "*fp32", True, False)),
                (Launch("product", ("1",), ("p0", "p1", "p2"), {"BLOCK": 64}),))
    transposed = {"buffer": "p1", "shape": [24, 7], "stride": [1, 24]}
    answer = interpreter.call("check_step", {
        "baseline": {"kernels": [
            {"vendor": "extern_kernels.mm", "arguments": ["p0", transposed], "keywords": {"out": "t0"}},
            {"source": double, "arguments": ["t0", "p2", 35]}],
            "buffers": [buffer("p0"), buffer("p1"), buffer("t0", "inside", False), buffer("p2", old=False)]},
        "candidate": {"source": IMPORTS + body, "plan": plan.to_json()},
        "arguments": [synthesised(5, 24), synthesised(7, 24), synthesised(5, 7), synthesised(5, 7)],
        "lane": "interpret", "secret": "s", "families": ["captured", "normal", "cancelling"],
        "precision": {"m": 2, "k": 4}})
    assert [f["passed"] for f in answer["families"]] == [True] * 3, answer["families"][-1]["reason"]
