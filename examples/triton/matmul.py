"""A product of half-precision matrices in tiles, neighbouring tiles in groups so that they share what L2 holds."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.autotune(
    configs=[
        triton.Config({"BLOCK_M": 64, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8}, num_warps=4, num_stages=3),
        triton.Config({"BLOCK_M": 128, "BLOCK_N": 64, "BLOCK_K": 32, "GROUP": 8}, num_warps=4, num_stages=4),
    ],
    key=["m", "n", "k"],
)
@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, m, n, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr,
):
    pid = tl.program_id(0)
    across, down = tl.cdiv(n, BLOCK_N), tl.cdiv(m, BLOCK_M)
    group = pid // (GROUP * across)
    height = min(down - group * GROUP, GROUP)
    row = group * GROUP + (pid % (GROUP * across)) % height
    col = (pid % (GROUP * across)) // height
    rows = row * BLOCK_M + tl.arange(0, BLOCK_M)
    cols = col * BLOCK_N + tl.arange(0, BLOCK_N)
    inner = tl.arange(0, BLOCK_K)
    total = tl.zeros([BLOCK_M, BLOCK_N], dtype=tl.float32)
    for start in range(0, k, BLOCK_K):
        depth = start + inner
        left = (rows[:, None] < m) & (depth[None, :] < k)
        right = (depth[:, None] < k) & (cols[None, :] < n)
        a = tl.load(a_ptr + rows[:, None] * k + depth[None, :], mask=left, other=0.0)
        b = tl.load(b_ptr + depth[:, None] * n + cols[None, :], mask=right, other=0.0)
        total = tl.dot(a, b, total)
    tl.store(c_ptr + rows[:, None] * n + cols[None, :], total.to(tl.float16),
             mask=(rows[:, None] < m) & (cols[None, :] < n))


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    m, k = a.shape
    n = b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    matmul_kernel[lambda meta: (triton.cdiv(m, meta["BLOCK_M"]) * triton.cdiv(n, meta["BLOCK_N"]),)](a, b, c, m, n, k)
    return c


def make_inputs(device="cpu"):
    m, n, k = (96, 80, 64) if torch.device(device).type == "cpu" else (4096, 4096, 4096)
    a = torch.randn(m, k, device=device, dtype=torch.float16)
    b = torch.randn(k, n, device=device, dtype=torch.float16)
    return [lambda: matmul(a, b)]
