"""Gate 2 on the interpreter: honest candidates pass, each kind of wrong one is caught and named."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from kernelopt_bot.contract.candidate import Launch, Parameter, Plan, Scratch
from kernelopt_bot.sandbox.client import WorkerFailed
from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.families import FAMILIES
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import (
    COLUMNS,
    GATHER_BF16,
    IMPORTS,
    ROWS,
    SCALE_IN_PLACE,
    SOFTMAX,
    SOFTMAX_BODY,
    inductor_kernel,
    softmax_plan,
)

STATS = {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0, "finite": True}


def meta(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, **stats: float) -> dict[str, Any]:
    return {"meta": tensors.meta(torch.empty(shape, dtype=dtype)), "stats": {**STATS, **stats}}


def softmax(
    worker: KernelWorker, body: str = SOFTMAX_BODY, plan: dict[str, Any] | None = None, **also: Any
) -> dict[str, Any]:
    torch.manual_seed(0)
    params = {
        "baseline": {"source": SOFTMAX, "integers": {}},
        "candidate": {"source": IMPORTS + body, "plan": plan or softmax_plan()},
        "arguments": [worker.save(torch.randn(ROWS, COLUMNS)), meta((ROWS, COLUMNS)), ROWS, COLUMNS],
        "lane": "interpret", "secret": "test", "families": list(FAMILIES), "precision": {"m": 2, "k": 4},
    }
    return worker.call("check_step", {**params, **also})


@pytest.mark.parametrize("block", [1, 4, 16])
def test_an_honest_candidate_passes_every_family(interpreter: KernelWorker, block: int) -> None:
    answer = softmax(interpreter, plan=softmax_plan(block))
    assert [f["family"] for f in answer["families"]] == list(FAMILIES)
    assert all(f["passed"] for f in answer["families"]), answer["families"]
    assert answer["inputs_untouched"] and answer["guards_intact"] and answer["covered"] and answer["deterministic"]
    assert answer["float64"] == "used" and answer["not_run"] == []
    normal = answer["families"][1]["outputs"][0]
    assert 0 < normal["rmse_baseline"] < 1e-7 and normal["name"] == "out_ptr2"


@pytest.mark.parametrize(("old", "new", "reason"), [
    ("power / total, mask", "power * 0, mask", "RMSE"),
    ("tl.sum(power, 1)", "tl.sum(power.to(tl.bfloat16), 1)", "RMSE"),
    ("value - top", "value", "non-finite class"),
    ("power / total", "tl.where(x == n - 1, 0.5, power / total)", "RMSE"),
    ("    tl.store(out", "    tl.store(in_ptr0 + r + COLUMNS * x, value, mask & (x > 999))\n"
     "    tl.store(in_ptr0 + r + COLUMNS * x, value + 1, mask)\n    tl.store(out", "an input was changed"),
])
def test_a_wrong_result_is_rejected(interpreter: KernelWorker, old: str, new: str, reason: str) -> None:
    assert old in SOFTMAX_BODY
    answer = softmax(interpreter, SOFTMAX_BODY.replace(old, new))
    last = answer["families"][-1]
    assert not last["passed"] and all(f["passed"] for f in answer["families"][:-1])
    assert reason in last["reason"]
    assert answer["inputs_untouched"] is ("in_ptr0 + r + COLUMNS * x, value" not in new)


NORMALISE = inductor_kernel(
    f"""\
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    r0_index = tl.arange(0, 128)[None, :]
    mask = (r0_index < {COLUMNS}) & (xindex < xnumel)
    tmp0 = tl.load(in_ptr0 + (r0_index + {COLUMNS}*xindex), mask, other=0.0)
    tmp1 = tl.sum(tl.where(mask, tmp0, 0), 1)[:, None] / {COLUMNS}.0
    tmp2 = tmp0 - tmp1
    tmp3 = tl.sum(tl.where(mask, tmp2 * tmp2, 0), 1)[:, None] / {COLUMNS}.0
    tl.store(out_ptr0 + (r0_index + {COLUMNS}*xindex), 1.0 + tmp2 * libdevice.rsqrt(tmp3 + 1e-05), mask)
""",
    {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32", "XBLOCK": "constexpr"},
    {"x": 16, "r0_": 128}, "persistent_reduction")
OTHER_MEAN = f"""
@triton.jit
def candidate(in_ptr0, out_ptr0):
    x = tl.program_id(0)
    r = tl.arange(0, 128)
    mask = r < {COLUMNS}
    value = tl.load(in_ptr0 + r + {COLUMNS} * x, mask, other=0.0)
    mean = tl.sum(value, 0) / {COLUMNS}.0
    value = tl.where(mask, value - mean + SHARE * mean, 0.0)
    scale = libdevice.rsqrt(tl.sum(value * value, 0) / {COLUMNS}.0 + 1e-05)
    tl.store(out_ptr0 + r + {COLUMNS} * x, 1.0 + value * scale, mask)
"""


@pytest.mark.parametrize(("share", "passed"), [(0.0, True), (2.0**-28, True), (2.0**-18, False)])
def test_the_rounding_of_a_mean_of_equal_values_is_allowed_for_as_the_baselines_own_next_to_them(
    interpreter: KernelWorker, share: float, passed: bool
) -> None:
    """A GPU's fast division, fused into the subtraction, gives a mean that is off by less than its last place, seen
    on an H200; the interpreter's is exact."""
    plan = Plan((Parameter("in_ptr0", "*fp32", False, True), Parameter("out_ptr0", "*fp32", True, False),
                 Parameter("xnumel", "i32", False, True), Parameter("r0_numel", "i32", False, True)),
                (Launch("candidate", ("xnumel",), ("in_ptr0", "out_ptr0"), {}),)).to_json()
    answer = interpreter.call("check_step", {
        "baseline": {"source": NORMALISE, "integers": {}}, "lane": "interpret", "secret": "test",
        "candidate": {"source": IMPORTS + OTHER_MEAN.replace("SHARE", repr(share)), "plan": plan},
        "arguments": [interpreter.save(torch.randn(ROWS, COLUMNS)), meta((ROWS, COLUMNS)), ROWS, COLUMNS],
        "families": ["constant", "normal"], "precision": {"m": 2, "k": 5}})
    constant = answer["families"][0]
    assert constant["passed"] is passed, constant
    output = constant["outputs"][0]
    assert output["rmse_baseline"] == 0.0 < output["near_rmse"] <= output["near_max"]
    assert (output["least_k_rmse"] == 0.0) is passed
    assert all(f["outputs"][0]["near_rmse"] == 0.0 for f in answer["families"][1:])


def test_a_grid_that_covers_part_of_the_output_is_caught(interpreter: KernelWorker) -> None:
    answer = softmax(interpreter, plan=softmax_plan(4, "xnumel // 4"))
    assert not answer["covered"] and answer["guards_intact"]
    assert f"{COLUMNS * 4} bytes that the baseline writes were not written" in answer["families"][-1]["reason"]


@pytest.mark.parametrize(("old", "new", "what"), [
    ("power / total, mask", "power / total, r < COLUMNS", "a store touches"),
    ('mask, other=float("-inf")', "r < COLUMNS", "a load touches"),
])
def test_an_access_out_of_bounds_is_caught(interpreter: KernelWorker, old: str, new: str, what: str) -> None:
    with pytest.raises(WorkerFailed, match=what) as caught:
        softmax(interpreter, SOFTMAX_BODY.replace(old, new))
    assert caught.value.kind == "runtime_failed"


def test_a_result_from_uninitialised_scratch_is_caught(interpreter: KernelWorker) -> None:
    body = SOFTMAX_BODY.replace("def rows(in_ptr0, out_ptr2,", "def rows(in_ptr0, out_ptr2, extra,").replace(
        "power / total,", "power / total + tl.load(extra) * 0,")
    plan = softmax_plan()
    plan["scratch"] = [{"name": "s", "elements": "num_sms", "dtype": "float32", "zeroed": False}]
    plan["launches"][0]["arguments"] = ["in_ptr0", "out_ptr2", "s", "xnumel"]
    assert "non-finite class" in softmax(interpreter, body, plan)["families"][0]["reason"]
    plan["scratch"][0]["zeroed"] = True
    answer = softmax(interpreter, body, plan)
    assert all(f["passed"] for f in answer["families"]) and answer["scratch_bytes"] == 4 * 132


def test_two_launches_through_scratch_pass(interpreter: KernelWorker) -> None:
    body = """
@triton.jit
def sums(in_ptr0, s, n, COLUMNS: tl.constexpr, WIDTH: tl.constexpr):
    x = tl.program_id(0)
    r = tl.arange(0, WIDTH)
    value = tl.load(in_ptr0 + r + COLUMNS * x, r < COLUMNS, other=float("-inf"))
    top = tl.max(value, 0)
    tl.store(s + 2 * x, top)
    tl.store(s + 2 * x + 1, tl.sum(libdevice.exp(value - top), 0))

@triton.jit
def divide(in_ptr0, s, out_ptr2, n, COLUMNS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < n * COLUMNS
    value = tl.load(in_ptr0 + i, mask)
    row = i // COLUMNS
    top = tl.load(s + 2 * row, mask)
    tl.store(out_ptr2 + i, libdevice.exp(value - top) / tl.load(s + 2 * row + 1, mask, other=1.0), mask)
"""
    plan = Plan(
        (Parameter("in_ptr0", "*fp32"), Parameter("out_ptr2", "*fp32", True, False), Parameter("xnumel", "i32")),
        (Launch("sums", ("xnumel",), ("in_ptr0", "s", "xnumel"), {"COLUMNS": COLUMNS, "WIDTH": 128}),
         Launch("divide", (f"cdiv(xnumel * {COLUMNS}, 512)",), ("in_ptr0", "s", "out_ptr2", "xnumel"),
                {"COLUMNS": COLUMNS, "BLOCK": 512})),
        (Scratch("s", "2 * xnumel", "float32"),),
    )
    families = [f for f in FAMILIES if f != "extreme"]
    answer = softmax(interpreter, body, plan.to_json(), families=families)
    assert [f["passed"] for f in answer["families"]] == [True] * len(families), answer["families"][-1]["reason"]


def in_place(worker: KernelWorker, body: str, values: torch.Tensor) -> dict[str, Any]:
    plan = Plan(
        (Parameter("in_out_ptr0", "*fp32", True), Parameter("in_ptr0", "*fp32"), Parameter("xnumel", "i32")),
        (Launch("scale", ("cdiv(xnumel, 64)",), ("in_out_ptr0", "in_ptr0", "xnumel"), {"BLOCK": 64}),),
    )
    return worker.call("check_step", {
        "baseline": {"source": SCALE_IN_PLACE, "integers": {"xnumel": values.numel()}},
        "candidate": {"source": IMPORTS + body, "plan": plan.to_json()},
        "arguments": [worker.save(values), meta((7,)), values.numel()], "lane": "interpret", "secret": "s",
        "families": ["captured", "normal"], "precision": {"m": 2, "k": 4},
    })


SCALE_BODY = """
@triton.jit
def scale(p, q, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(p + i, tl.load(p + i, i < n) * tl.load(q + i % 7, i < n), i < n)
"""


def test_an_in_out_buffer_starts_afresh_for_every_run(interpreter: KernelWorker) -> None:
    answer = in_place(interpreter, SCALE_BODY, torch.randn(333))
    assert [f["passed"] for f in answer["families"]] == [True, True]
    assert answer["families"][0]["outputs"][0]["bit_equal"]


def test_skipped_work_on_an_in_out_buffer_is_caught(interpreter: KernelWorker) -> None:
    answer = in_place(interpreter, SCALE_BODY.replace("i < n)\n", "i < n - 1)\n"), torch.randn(333))
    assert not answer["families"][0]["passed"]


GATHER_BODY = """
@triton.jit
def gather(index, table, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    at = tl.load(index + i // 8, i < n)
    value = tl.load(table + i % 8 + 8 * at, i < n).to(tl.float32)
    tl.store(out + i, value * value + value, i < n)
"""


@pytest.mark.parametrize("saved", [True, False])
def test_indices_stay_in_bounds_and_bfloat16_is_exact(interpreter: KernelWorker, saved: bool) -> None:
    n, index = 8 * 37, torch.randint(0, 20, (37,))
    plan = Plan(
        (Parameter("in_ptr0", "*i64"), Parameter("in_ptr1", "*bf16"), Parameter("out_ptr0", "*bf16", True, False),
         Parameter("xnumel", "i32")),
        (Launch("gather", ("cdiv(xnumel, 128)",), ("in_ptr0", "in_ptr1", "out_ptr0", "xnumel"), {"BLOCK": 128}),),
    )
    answer = interpreter.call("check_step", {
        "baseline": {"source": GATHER_BF16, "integers": {}},
        "candidate": {"source": IMPORTS + GATHER_BODY, "plan": plan.to_json()},
        "arguments": [interpreter.save(index) if saved else meta((37,), torch.int64, min=0, max=19),
                      interpreter.save(torch.randn(20, 8).bfloat16()), meta((n,), torch.bfloat16), n],
        "lane": "interpret", "secret": "s", "families": list(FAMILIES), "precision": {"m": 2, "k": 4},
    })
    assert all(f["passed"] for f in answer["families"]), answer["families"][-1]["reason"]
    error = answer["families"][1]["outputs"][0]
    assert error["dtype"] == "bfloat16" and 1e-4 < error["rmse_baseline"] < 1e-2


def test_the_budget_cuts_families_and_says_so(interpreter: KernelWorker) -> None:
    answer = softmax(interpreter, budget_s=0.0)
    assert answer["families"] == []
    assert [n[0] for n in answer["not_run"]] == list(FAMILIES) and "budget" in answer["not_run"][0][2]


@pytest.mark.parametrize(("change", "kind", "words"), [
    ({"lane": "cuda"}, "bad_request", "needs a GPU"),
    ({"arguments": [1, 2]}, "bad_request", "takes 4 arguments"),
    ({"baseline": {"source": "x = 1", "integers": {}}}, "compile_failed", "no kernel"),
    ({"candidate": {"source": "import nonsense_module", "plan": softmax_plan()}}, "compile_failed", "rows"),
])
def test_what_cannot_be_checked_is_an_error(
    interpreter: KernelWorker, change: dict[str, Any], kind: str, words: str
) -> None:
    with pytest.raises(WorkerFailed, match=words) as caught:
        softmax(interpreter, **change)
    assert caught.value.kind == kind
