"""SwiGLU's activation, silu(gate) * up, elementwise over both halves of one product."""

import torch
import triton
import triton.language as tl


@triton.jit
def _silu(x):
    return x / (1.0 + tl.exp(-x))


# kernelopt: inputs=make_inputs
@triton.jit
def swiglu_kernel(gate_up_ptr, out_ptr, n_cols, n_elements, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n_elements
    row, col = offsets // n_cols, offsets % n_cols
    gate = tl.load(gate_up_ptr + row * (2 * n_cols) + col, mask=mask, other=0.0).to(tl.float32)
    up = tl.load(gate_up_ptr + row * (2 * n_cols) + n_cols + col, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + offsets, _silu(gate) * up, mask=mask)


def swiglu(gate_up: torch.Tensor) -> torch.Tensor:
    n_rows, n_cols = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty((n_rows, n_cols), dtype=gate_up.dtype, device=gate_up.device)
    grid = lambda meta: (triton.cdiv(out.numel(), meta["BLOCK"]),)  # noqa: E731
    swiglu_kernel[grid](gate_up, out, n_cols, out.numel(), BLOCK=1024)
    return out


def make_inputs(device="cpu"):
    n_rows, n_cols = (24, 344) if torch.device(device).type == "cpu" else (8192, 11008)
    gate_up = torch.randn(n_rows, 2 * n_cols, device=device)
    return [lambda: swiglu(gate_up)]
