"""Kernels in the form that Inductor emits, and candidates, all ours and small."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

from kernelopt_bot.contract.candidate import Launch, Parameter, Plan

IMPORTS = """
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
"""
WRAPPERS = Path(__file__).parents[2] / "data" / "wrappers"
_DEVICE = ("DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, "
           "regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, "
           "warp_size=32)")


def inductor_kernel(body: str, signature: dict[str, str], hints: dict[str, int], kind: str = "pointwise",
                    mutated: tuple[str, ...] = ()) -> str:
    """A kernel named `baseline` with Inductor's decorators; `body` is indented by four spaces."""
    parameters = ", ".join(f"{n}: tl.constexpr" if t == "constexpr" else n for n, t in signature.items())
    divisible = {(i,): [["tt.divisibility", 16]] for i, t in enumerate(signature.values()) if t.startswith("*")}
    meta = f"'signature': {signature!r}, 'device': {_DEVICE}, 'constants': {{}}, 'configs': [{divisible!r}]"
    inductor = {
        "grid_type": "Grid1D", "kernel_name": "baseline", "mutated_arg_names": list(mutated), "no_x_dim": False,
        "num_load": 1, "num_store": 1, "num_reduction": 0 if kind == "pointwise" else 1, "autotune_hints": set(),
    }
    extra = "" if kind == "pointwise" else "    reduction_hint=ReductionHint.INNER,\n"
    return f"""{IMPORTS}
from torch._inductor.runtime import triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint, TileHint
triton_helpers.set_driver_to_gpu()

@triton_heuristics.{kind}(
    size_hints={hints!r},
{extra}    filename=__file__,
    triton_meta={{{meta}}},
    inductor_meta={inductor!r},
)
@triton.jit
def baseline({parameters}):
{body}
"""


ROWS, COLUMNS = 13, 96

SOFTMAX = inductor_kernel(
    f"""\
    xnumel = {ROWS}
    r0_numel = {COLUMNS}
    R0_BLOCK: tl.constexpr = 128
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + {COLUMNS}*xindex), r0_mask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask & xmask, tmp1, float("-inf"))
    tmp4 = triton_helpers.max2(tmp3, 1)[:, None].to(tl.float32)
    tmp5 = tmp0 - tmp4
    tmp6 = libdevice.exp(tmp5)
    tmp7 = tl.broadcast_to(tmp6, [XBLOCK, R0_BLOCK])
    tmp9 = tl.where(r0_mask & xmask, tmp7, 0)
    tmp10 = tl.sum(tmp9, 1)[:, None].to(tl.float32)
    tmp11 = (tmp6 / tmp10)
    tl.store(out_ptr2 + (r0_index + {COLUMNS}*xindex), tmp11, r0_mask & xmask)
""",
    {"in_ptr0": "*fp32", "out_ptr2": "*fp32", "xnumel": "i32", "r0_numel": "i32", "XBLOCK": "constexpr"},
    {"x": 16, "r0_": 128}, "persistent_reduction",
)

SCALE_IN_PLACE = inductor_kernel(
    """\
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_out_ptr0 + (xindex), xmask)
    tmp1 = tl.load(in_ptr0 + (xindex % 7), xmask, eviction_policy='evict_last')
    tmp2 = tmp0 * tmp1
    tl.store(in_out_ptr0 + (xindex), tmp2, xmask)
""",
    {"in_out_ptr0": "*fp32", "in_ptr0": "*fp32", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 1024},
    mutated=("in_out_ptr0",),
)

GATHER_BF16 = inductor_kernel(
    """\
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:]
    xmask = xindex < xnumel
    tmp0 = tl.load(in_ptr0 + (xindex // 8), xmask)
    tl.device_assert(((0 <= tmp0) & (tmp0 < 20)) | ~(xmask), "index out of bounds: 0 <= tmp0 < 20")
    tmp1 = tl.load(in_ptr1 + (xindex % 8 + 8*tmp0), xmask).to(tl.float32)
    tmp2 = tmp1 * tmp1
    tmp3 = tmp2 + tmp1
    tl.store(out_ptr0 + (xindex), tmp3, xmask)
""",
    {"in_ptr0": "*i64", "in_ptr1": "*bf16", "out_ptr0": "*bf16", "xnumel": "i32", "XBLOCK": "constexpr"}, {"x": 512},
)

SOFTMAX_BODY = """
@triton.jit
def rows(in_ptr0, out_ptr2, n, COLUMNS: tl.constexpr, WIDTH: tl.constexpr, XBLOCK: tl.constexpr):
    x = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    r = tl.arange(0, WIDTH)[None, :]
    mask = (x < n) & (r < COLUMNS)
    value = tl.load(in_ptr0 + r + COLUMNS * x, mask, other=float("-inf"))
    top = triton_helpers.max2(value, 1)[:, None]
    power = tl.where(mask, libdevice.exp(value - top), 0.0)
    total = tl.sum(power, 1)[:, None]
    tl.store(out_ptr2 + r + COLUMNS * x, power / total, mask)
"""


def softmax_plan(block: int = 4, grid: str = "") -> dict[str, Any]:
    return Plan(
        (Parameter("in_ptr0", "*fp32"), Parameter("out_ptr2", "*fp32", written=True, read=False),
         Parameter("xnumel", "i32")),
        (Launch("rows", (grid or f"cdiv(xnumel, {block})",), ("in_ptr0", "out_ptr2", "xnumel"),
                {"COLUMNS": COLUMNS, "WIDTH": 128, "XBLOCK": block}),),
    ).to_json()


def kernels_of(wrapper: Path) -> dict[str, str]:
    """Triton kernel sources of a wrapper's text by global name."""
    found = {}
    for node in ast.parse(wrapper.read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(attr="triton"), args=args)):
                found[name] = ast.literal_eval(args[1])
    return found
