"""fp32 matrix products in less precise and in honest ways, against the vendor's own fp32 and float64.

On a GPU these are real: cuBLAS fp32, TF32, three TF32 products, bfloat16, and a Triton kernel under `ieee`, `tf32x3`
and three separate `tf32` products. On a CPU operands are rounded to TF32's 10 mantissa bits and multiplied in fp32,
which has TF32's rounding of operands and not the matrix unit's accumulation: there the three products are as good as
fp32, and bound nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.precision import compare

Product = Callable[[Tensor, Tensor], Tensor]
TF32_BITS_DROPPED = 13
"""float32 has 23 mantissa bits, TF32 10."""
SLICES = 8


def rounded(x: Tensor) -> Tensor:
    """float32 with 10 mantissa bits, to nearest, ties away from zero (PTX ISA, `cvt.rna.tf32.f32`)."""
    bits = x.view(torch.int32) + (1 << (TF32_BITS_DROPPED - 1))
    return (bits & -(1 << TF32_BITS_DROPPED)).view(torch.float32)


def _by_cublas(a: Tensor, b: Tensor, *, tf32: bool) -> Tensor:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        return a @ b
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _three(a: Tensor, b: Tensor, product: Product) -> Tensor:
    """Markidis et al. 2018, as CUTLASS does it: high and low parts, without low times low."""
    high_a, high_b = rounded(a), rounded(b)
    low_a, low_b = a - high_a, b - high_b
    return product(high_a, low_b) + product(low_a, high_b) + product(high_a, high_b)


def _sliced(a: Tensor, b: Tensor, product: Product) -> Tensor:
    """The sum over k in slices: what an honest split-K does."""
    parts = [product(x, y) for x, y in zip(a.chunk(SLICES, 1), b.chunk(SLICES, 0), strict=True)]
    return torch.stack(parts).sum(0)


def ways(device: torch.device) -> tuple[Product, dict[str, tuple[str, Product]]]:
    """(the baseline, {name: (honest, adversary or measured, product)}); `measured` bounds nothing."""
    if device.type != "cuda":
        def emulated(a: Tensor, b: Tensor) -> Tensor:
            return rounded(a) @ rounded(b)

        return torch.matmul, {
            "fp32 in 8 slices of k": ("honest", lambda a, b: _sliced(a, b, torch.matmul)),
            "TF32": ("adversary", emulated),
            "three TF32 products": ("measured", lambda a, b: _three(a, b, emulated)),
            "bfloat16": ("adversary", lambda a, b: (a.bfloat16() @ b.bfloat16()).float()),
        }
    from benchmarks.triton_product import product

    def exact(a: Tensor, b: Tensor) -> Tensor:
        return _by_cublas(a, b, tf32=False)

    def tensor_float(a: Tensor, b: Tensor) -> Tensor:
        return _by_cublas(a, b, tf32=True)

    return exact, {
        "cuBLAS fp32 in 8 slices of k": ("honest", lambda a, b: _sliced(a, b, exact)),
        "Triton ieee": ("honest", lambda a, b: product(a, b, "ieee")),
        "Triton tf32x3": ("honest", lambda a, b: product(a, b, "tf32x3")),
        "cuBLAS TF32": ("adversary", tensor_float),
        "three TF32 products by cuBLAS": ("adversary", lambda a, b: _three(a, b, tensor_float)),
        "three TF32 products by Triton": ("measured", lambda a, b: _three(a, b, lambda x, y: product(x, y, "tf32"))),
        "Triton tf32": ("adversary", lambda a, b: product(a, b, "tf32")),
        "cuBLAS bfloat16": ("adversary", lambda a, b: (a.bfloat16() @ b.bfloat16()).float()),
    }


def measure(device: torch.device, sizes: tuple[int, ...], m: float) -> Iterator[dict[str, Any]]:
    """A row a size, kind of values and way: what both lines of the precision rule need of k.

    Square float32 operands: N(0, 1), and uniform in [0, 1), whose products never cancel.
    """
    baseline, others = ways(device)
    for size in sizes:
        for values in ("normal", "uniform"):
            generator = torch.Generator(device).manual_seed(size)
            draw = torch.randn if values == "normal" else torch.rand
            a, b = (draw(size, size, generator=generator, device=device) for _ in range(2))
            expected, reference = baseline(a, b), a.double() @ b.double()
            for name, (kind, way) in others.items():
                found = compare(name, way(a, b), expected, reference, m=m, k=0.0)
                rms = found["rms_reference"]
                yield {"name": f"{name}, {size} cubed, {values}", "kind": kind, "size": size, "values": values,
                       "k_rmse": found["least_k_rmse"], "k_max": found["least_k_max"],
                       "relative_rmse": found["rmse_candidate"] / rms,
                       "relative_rmse_baseline": found["rmse_baseline"] / rms, "ratio": found["ratio"]}
            del a, b, expected, reference
