"""Cross entropy of logits over a vocabulary: each row in one pass, its maximum and its sum kept as it goes."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def cross_entropy_kernel(logits_ptr, labels_ptr, loss_ptr, lse_ptr, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    start = row.to(tl.int64) * n_cols
    top = tl.full([BLOCK], -float("inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK], dtype=tl.float32)
    for first in range(0, n_cols, BLOCK):
        cols = first + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + start + cols, mask=cols < n_cols, other=-float("inf")).to(tl.float32)
        higher = tl.maximum(top, x)
        safe = tl.where(higher == -float("inf"), 0.0, higher)
        total = total * tl.exp(top - safe) + tl.exp(x - safe)
        top = higher
    highest = tl.max(top, axis=0)
    lse = highest + tl.log(tl.sum(total * tl.exp(top - highest), axis=0))
    label = tl.load(labels_ptr + row)
    chosen = tl.load(logits_ptr + start + label).to(tl.float32)
    tl.store(loss_ptr + row, lse - chosen)
    tl.store(lse_ptr + row, lse)  # the backward pass wants it


def cross_entropy(logits: torch.Tensor, labels: torch.Tensor):
    n_rows, n_cols = logits.shape
    loss, lse = torch.empty(n_rows, device=logits.device), torch.empty(n_rows, device=logits.device)
    cross_entropy_kernel[(n_rows,)](logits, labels, loss, lse, n_cols, BLOCK=1024, num_warps=4)
    return loss, lse


def make_inputs(device="cpu"):
    n_rows, n_cols = (24, 3000) if torch.device(device).type == "cpu" else (4096, 50257)
    logits = torch.randn(n_rows, n_cols, device=device)
    labels = torch.randint(n_cols, (n_rows,), device=device)
    return [lambda: cross_entropy(logits, labels)]
