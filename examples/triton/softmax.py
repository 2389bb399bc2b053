"""Row softmax: one program a row, the row in registers. The launcher chooses the block, the warps are a guess."""

import torch
import triton
import triton.language as tl


@triton.jit
def _softmax_kernel(out_ptr, x_ptr, row_stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * row_stride + cols, mask=mask, other=-float("inf")).to(tl.float32)
    x = x - tl.max(x, axis=0)  # no overflow for large inputs
    numerator = tl.exp(x)
    y = numerator / tl.sum(numerator, axis=0)
    out_ptrs = out_ptr + row * n_cols + cols
    tl.store(out_ptrs, y, mask=mask)


def softmax(x: torch.Tensor) -> torch.Tensor:
    """Over the last dimension of a matrix whose rows may be apart."""
    n_rows, n_cols = x.shape
    out = torch.empty((n_rows, n_cols), dtype=x.dtype, device=x.device)
    _softmax_kernel[(n_rows,)](
        out, x, x.stride(0), n_cols,
        BLOCK=triton.next_power_of_2(n_cols),
        num_warps=4,
    )
    return out


# What it is used with: twice as many short rows as long ones.
# kernelopt: inputs=make_inputs
def make_inputs(device="cpu"):
    few, many = ((64, 200), (16, 1000)) if torch.device(device).type == "cpu" else ((32768, 1024), (4096, 16384))
    short, long = torch.randn(*few, device=device), torch.randn(*many, device=device)
    return [lambda: softmax(short), lambda: softmax(short), lambda: softmax(long)]
