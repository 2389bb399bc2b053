"""One kernel as Inductor writes it (row sums of 64 x 48), an honest candidate for it, and dishonest ones."""

from typing import Any

from kernelopt_bot.compiler.program import Argument, Kernel, Step, TensorMeta

ROWS, COLUMNS = 64, 48

BASELINE = """
import triton
import triton.language as tl

from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
from torch._inductor.runtime.hints import AutotuneHint, ReductionHint, TileHint, DeviceProperties
triton_helpers.set_driver_to_gpu()

@triton_heuristics.persistent_reduction(
    size_hints={'x': 64, 'r0_': 64},
    reduction_hint=ReductionHint.INNER,
    filename=__file__,
    triton_meta={'signature': {'in_ptr0': '*fp32', 'out_ptr0': '*fp32', 'xnumel': 'i32', 'r0_numel': 'i32', 'XBLOCK': 'constexpr'}, 'device': DeviceProperties(type='cuda', index=0, multi_processor_count=132, cc=90, major=9, regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=32), 'constants': {}, 'native_matmul': False, 'enable_fp_fusion': True, 'launch_pdl': False, 'disable_ftz': False, 'configs': [{(0,): [['tt.divisibility', 16]], (1,): [['tt.divisibility', 16]], (2,): [['tt.divisibility', 16]], (3,): [['tt.divisibility', 16]]}]},
    inductor_meta={'grid_type': 'Grid1D', 'kernel_name': 'triton_per_fused_sum_0', 'mutated_arg_names': [], 'optimize_mem': True, 'no_x_dim': None, 'atomic_add_found': False, 'num_load': 1, 'num_store': 1, 'num_reduction': 1, 'autotune_hints': set(), 'tiling_scores': {'x': 0, 'r0_': 12544}, 'backend_hash': 'x', 'assert_indirect_indexing': True, 'autotune_local_cache': False, 'autotune_pointwise': True, 'autotune_remote_cache': None, 'force_disable_caches': False, 'dynamic_scale_rblock': True, 'max_autotune': False, 'max_autotune_pointwise': False, 'min_split_scan_rblock': 256, 'spill_threshold': 16, 'store_cubin': False, 'deterministic': False, 'force_filter_reduction_configs': False, 'mix_order_reduction_allow_multi_stages': False, 'are_deterministic_algorithms_enabled': False}
)
@triton.jit
def triton_per_fused_sum_0(in_ptr0, out_ptr0, xnumel, r0_numel, XBLOCK : tl.constexpr):
    xnumel = 64
    r0_numel = 48
    R0_BLOCK: tl.constexpr = 64
    xoffset = tl.program_id(0) * XBLOCK
    xindex = xoffset + tl.arange(0, XBLOCK)[:, None]
    xmask = xindex < xnumel
    r0_index = tl.arange(0, R0_BLOCK)[None, :]
    r0_mask = r0_index < r0_numel
    tmp0 = tl.load(in_ptr0 + (r0_index + 48*xindex), r0_mask & xmask, other=0.0)
    tmp1 = tl.broadcast_to(tmp0, [XBLOCK, R0_BLOCK])
    tmp3 = tl.where(r0_mask & xmask, tmp1, 0)
    tmp4 = tl.sum(tmp3, 1)[:, None].to(tl.float32)
    tl.store(out_ptr0 + (xindex), tmp4, xmask)
"""  # noqa: E501

CANDIDATE = '''"""Row sums, several rows a program."""
import triton
import triton.language as tl
from torch._inductor.runtime.triton_helpers import libdevice


@triton.jit
def row_sum(in_ptr0, out_ptr0, xnumel, XBLOCK: tl.constexpr):
    rows = tl.program_id(0) * XBLOCK + tl.arange(0, XBLOCK)[:, None]
    columns = tl.arange(0, 64)[None, :]
    mask = (columns < 48) & (rows < xnumel)
    values = tl.load(in_ptr0 + rows * 48 + columns, mask, other=0.0)
    total = tl.sum(values, 1)[:, None]
    tl.store(out_ptr0 + rows, total, rows < xnumel)
'''

DISHONEST = {
    "last rows skipped": ("", "", "total, rows < xnumel - 4", "unwritten"),
    "zeros": ("", "", "total * 0, rows < xnumel", "captured"),
    "half precision": ("total = tl.sum(values, 1)", "total = tl.sum(values.to(tl.bfloat16).to(tl.float32), 1)", "",
                       "captured"),
    "last column dropped": ("columns < 48", "columns < 47", "", "captured"),
    "one row too far": ("out_ptr0 + rows", "out_ptr0 + rows + 1", "", "outside"),
    "first row everywhere": ("rows * 48 + columns, mask", "rows * 0 + columns, mask", "", "captured"),
}
"""Name -> (text, its replacement, the store's new value and mask, a word of the reason)."""


def dishonest(name: str) -> tuple[str, str]:
    """(source, a word of the reason it must be refused with)."""
    old, new, store, word = DISHONEST[name]
    text = CANDIDATE.replace(old, new) if old else CANDIDATE
    return (text.replace("total, rows < xnumel", store) if store else text), word


KERNEL = Kernel(
    "triton_per_fused_sum_0", "triton_per_fused_sum_0", BASELINE, "h", "persistent_reduction",
    {"in_ptr0": "*fp32", "out_ptr0": "*fp32", "xnumel": "i32", "r0_numel": "i32", "XBLOCK": "constexpr"},
    ("out_ptr0",), {"x": 64, "r0_": 64})


def _meta(*shape: int) -> TensorMeta:
    stride = (shape[1], 1) if len(shape) == 2 else (1,)
    count = shape[0] * (shape[1] if len(shape) == 2 else 1)
    return TensorMeta("float32", shape, stride, 0, 4 * count, "cuda:0")


METAS = (_meta(ROWS, COLUMNS), _meta(ROWS))

STEP = Step(0, 0, "kernel", "triton_per_fused_sum_0", "call", (1, 1), "", (
    Argument("in_ptr0", "arg0_1", tensor=METAS[0], buffer="arg0_1"),
    Argument("out_ptr0", "buf0", tensor=METAS[1], buffer="buf0"),
    Argument("xnumel", "64", value=ROWS), Argument("r0_numel", "48", value=COLUMNS)))

STATS = {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0, "finite": True}


def _json(meta: TensorMeta) -> dict[str, Any]:
    return {"dtype": meta.dtype, "shape": list(meta.shape), "stride": list(meta.stride), "offset": 0,
            "storage_bytes": meta.storage_bytes, "device": "cuda:0"}


CALL: dict[str, Any] = {"line": 1, "callee": "triton_per_fused_sum_0", "keywords": {}, "arguments": [
    *({"tensor": _json(m), "value": None, "stats": STATS, "saved": None} for m in METAS),
    *({"tensor": None, "value": v, "stats": None, "saved": None} for v in (ROWS, COLUMNS))]}

INTEGERS = {"xnumel": ROWS, "r0_numel": COLUMNS, "num_sms": 132}

MODEL = """
import torch
from torch import nn

class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.linear = nn.Linear(width, width)

    def forward(self, x):
        return torch.softmax(self.linear(torch.relu(x)), -1) + x.sum(-1, keepdim=True)

def get_inputs():
    return [torch.randn(16, 32)]

def get_init_inputs():
    return [32]
"""
