"""Layer norm: forward a row a program, backward some rows, with partial sums for the weight and the bias."""

import torch
import triton
import triton.language as tl


# kernelopt: inputs=make_inputs
@triton.jit
def layer_norm_forward(x_ptr, weight_ptr, bias_ptr, out_ptr, mean_ptr, rstd_ptr, n_cols, eps, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    x = tl.load(x_ptr + row * n_cols + cols, mask=mask, other=0.0).to(tl.float32)
    mean = tl.sum(x, axis=0) / n_cols
    centred = tl.where(mask, x - mean, 0.0)
    rstd = 1.0 / tl.sqrt(tl.sum(centred * centred, axis=0) / n_cols + eps)
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    bias = tl.load(bias_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    tl.store(out_ptr + row * n_cols + cols, centred * rstd * weight + bias, mask=mask)
    tl.store(mean_ptr + row, mean)
    tl.store(rstd_ptr + row, rstd)


# kernelopt: inputs=make_gradients
@triton.jit
def layer_norm_backward(
    grad_ptr, x_ptr, weight_ptr, mean_ptr, rstd_ptr, dx_ptr, dw_ptr, db_ptr, n_rows, n_cols,
    ROWS: tl.constexpr, BLOCK: tl.constexpr,
):
    """ROWS rows a program: their dx, and one row of partial sums of dw and db."""
    part = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    mask = cols < n_cols
    weight = tl.load(weight_ptr + cols, mask=mask, other=0.0).to(tl.float32)
    dw = tl.zeros([BLOCK], dtype=tl.float32)
    db = tl.zeros([BLOCK], dtype=tl.float32)
    for i in range(ROWS):
        row = part * ROWS + i
        here = mask & (row < n_rows)
        grad = tl.load(grad_ptr + row * n_cols + cols, mask=here, other=0.0).to(tl.float32)
        x = tl.load(x_ptr + row * n_cols + cols, mask=here, other=0.0).to(tl.float32)
        mean = tl.load(mean_ptr + row, mask=row < n_rows, other=0.0)
        rstd = tl.load(rstd_ptr + row, mask=row < n_rows, other=0.0)
        normal = tl.where(here, (x - mean) * rstd, 0.0)
        scaled = grad * weight
        first = tl.sum(scaled * normal, axis=0) / n_cols
        second = tl.sum(scaled, axis=0) / n_cols
        dx = (scaled - normal * first - second) * rstd
        tl.store(dx_ptr + row * n_cols + cols, dx, mask=here)
        dw += grad * normal
        db += grad
    tl.store(dw_ptr + part * n_cols + cols, dw, mask=mask)
    tl.store(db_ptr + part * n_cols + cols, db, mask=mask)


def forward(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor, eps: float = 1e-5):
    n_rows, n_cols = x.shape
    out = torch.empty_like(x)
    mean, rstd = torch.empty(n_rows, device=x.device), torch.empty(n_rows, device=x.device)
    layer_norm_forward[(n_rows,)](
        x, weight, bias, out, mean, rstd, n_cols, eps, BLOCK=triton.next_power_of_2(n_cols), num_warps=4)
    return out, mean, rstd


def backward(grad, x, weight, mean, rstd):
    n_rows, n_cols = x.shape
    dx = torch.empty_like(x)
    rows = 16
    parts = triton.cdiv(n_rows, rows)
    dw, db = torch.empty(parts, n_cols, device=x.device), torch.empty(parts, n_cols, device=x.device)
    layer_norm_backward[(parts,)](
        grad, x, weight, mean, rstd, dx, dw, db, n_rows, n_cols, ROWS=rows, BLOCK=triton.next_power_of_2(n_cols),
        num_warps=4)
    return dx, dw.sum(0), db.sum(0)


def _case(device):
    n_rows, n_cols = (48, 200) if torch.device(device).type == "cpu" else (8192, 4096)
    weight, bias = torch.rand(n_cols, device=device), torch.randn(n_cols, device=device)
    return torch.randn(n_rows, n_cols, device=device), weight, bias


def make_inputs(device="cpu"):
    x, weight, bias = _case(device)
    return [lambda: forward(x, weight, bias)]


def make_gradients(device="cpu"):
    x, weight, bias = _case(device)
    grad = torch.randn_like(x)
    _, mean, rstd = forward(x, weight, bias)
    return [lambda: backward(grad, x, weight, mean, rstd)]
