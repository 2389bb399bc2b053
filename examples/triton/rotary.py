"""Rotary position embedding of queries, halves rotated against each other; one program a position and head."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def rotary_kernel(x_ptr, cos_ptr, sin_ptr, out_ptr, n_heads, HALF: tl.constexpr):
    position = tl.program_id(0)
    head = tl.program_id(1)
    cols = tl.arange(0, HALF)
    start = (position * n_heads + head) * 2 * HALF
    cos = tl.load(cos_ptr + position * HALF + cols)
    sin = tl.load(sin_ptr + position * HALF + cols)
    first = tl.load(x_ptr + start + cols).to(tl.float32)
    second = tl.load(x_ptr + start + HALF + cols).to(tl.float32)
    tl.store(out_ptr + start + cols, first * cos - second * sin)
    tl.store(out_ptr + start + HALF + cols, second * cos + first * sin)


def rotary(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """`x` (positions, heads, width), `cos` and `sin` (positions, width / 2)."""
    n_positions, n_heads, width = x.shape
    out = torch.empty_like(x)
    rotary_kernel[(n_positions, n_heads)](x, cos, sin, out, n_heads, HALF=width // 2, num_warps=4)
    return out


def make_inputs(device="cpu"):
    n_positions, n_heads, width = (20, 4, 64) if torch.device(device).type == "cpu" else (16384, 32, 128)
    x = torch.randn(n_positions, n_heads, width, device=device)
    angle = torch.randn(n_positions, width // 2, device=device)
    return [lambda: rotary(x, angle.cos(), angle.sin())]
