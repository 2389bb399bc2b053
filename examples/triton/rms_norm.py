"""RMS norm over rows of any length, in a loop over blocks; the autotuner's list is what its author tried."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.autotune(
    configs=[
        triton.Config({"BLOCK": 256}, num_warps=4),
        triton.Config({"BLOCK": 1024}, num_warps=8),  # long rows
    ],
    key=["n_cols"],
)
@triton.jit
def rms_norm_kernel(x_ptr, weight_ptr, out_ptr, n_cols, eps, BLOCK: tl.constexpr):
    """y = x / sqrt(mean(x^2) + eps) * weight"""
    row = tl.program_id(0)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        x = tl.load(x_ptr + row * n_cols + cols, mask=cols < n_cols, other=0.0).to(tl.float32)
        total += x * x
    scale = 1.0 / tl.sqrt(tl.sum(total, axis=0) / n_cols + eps)
    for start in range(0, n_cols, BLOCK):
        cols = start + tl.arange(0, BLOCK)
        mask = cols < n_cols
        x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
        weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
        tl.store(out_ptr + row * n_cols + cols, x * scale * weight, mask=mask)


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float = 1e-6) -> torch.Tensor:
    out = torch.empty_like(x)
    rms_norm_kernel[(x.shape[0],)](x, weight, out, x.shape[1], eps)
    return out


def make_inputs(device="cpu"):
    n_rows, n_cols = (32, 768) if torch.device(device).type == "cpu" else (16384, 4096)
    x, weight = torch.randn(n_rows, n_cols, device=device), torch.rand(n_cols, device=device)
    return [lambda: rms_norm(x, weight)]
