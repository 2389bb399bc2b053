"""Inputs of an input family, drawn piece by piece so that a large tensor's temporaries stay small."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.sandbox.worker.families import make, writable

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
            size = made.abs() if n else -made
            made.masked_fill_((size > LARGE) & made.isfinite(), 0.0)
        part.copy_(made)
    return target


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
