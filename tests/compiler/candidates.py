"""Candidates of ours for the kernels of `tests/data/wrappers`."""

from __future__ import annotations

from typing import Any

from kernelopt_bot.compiler._runtime import Run, read_wrapper, run_hash

LAYER_NORM = '''\
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice


@triton.jit
def layer_norm(x_ptr, weight_ptr, bias_ptr, y_ptr, rows, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)[:, None]
    column = tl.arange(0, COLUMNS)[None, :]
    mask = row < rows
    x = tl.load(x_ptr + row * COLUMNS + column, mask, other=0.0)
    mean = tl.sum(x, 1)[:, None] / COLUMNS
    centred = x - mean
    variance = tl.sum(centred * centred, 1)[:, None] / COLUMNS
    y = centred * libdevice.rsqrt(variance + 1e-05)
    weight = tl.load(weight_ptr + column)
    bias = tl.load(bias_ptr + column)
    tl.store(y_ptr + row * COLUMNS + column, y * weight + bias, mask)
'''

COLUMN_SUM = '''\
import triton
import triton.language as tl


@triton.jit
def partial_sum(x_ptr, partial_ptr, rows, columns, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    row = tl.program_id(1) * ROWS + tl.arange(0, ROWS)[:, None]
    x = tl.load(x_ptr + row * columns + column, row < rows, other=0.0)
    place = partial_ptr + tl.program_id(1) * columns + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(place, tl.sum(x, 0))


@triton.jit
def final_sum(partial_ptr, y_ptr, columns, PARTS: tl.constexpr, BLOCK: tl.constexpr):
    column = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    part = tl.arange(0, PARTS)[:, None]
    y = tl.sum(tl.load(partial_ptr + part * columns + column), 0)
    tl.store(y_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), y)
'''


def layer_norm_plan(columns: int = 256) -> dict[str, Any]:
    pointers = [("in_ptr0", False), ("in_ptr1", False), ("in_ptr2", False), ("out_ptr2", True)]
    return {
        "parameters": [*({"name": n, "type": "*fp32", "written": w, "read": not w, "divisible": True}
                         for n, w in pointers),
                       *({"name": n, "type": "i32", "written": False, "read": True, "divisible": True}
                         for n in ("xnumel", "r0_numel"))],
        "launches": [{"function": "layer_norm", "grid": ["cdiv(xnumel, 4)"],
                      "arguments": ["in_ptr0", "in_ptr1", "in_ptr2", "out_ptr2", "xnumel"],
                      "constexprs": {"COLUMNS": columns, "ROWS": 4}, "num_warps": 4, "num_stages": 1, "num_ctas": 1,
                      "maxnreg": None}],
        "scratch": []}


def column_sum_plan() -> dict[str, Any]:
    """Sum over the 1024 rows of a (1024, 256) tensor: two of the compiler's kernels, `p0` in and `p1` out."""
    shared = {"num_warps": 4, "num_stages": 1, "num_ctas": 1, "maxnreg": None}
    return {
        "parameters": [{"name": "p0", "type": "*fp32", "written": False, "read": True, "divisible": True},
                       {"name": "p1", "type": "*fp32", "written": True, "read": False, "divisible": True}],
        "scratch": [{"name": "partial", "elements": "16 * xnumel_1", "dtype": "float32", "zeroed": False}],
        "launches": [
            {**shared, "function": "partial_sum", "grid": ["xnumel_1 // 64", "16"],
             "arguments": ["p0", "partial", "1024", "xnumel_1"], "constexprs": {"ROWS": 64, "BLOCK": 64}},
            {**shared, "function": "final_sum", "grid": ["xnumel_1 // 64"], "arguments": ["partial", "p1", "xnumel_1"],
             "constexprs": {"PARTS": 16, "BLOCK": 64}}]}


def layer_norm_run(text: str, columns: int = 256, counts: tuple[int, ...] = (1,)) -> Run:
    """The layer norm of a wrapper, which is its first kernel call."""
    wrapper = read_wrapper(text)
    return Run(run_hash(wrapper.calls[:1], wrapper.kernels), 1, LAYER_NORM, layer_norm_plan(columns), counts, "ln")


def column_sum_run(text: str) -> Run:
    """The first two calls of the backward wrapper: partial sums, and their sum."""
    wrapper = read_wrapper(text)
    return Run(run_hash(wrapper.calls[:2], wrapper.kernels), 2, COLUMN_SUM, column_sum_plan(), (1,), "sum")
