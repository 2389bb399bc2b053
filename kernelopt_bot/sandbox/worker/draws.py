"""Inputs of an input family, drawn piece by piece so that a large tensor's temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.families import empty_like, make, writable

DRAWN = 1 << 22
"""Elements drawn at a time: `cancelling` takes some 64 bytes for each."""
LARGE = 1000.0
"""Beyond it, a finite element of `extreme` is one of the type's largest and no draw of N(0, 1)."""
WHOLE = ("captured", "constant", "zero")
"""Families that need no temporaries, or whose elements must come from one draw."""


def draw(
    family: str, like: Tensor, stats: Mapping[str, Any] | None, generator: torch.Generator, home: torch.device,
) -> Tensor:
    """As `families.make`, on `home`; made on the generator's device. `like` is real or on `meta`.

    Rows longer than DRAWN consist of several draws: each part of a `cancelling` row cancels by itself.
    """
    own_range = stats is None and not like.is_floating_point()
    if like.device.type != "meta" and like.device != generator.device and (own_range or family == "captured"):
        like = like.to(generator.device if own_range else home)
    real = like.device.type != "meta"
    if real and family == "captured":
        return make(family, like, stats, generator)
    if like.numel() <= DRAWN or family in WHOLE or own_range:
        made = make(family, like, stats, generator)
        if made.device == home:
            return made
        target = _blank(like, home)
        writable(target).copy_(writable(made))
        return target
    target = _blank(like, home)
    for n, part in enumerate(_parts(writable(target))):
        shape = torch.empty(part.shape, dtype=part.dtype, device="meta")
        made = make(family, shape, stats, generator)
        if family == "extreme" and made.is_floating_point():
            # Of the largest numbers only one stays: two, of a part or of several, could meet in one sum.
            without_largest(made, negative_only=n == 0)
        part.copy_(made)
    return target


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
    into = writable(extreme)
    size = -into if negative_only else into.abs()
    into.masked_fill_((size > LARGE) & into.isfinite(), 0.0)


def neighbours(values: Tensor, generator: torch.Generator) -> Tensor:
    """The values, each moved up or down by at most one unit in its last place; float32 and float64 only, others as
    they are."""
    if values.dtype not in (torch.float32, torch.float64):
        return values
    moved = empty_like(values)
    writable(moved).copy_(writable(values))
    eps = torch.finfo(values.dtype).eps
    for part in _parts(writable(moved)):
        steps = torch.randint(-1, 2, part.shape, generator=generator, device=generator.device, dtype=torch.int8)
        part.mul_(steps.to(part.device, part.dtype).mul_(eps).add_(1))
    return moved


def _blank(like: Tensor, home: torch.device) -> Tensor:
    return torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=home)


def _parts(tensor: Tensor) -> Iterator[Tensor]:
    """Views of at most DRAWN elements that make up the tensor."""
    if tensor.numel() <= DRAWN:
        yield tensor
        return
    d = 0 if tensor.shape[0] > 1 else max(range(tensor.dim()), key=lambda d: tensor.shape[d])
    rows = max(1, DRAWN * tensor.shape[d] // tensor.numel())
    for start in range(0, tensor.shape[d], rows):
        yield from _parts(tensor.narrow(d, start, min(rows, tensor.shape[d] - start)))
