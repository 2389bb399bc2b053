"""A vendor call as a batch of matrix products: what is multiplied, how it lies in memory, the device code of a tile.

Products are those of `extern_kernels`, and convolutions whose windows hold one element (pointwise): there a row or a
column of a product is one place of the image. The result must lie densely, batches of rows one after the other, so that
the next kernel's flat index says which element it takes.
"""

from __future__ import annotations

import ast
import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernelopt_bot.compiler.run import KernelRun, RunVendor
from kernelopt_bot.playbook.kernel_source import NotUnderstood
from kernelopt_bot.playbook.rewrite import statements

Layout = tuple[tuple[int, ...], tuple[int, ...]]
LARGEST_INDEX = 2**31 - 1
"""Elements from which 32-bit offsets do not do."""


@dataclass(frozen=True)
class Operand:
    """A buffer of the run and its strides in elements along batch, the product's first and its second dimension."""

    buffer: str
    strides: tuple[int, int, int]


@dataclass(frozen=True)
class Product:
    """`out[b, m, n] = sum_k left[b, m, k] * right[b, k, n]`, plus `added[b, m, n]` where there is one. `out` is dense
    and row-major."""

    batch: int
    m: int
    n: int
    k: int
    left: Operand
    right: Operand
    added: Operand | None
    out: str
    element: str
    """Triton's type of all operands, `fp32`."""

    @property
    def flops(self) -> int:
        return 2 * self.batch * self.m * self.n * self.k


def product_of(run: KernelRun) -> Product:
    """Raises NotUnderstood where the vendor call is no product, or one whose result does not lie densely."""
    vendor = run.vendor
    if vendor is None:
        raise NotUnderstood("no vendor call")
    found = _convolution(vendor) if vendor.function.endswith(".convolution") else _matrix(vendor)
    batch, m, n, k, left, right, added = found
    if not _dense(vendor.layouts["out"]):
        raise NotUnderstood("the result is not dense")
    if min(batch, m, n, k) < 1:
        raise NotUnderstood("an empty product")
    product = Product(batch, m, n, k, left, right, added, vendor.out, run.buffer[vendor.out].type.removeprefix("*"))
    reach = [sum((size - 1) * stride for size, stride in zip(sizes, operand.strides, strict=True))
             for operand, sizes in ((left, (batch, m, k)), (right, (batch, k, n)))]
    if max(*reach, batch * m * n) > LARGEST_INDEX:
        raise NotUnderstood("offsets of more than 32 bits")
    return product


def _dense(layout: Layout) -> bool:
    """Whether the elements fill the memory from the first one on, in some order of the dimensions."""
    expected = 1
    for stride, size in sorted((st, s) for s, st in zip(*layout, strict=True) if s != 1):
        if stride != expected:
            return False
        expected *= size
    return True


Facts = tuple[int, int, int, int, Operand, Operand, Operand | None]


def _matrix(vendor: RunVendor) -> Facts:
    """mm(a, b), bmm(a, b), addmm(c, a, b, alpha, beta), baddbmm(c, a, b, alpha, beta)."""
    plus = vendor.function.rpartition(".")[2] in ("addmm", "baddbmm")
    names = ("a0", "a1", "a2")[:3 if plus else 2]
    if set(vendor.operands) != set(names) or any(
            name not in ("alpha", "beta") or value != 1 for name, value in vendor.options.items()):
        raise NotUnderstood(f"other arguments of {vendor.function}")
    (left, (batch, m, k)), (right, (_, _, n)) = (_three(vendor, name) for name in names[-2:])
    if not _row_major(vendor.layouts["out"]):
        raise NotUnderstood("the result is not row-major")
    added = _broadcast(vendor, names[0], (batch, m, n)) if plus else None
    return batch, m, n, k, left, right, added


def _three(vendor: RunVendor, name: str) -> tuple[Operand, tuple[int, int, int]]:
    shape, stride = vendor.layouts[name]
    if len(shape) == 2:
        shape, stride = (1, *shape), (0, *stride)
    if len(shape) != 3:
        raise NotUnderstood(f"an operand of {len(shape)} dimensions")
    return Operand(vendor.operands[name], (stride[0], stride[1], stride[2])), (shape[0], shape[1], shape[2])


def _broadcast(vendor: RunVendor, name: str, to: tuple[int, int, int]) -> Operand:
    shape, stride = vendor.layouts[name]
    missing = 3 - len(shape)
    if missing < 0:
        raise NotUnderstood(f"an operand of {len(shape)} dimensions")
    sizes, steps = (1,) * missing + tuple(shape), (0,) * missing + tuple(stride)
    if any(size not in (1, wanted) for size, wanted in zip(sizes, to, strict=True)):
        raise NotUnderstood("an operand that cannot be broadcast")
    strides = [0 if size == 1 else step for size, step in zip(sizes, steps, strict=True)]
    return Operand(vendor.operands[name], (strides[0], strides[1], strides[2]))


def _row_major(layout: Layout) -> bool:
    strides = [stride for size, stride in zip(*layout, strict=True) if size != 1]
    return strides == sorted(strides, reverse=True)


def _convolution(vendor: RunVendor) -> Facts:
    """Windows of one element, no padding, no steps: each place of the image by itself."""
    options = dict(vendor.options)
    if set(vendor.operands) != {"a0", "a1"} or options.get("groups") != 1 or options.get("transposed") or (
            options.get("bias") is not None):
        raise NotUnderstood("a convolution of another kind")
    (shape, stride), (weight, steps), (_, places) = (vendor.layouts[n] for n in ("a0", "a1", "out"))
    if math.prod(weight[2:]) != 1 or set(options["stride"]) != {1} or set(options["padding"]) != {0}:
        raise NotUnderstood("windows of more than one element")
    batch, channels, image = shape[0], weight[0], shape[2:]
    inward, outward = _one_stride(image, stride[2:]), _one_stride(image, places[2:])
    size = math.prod(image)
    weights, pixels = vendor.operands["a1"], vendor.operands["a0"]
    if outward == 1 or (size == 1 and places[1] != 1):  # channels are rows
        return (batch, channels, size, weight[1], Operand(weights, (0, steps[0], steps[1])),
                Operand(pixels, (stride[0], stride[1], inward)), None)
    if places[1] != 1:
        raise NotUnderstood("a result whose places and channels lie apart")
    return (batch, size, channels, weight[1], Operand(pixels, (stride[0], inward, stride[1])),
            Operand(weights, (0, steps[1], steps[0])), None)


def _one_stride(sizes: Sequence[int], strides: Sequence[int]) -> int:
    """The stride of all places of an image in row-major order. Raises NotUnderstood where there is no such one."""
    kept = [(size, stride) for size, stride in zip(sizes, strides, strict=True) if size != 1]
    for (_, outer), (size, inner) in itertools.pairwise(kept):
        if outer != size * inner:
            raise NotUnderstood("the places of an image have no common stride")
    return kept[-1][1] if kept else 1


def tile_code(product: Product, block_k: int, whole_rows: bool, precision: str) -> list[ast.stmt]:
    """Statements that bind `acc` to the tile [BM, BN] of float32 sums, `rows` and `columns` (of one batch `batch`), and
    `rows_in` and `columns_in` to whether they exist. `whole_rows`: the tile spans all columns, else tiles take turns in
    groups of rows, so that neighbours share operands in L2.

    `precision` is of float32 operands: `tf32x3`, three products of TF32 halves, which keeps 21 bits of each (Ootomo and
    Yokota, 2022, arXiv:2203.03341), or `tf32`.
    """
    p, step = product, block_k
    lines = ["batch = tl.program_id(1)", "tile = tl.program_id(0)"]
    if whole_rows:
        lines += ["rows = tile * BM + tl.arange(0, BM)", "columns = tl.arange(0, BN)"]
    else:
        lines += [
            f"down = ({p.m} + BM - 1) // BM", f"across = ({p.n} + BN - 1) // BN", "group = tile // (8 * across)",
            "height = tl.minimum(down - group * 8, 8)", "inside = tile - group * 8 * across",
            "rows = (group * 8 + inside % height) * BM + tl.arange(0, BM)",
            "columns = (inside // height) * BN + tl.arange(0, BN)"]
    lines += [f"rows_in = rows < {p.m}", f"columns_in = columns < {p.n}", f"depth = tl.arange(0, {step})",
              f"left_at = batch * {p.left.strides[0]} + rows[:, None] * {p.left.strides[1]} + depth[None, :] * "
              f"{p.left.strides[2]}",
              f"right_at = batch * {p.right.strides[0]} + depth[:, None] * {p.right.strides[1]} + columns[None, :] * "
              f"{p.right.strides[2]}"]
    lines.append("acc = tl.zeros([BM, BN], tl.float32)")
    ragged = p.k % step != 0
    left_mask = "rows_in[:, None]" + (f" & (depth[None, :] < {p.k} - start)" if ragged else "")
    right_mask = "columns_in[None, :]" + (f" & (depth[:, None] < {p.k} - start)" if ragged else "")
    how = f', input_precision="{precision}"' if p.element == "fp32" else ""
    lines += [f"for start in range(0, {p.k}, {step}):",
              f"    left_tile = tl.load({p.left.buffer} + (left_at + start * {p.left.strides[2]}), mask={left_mask}, "
              "other=0.0)",
              f"    right_tile = tl.load({p.right.buffer} + (right_at + start * {p.right.strides[1]}), "
              f"mask={right_mask}, other=0.0)",
              f"    acc = tl.dot(left_tile, right_tile, acc{how})"]
    if p.added is not None:
        b, m, n = p.added.strides
        lines.append(f"acc = acc + tl.load({p.added.buffer} + (batch * {b} + rows[:, None] * {m} + columns[None, :] * "
                     f"{n}), mask=rows_in[:, None] & columns_in[None, :], other=0.0).to(tl.float32)")
    return statements("\n".join(lines))
