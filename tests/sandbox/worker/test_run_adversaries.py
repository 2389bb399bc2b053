"""Candidates for a run of two kernels that do wrong what only a run can do wrong. The run: `t = 2 x`, `y = t + x`."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelopt_bot.contract.candidate import Launch, Parameter, Plan, Scratch
from kernelopt_bot.sandbox.client import WorkerFailed
from kernelopt_bot.sandbox.worker import tensors
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import IMPORTS, inductor_kernel

N = 700
HEAD = """\
    xnumel = 700
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    x0 = xindex
"""
DOUBLE = inductor_kernel(HEAD + """\
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tmp0 * 2.0
    tl.store(out_ptr0 + (x0), tmp1, xmask)
""", {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 1024})
ADD = inductor_kernel(HEAD + """\
    tmp0 = tl.load(in_ptr0 + (x0), xmask)
    tmp1 = tl.load(in_ptr1 + (x0), xmask)
    tmp2 = tmp0 + tmp1
    tl.store(out_ptr0 + (x0), tmp2, xmask)
""", {"in_ptr0": "*fp32", "in_ptr1": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 1024})
SCALE = inductor_kernel(HEAD + """\
    tmp0 = tl.load(in_out_ptr0 + (x0), xmask)
    tmp1 = tmp0 * 2.0
    tl.store(in_out_ptr0 + (x0), tmp1, xmask)
""", {"in_out_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 1024}, mutated=("in_out_ptr0",))
BODY = """
@triton.jit
def fused(p0, p1, p2, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(p0 + i, i < n)
    tl.store(p1 + i, x * 2.0, i < n)
    tl.store(p2 + i, x * 2.0 + x, i < n)
"""


def buffer(name: str, role: str, old: bool) -> dict[str, Any]:
    return {"name": name, "type": "*fp32", "divisible": True, "role": role, "old": old}


def run(worker: KernelWorker, body: str = BODY, middle: str = "through", scratch: tuple[Scratch, ...] = (),
        names: tuple[str, ...] = ("p0", "p1", "p2"), **also: Any) -> dict[str, Any]:
    """`p0` is x, `p1` is t (`middle` is its role), `p2` is y."""
    known = {"p0": Parameter("p0", "*fp32"), "p1": Parameter("p1", "*fp32", True, False),
             "p2": Parameter("p2", "*fp32", True, False)}
    plan = Plan(tuple(known[n] for n in names if n in known), (
        Launch("fused", ("6",), (*names, str(N)), {"BLOCK": 128}),), scratch)
    buffers = [buffer("p0", "through", True), buffer("p1", middle, False), buffer("p2", "through", False)]
    meta = {"meta": tensors.meta(torch.empty(N)), "stats": {"min": -3, "max": 3, "mean": 0, "std": 1, "finite": True}}
    return worker.call("check_step", {
        "baseline": {"kernels": [{"source": DOUBLE, "arguments": ["p0", "p1", N]},
                                 {"source": ADD, "arguments": ["p1", "p0", "p2", N]}], "buffers": buffers},
        "candidate": {"source": IMPORTS + body, "plan": plan.to_json()},
        "arguments": [worker.save(torch.randn(N)), meta, meta], "lane": "interpret", "secret": "s",
        "families": ["captured", "normal", "cancelling"], "precision": {"m": 2, "k": 4}, **also})


def reason(answer: dict[str, Any]) -> str:
    return str(answer["families"][-1]["reason"])


def test_both_live_outs_written(interpreter: KernelWorker) -> None:
    answer = run(interpreter)
    assert [f["passed"] for f in answer["families"]] == [True] * 3, reason(answer)
    assert {o["name"] for o in answer["families"][0]["outputs"]} == {"p1", "p2"} and answer["float64"] == "used"


def test_an_intermediate_that_is_read_later_must_be_written(interpreter: KernelWorker) -> None:
    answer = run(interpreter, BODY.replace("    tl.store(p1 + i, x * 2.0, i < n)\n", ""))
    assert f"{4 * N} bytes that the baseline writes were not written" in reason(answer) and not answer["covered"]


def test_part_of_an_intermediate_is_not_enough(interpreter: KernelWorker) -> None:
    answer = run(interpreter, BODY.replace("x * 2.0, i < n)", "x * 2.0, i < n - 1)"))
    assert "4 bytes that the baseline writes were not written" in reason(answer)


def test_an_intermediate_alone_is_not_enough(interpreter: KernelWorker) -> None:
    answer = run(interpreter, BODY.replace("    tl.store(p2 + i, x * 2.0 + x, i < n)\n", ""))
    assert f"{4 * N} bytes that the baseline writes were not written" in reason(answer)


def test_a_wrong_intermediate_is_caught_though_the_end_is_right(interpreter: KernelWorker) -> None:
    answer = run(interpreter, BODY.replace("tl.store(p1 + i, x * 2.0,", "tl.store(p1 + i, x * 2.5,"))
    assert "p1" in reason(answer)


def test_an_inner_buffer_is_neither_compared_nor_there(interpreter: KernelWorker) -> None:
    fused = BODY.replace("p0, p1, p2", "p0, p2").replace("    tl.store(p1 + i, x * 2.0, i < n)\n", "")
    answer = run(interpreter, fused, "inside", names=("p0", "p2"))
    assert [f["passed"] for f in answer["families"]] == [True] * 3
    assert [o["name"] for o in answer["families"][0]["outputs"]] == ["p2"]
    answer = run(interpreter, fused.replace("x * 2.0 + x", "x * 2.0"), "inside", names=("p0", "p2"))
    assert "p2" in reason(answer)


def test_what_nobody_wrote_into_scratch_is_no_result(interpreter: KernelWorker) -> None:
    body = BODY.replace("    tl.store(p1 + i, x * 2.0, i < n)\n", "    t = tl.load(p1 + i, i < n)\n").replace(
        "x * 2.0 + x", "t + x")
    answer = run(interpreter, body.replace("p1", "t0"), "inside", (Scratch("t0", str(N), "float32"),),
                 ("p0", "t0", "p2"))
    assert "non-finite class" in reason(answer)


def in_place(worker: KernelWorker, role: str, stores: bool, launches: int = 1) -> dict[str, Any]:
    """`x` is doubled in place, then `y = x + x`; what is in `x` afterwards counts unless it is dying."""
    store = "    tl.store(p0 + i, x * 2.0, i < n)\n" if stores else ""
    body = f"""
@triton.jit
def fused(p0, p1, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(p0 + i, i < n)
{store}    tl.store(p1 + i, x * 4.0, i < n)
"""
    plan = Plan((Parameter("p0", "*fp32", stores), Parameter("p1", "*fp32", True, False)),
                (Launch("fused", ("6",), ("p0", "p1", str(N)), {"BLOCK": 128}),) * launches)
    meta = {"meta": tensors.meta(torch.empty(N)), "stats": {"min": -3, "max": 3, "mean": 0, "std": 1, "finite": True}}
    return worker.call("check_step", {
        "baseline": {"kernels": [{"source": SCALE, "arguments": ["p0", N]},
                                 {"source": ADD, "arguments": ["p0", "p0", "p1", N]}],
                     "buffers": [buffer("p0", role, True), buffer("p1", "through", False)]},
        "candidate": {"source": IMPORTS + body, "plan": plan.to_json()},
        "arguments": [worker.save(torch.randn(N)), meta], "lane": "interpret", "secret": "s",
        "families": ["captured", "normal"], "precision": {"m": 2, "k": 4}})


def test_a_dying_buffer_need_not_be_written_and_must_not_be(interpreter: KernelWorker) -> None:
    assert all(f["passed"] for f in in_place(interpreter, "dying", False)["families"])
    assert "an input was changed" in reason(in_place(interpreter, "dying", True))


def test_an_in_out_buffer_that_lives_on_must_be_written(interpreter: KernelWorker) -> None:
    assert all(f["passed"] for f in in_place(interpreter, "through", True)["families"])
    assert "p0" in reason(in_place(interpreter, "through", False))
    assert not all(f["passed"] for f in in_place(interpreter, "through", True, launches=2)["families"])


@pytest.mark.parametrize(("change", "words"), [
    ({"arguments": []}, "the run has 2 buffers, got 0"),
    ({"baseline": {"kernels": [], "buffers": []}}, "a run of no kernels"),
    ({"baseline": {"kernels": [{"source": SCALE, "arguments": ["p7", N]}], "buffers": []}}, "no buffer p7"),
    ({"baseline": {"kernels": [], "buffers": [buffer("p0", "outside", True)]}}, "no role 'outside'"),
    ({"baseline": {"kernels": [], "buffers": [{}]}}, "'name' is missing"),
])
def test_what_does_not_fit_together_is_a_bad_request(
        interpreter: KernelWorker, change: dict[str, Any], words: str) -> None:
    params = {"baseline": {"kernels": [{"source": SCALE, "arguments": ["p0", N]}, ],
                           "buffers": [buffer("p0", "through", True), buffer("p1", "through", False)]},
              "candidate": {"source": "", "plan": {"parameters": [], "launches": []}}, "arguments": [],
              "lane": "interpret", "secret": "s", "families": ["normal"], "precision": {"m": 2, "k": 4}}
    with pytest.raises(WorkerFailed, match=words) as caught:
        interpreter.call("check_step", {**params, **change})
    assert caught.value.kind == "bad_request"


def test_a_float64_reference_of_the_run_does_not_round_in_between(interpreter: KernelWorker) -> None:
    """With t stored in half precision the baseline's own error shows against the promoted run."""
    half = {**{k: v for k, v in buffer("p1", "inside", False).items()}, "type": "*fp16"}
    to_half = DOUBLE.replace("'out_ptr0': '*fp32'", "'out_ptr0': '*fp16'")
    from_half = ADD.replace("'in_ptr0': '*fp32'", "'in_ptr0': '*fp16'").replace(
        "tl.load(in_ptr0 + (x0), xmask)", "tl.load(in_ptr0 + (x0), xmask).to(tl.float32)")
    meta = {"meta": tensors.meta(torch.empty(N)), "stats": {"min": -3, "max": 3, "mean": 0, "std": 1, "finite": True}}
    inner = {**meta, "meta": tensors.meta(torch.empty(N, dtype=torch.float16))}
    fused = BODY.replace("p0, p1, p2", "p0, p2").replace("    tl.store(p1 + i, x * 2.0, i < n)\n", "")
    answer = run(interpreter, fused, names=("p0", "p2"), baseline={
        "kernels": [{"source": to_half, "arguments": ["p0", "p1", N]},
                    {"source": from_half, "arguments": ["p1", "p0", "p2", N]}],
        "buffers": [buffer("p0", "through", True), half, buffer("p2", "through", False)]},
        arguments=[interpreter.save(torch.randn(N)), inner, meta])
    first = answer["families"][0]
    output = first["outputs"][0]
    assert first["passed"] and output["rmse_baseline"] > 100 * output["rmse_candidate"], output
