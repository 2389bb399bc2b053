"""Inputs of an input family, drawn piece by piece into memory that is there: a large tensor's temporaries stay small.

The target may be wider than the type that is drawn (float64 for the reference), and the same generator state gives the
same values in both.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.families import make, writable

DRAWN = 1 << 22
"""Elements drawn at a time: `cancelling` takes some 64 bytes for each."""
LARGE = 1000.0
"""Beyond it, a finite element of `extreme` is one of the type's largest and no draw of N(0, 1)."""
EVEN = ("constant", "zero")
"""Families with one value for all elements."""
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def draw(
    family: str, like: Tensor, stats: Mapping[str, Any] | None, generator: torch.Generator, target: Tensor,
) -> None:
    """What `families.make` returns, into `target`: a tensor of `like`'s shape and of its type or a wider one, anywhere.
    Made on the generator's device in `like`'s type. `like` is real or on `meta`.

    Rows longer than DRAWN consist of several draws: each part of a `cancelling` row cancels by itself.
    """
    if not like.numel():
        return
    real = like.device.type != "meta"
    into = writable(target)
    if real and family == "captured":
        for part, known in zip(_parts(into), _parts(writable(like)), strict=True):
            part.copy_(known)
        return
    own_range = real and stats is None and not like.is_floating_point()
    if own_range:
        like = like.to(generator.device)
    elif family in EVEN:
        like = torch.empty((1,) * like.dim(), dtype=like.dtype, device="meta")
    if like.numel() <= DRAWN or own_range:
        into.copy_(writable(make(family, like, stats, generator)))
        return
    for n, part in enumerate(_parts(into)):
        shape = torch.empty(part.shape, dtype=like.dtype, device="meta")
        made = make(family, shape, stats, generator)
        if family == "extreme" and made.is_floating_point():
            # Of the largest numbers only one stays: two, of a part or of several, could meet in one sum.
            without_largest(made, negative_only=n == 0)
        part.copy_(made)


def keep_one_largest(drawn: Sequence[Tensor], generator: torch.Generator) -> None:
    """Of buffers of `extreme` that one step reads, one chosen at random keeps its largest numbers: two that met in one
    sum would overflow or not by how it is rounded on the way, and an honest candidate would fail by chance."""
    floats = [tensor for tensor in drawn if tensor.is_floating_point()]
    kept = int(torch.randint(max(1, len(floats)), (), generator=generator, device=generator.device))
    for n, tensor in enumerate(floats):
        if n != kept:
            without_largest(tensor)


def without_largest(extreme: Tensor, *, negative_only: bool = False) -> None:
    """The type's largest numbers in a draw of `extreme` become 0, in place."""
    for part in _parts(writable(extreme)):
        size = -part if negative_only else part.abs()
        part.masked_fill_((size > LARGE) & part.isfinite(), 0.0)


def nudge(values: Tensor, dtype: torch.dtype, generator: torch.Generator) -> None:
    """Move each value, which `dtype` can hold, up or down by at most one unit in its last place there; float32 and
    float64 only, others stay."""
    if dtype not in (torch.float32, torch.float64):
        return
    for part in _parts(writable(values)):
        steps = torch.randint(-1, 2, part.shape, generator=generator, device=generator.device, dtype=torch.int8)
        part.copy_(part.to(dtype).mul_(steps.to(part.device, dtype).mul_(torch.finfo(dtype).eps).add_(1)))


def digest(values: Tensor, dtype: torch.dtype) -> int:
    """Of the values in `dtype`, which holds them exactly: equal for equal draws into memory of any width."""
    total = 0
    for part in _parts(writable(values)):
        exact = torch.view_as_real(part) if part.is_complex() else part.to(dtype)
        bits = exact.contiguous().view(_INTEGER_OF_SIZE[exact.element_size()]).reshape(-1).to(torch.int64)
        odd = torch.arange(1, 2 * bits.numel(), 2, device=bits.device)
        total = (31 * total + int((bits * odd).sum())) % (1 << 64)
    return total


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Views of at most DRAWN elements that make up the tensor."""
    if tensor.numel() <= DRAWN:
        yield tensor
        return
    d = 0 if tensor.shape[0] > 1 else max(range(tensor.dim()), key=lambda d: tensor.shape[d])
    rows = max(1, DRAWN * tensor.shape[d] // tensor.numel())
    for start in range(0, tensor.shape[d], rows):
        yield from _parts(tensor.narrow(d, start, min(rows, tensor.shape[d] - start)))
