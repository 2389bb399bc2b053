"""A plain tiled matrix product in Triton, for `products.py` on a GPU."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

TILE, STEP = 64, 32


@triton.jit  # type: ignore[untyped-decorator]
def _product(a, b, c, size, precision: tl.constexpr, TILE: tl.constexpr, STEP: tl.constexpr):  # type: ignore[no-untyped-def]
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)[:, None]
    columns = tl.program_id(1) * TILE + tl.arange(0, TILE)[None, :]
    k = tl.arange(0, STEP)
    total = tl.zeros([TILE, TILE], tl.float32)
    for start in range(0, size, STEP):
        x = tl.load(a + rows * size + start + k[None, :])
        y = tl.load(b + (start + k[:, None]) * size + columns)
        total = tl.dot(x, y, total, input_precision=precision)
    tl.store(c + rows * size + columns, total)


def product(a: Tensor, b: Tensor, precision: str) -> Tensor:
    """a @ b of square float32 matrices on a GPU; `precision`: `ieee`, `tf32` or `tf32x3`.

    Raises ValueError if the size is no multiple of 64.
    """
    size = a.shape[0]
    if size % TILE or a.shape != b.shape or a.shape[1] != size:
        raise ValueError(f"{tuple(a.shape)} by {tuple(b.shape)}: not square, or no multiple of {TILE}")
    c = torch.empty_like(a)
    _product[(size // TILE, size // TILE)](a.contiguous(), b.contiguous(), c, size, precision, TILE, STEP)
    return c
