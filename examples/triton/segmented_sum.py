"""Sums of neighbouring rows by segment, as after a graph's messages are sorted by where they go."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def segmented_sum_kernel(x_ptr, offsets_ptr, out_ptr, n_cols, ROWS: tl.constexpr, COLS: tl.constexpr):
    """One program a segment and block of columns."""
    segment = tl.program_id(0)
    cols = tl.program_id(1) * COLS + tl.arange(0, COLS)
    first = tl.load(offsets_ptr + segment)
    last = tl.load(offsets_ptr + segment + 1)
    total = tl.zeros([ROWS, COLS], dtype=tl.float32)
    for start in range(first, last, ROWS):
        rows = start + tl.arange(0, ROWS)
        mask = (rows < last)[:, None] & (cols < n_cols)[None, :]
        total += tl.load(x_ptr + rows[:, None] * n_cols + cols[None, :], mask=mask, other=0.0)
    tl.store(out_ptr + segment * n_cols + cols, tl.sum(total, axis=0), mask=cols < n_cols)


def segmented_sum(x: torch.Tensor, offsets: torch.Tensor) -> torch.Tensor:
    """`offsets` (segments + 1): where each begins."""
    n_segments, n_cols = len(offsets) - 1, x.shape[1]
    out = torch.empty(n_segments, n_cols, device=x.device)
    grid = lambda meta: (n_segments, triton.cdiv(n_cols, meta["COLS"]))  # noqa: E731
    segmented_sum_kernel[grid](x, offsets, out, n_cols, ROWS=16, COLS=64, num_warps=4)
    return out


def make_inputs(device="cpu"):
    n_segments, n_cols, most = (20, 96, 9) if torch.device(device).type == "cpu" else (65536, 256, 64)
    lengths = torch.randint(0, most, (n_segments,), generator=torch.Generator().manual_seed(0))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)]).to(torch.int32)
    x = torch.randn(int(offsets[-1]), n_cols, device=device)
    offsets = offsets.to(device)
    return [lambda: segmented_sum(x, offsets)]
