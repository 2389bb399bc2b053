"""Input families of gate 2: what a tensor's values are replaced by.

| family | float values |
|---|---|
| `captured` | as recorded |
| `normal` | N(0, 1) |
| `constant` | one value of three significant bits everywhere: sums are exact in any order, for honest accumulators |
| `zero` | 0 |
| `cancelling` | N(0, 1) plus pairs +big, -big at random places of each row: weak accumulators lose the rest |
| `large` | N(0, 1) times 2**10 (half types 2**6): exponentials overflow unless the maximum is subtracted |
| `extreme` | N(0, 1), one element in 512 replaced by 0, -0, subnormal, smallest normal, inf or nan; +-largest once |

Signs are drawn freely even where the recorded values are positive: a candidate that drops a clamp must be seen.
Integers stay within the recorded [min, max], since they may be indices.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

FAMILIES = ("captured", "normal", "constant", "zero", "cancelling", "large", "extreme")
CANCELLING_SCALE = 16.0
"""Magnitude of the cancelling pairs. At 64 an honest sequential sum of 256 no longer passes."""
EXTREME_SHARE = 1 / 512


def empty_like(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A new tensor of `like`'s shape and exact strides (also overlapping or with gaps), offset 0, zeroed storage."""
    extent = sum((size - 1) * stride for size, stride in zip(like.shape, like.stride(), strict=True)) + 1
    storage = torch.zeros(extent if like.numel() else 0, dtype=dtype or like.dtype, device=like.device)
    return storage.as_strided(like.shape, like.stride())


def writable(tensor: Tensor) -> Tensor:
    """A view that copies can go into: without the dimensions of stride 0, whose elements are one and the same."""
    for d in range(tensor.dim()):
        if tensor.stride(d) == 0 and tensor.shape[d] > 1:
            tensor = tensor.narrow(d, 0, 1)
    return tensor


def _bounds(like: Tensor, stats: Mapping[str, Any] | None) -> tuple[int, int]:
    if stats is not None:
        return int(stats["min"]), int(stats["max"])
    if like.numel() == 0 or like.device.type == "meta":
        return 0, 0
    return int(like.min()), int(like.max())


def _normal(shape: torch.Size, generator: torch.Generator) -> Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float32, device=generator.device)


def _few_bits(generator: torch.Generator) -> Tensor:
    """+-1, 1.25, 1.5 or 1.75 times 0.5, 1 or 2. With all 24 bits used, `x - mean(x)` of a constant is pure rounding
    error, which a normalisation then divides by the root of its epsilon."""
    draw = torch.randint(24, (), generator=generator, device=generator.device)
    return (1 + draw % 4 / 4) * 2.0 ** (draw // 4 % 3 - 1) * torch.where(draw < 12, 1.0, -1.0)


def _cancelling(shape: torch.Size, generator: torch.Generator) -> Tensor:
    values = _normal(shape, generator)
    flat = values.view(-1, shape[-1]) if len(shape) and shape[-1] > 1 else values.view(1, -1)
    pairs = flat.shape[1] // 2
    if pairs:
        big = torch.randn(flat.shape[0], pairs, generator=generator, device=generator.device).mul_(CANCELLING_SCALE)
        both = torch.cat([big, -big], 1)
        places = torch.rand(flat.shape[0], 2 * pairs, generator=generator, device=generator.device)
        # stable: where two places tie, a second draw of the same seed has to order them alike
        places = places.argsort(dim=1, stable=True)
        flat[:, : 2 * pairs] += both.gather(1, places)
    return values


def _extreme(shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    finfo = torch.finfo(dtype)
    # float32's very largest becomes infinite when it is rounded to TF32, as the honest tf32x3 begins with.
    largest = torch.finfo(torch.bfloat16).max if dtype is torch.float32 else finfo.max
    specials = torch.tensor(
        [0.0, -0.0, finfo.smallest_normal / 2, finfo.smallest_normal, math.inf, -math.inf, math.nan],
        dtype=torch.float64, device=generator.device,
    )
    values = _normal(shape, generator).double().view(-1)
    count = min(values.numel(), max(len(specials), int(values.numel() * EXTREME_SHARE)))
    places = torch.randint(values.numel(), (count,), generator=generator, device=generator.device) if count else None
    if places is not None:
        which = torch.arange(count, device=generator.device) % len(specials)
        values[places] = specials[which]
    values = values.view(shape)
    for place, value in zip(_apart(shape, generator), (largest, -largest), strict=False):
        values[place] = value
    return values


def _apart(shape: torch.Size, generator: torch.Generator) -> list[tuple[int, ...]]:
    """Two places that differ in every dimension of more than one element, or one where there is but one of these.

    Two largest numbers in one sum overflow in one order of summation and not in another: an honest candidate would
    fail for its order (seen on an H200 with a layer norm and with products).
    """
    if 0 in shape:
        return []
    first, steps = [], []
    for size in shape:
        one, other = torch.randint(1 << 40, (2,), generator=generator, device=generator.device).tolist()
        first.append(one % size)
        steps.append(1 + other % (size - 1) if size > 1 else 0)
    second = [(i + step) % size for i, step, size in zip(first, steps, shape, strict=True)]
    return [tuple(first), tuple(second)] if sum(size > 1 for size in shape) > 1 else [tuple(first)]


def _integers(family: str, like: Tensor, low: int, high: int, generator: torch.Generator) -> Tensor:
    shape = like.shape
    if family == "zero":
        return torch.full(shape, min(max(0, low), high), dtype=torch.int64, device=generator.device)
    if family == "constant":
        value = torch.randint(low, high + 1, (1,), generator=generator, device=generator.device) if high > low else low
        return torch.full(shape, int(value), dtype=torch.int64, device=generator.device)
    top = high + 1 if high < torch.iinfo(torch.int64).max else high
    return torch.randint(low, max(top, low + 1), shape, generator=generator, dtype=torch.int64, device=generator.device)


def _floats(family: str, shape: torch.Size, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    match family:
        case "normal":
            return _normal(shape, generator)
        case "constant":
            return _few_bits(generator).expand(shape)
        case "zero":
            return torch.zeros(shape, device=generator.device)
        case "cancelling":
            return _cancelling(shape, generator)
        case "large":
            return _normal(shape, generator).mul_(2.0**6 if torch.finfo(dtype).bits <= 16 else 2.0**10)
        case "extreme":
            return _extreme(shape, dtype, generator)
    raise ValueError(f"unknown input family {family!r}; known: {', '.join(FAMILIES)}")


def _as_recorded(shape: torch.Size, dtype: torch.dtype, stats: Mapping[str, Any] | None, g: torch.Generator) -> Tensor:
    """Values with the recorded mean and deviation, within the recorded range."""
    values = _normal(shape, g)
    if stats is None or not all(math.isfinite(float(stats[key])) for key in ("min", "max", "mean", "std")):
        return values
    low, high = max(float(stats["min"]), torch.finfo(dtype).min), min(float(stats["max"]), torch.finfo(dtype).max)
    return values.double().mul_(float(stats["std"])).add_(float(stats["mean"])).clamp_(low, high)


def make(family: str, like: Tensor, stats: Mapping[str, Any] | None, generator: torch.Generator) -> Tensor:
    """A new tensor of `like`'s dtype, shape, strides and device with the values of `family`.

    `stats` is {min, max, mean, std, finite} as recorded, or None: integers then take the range of `like` itself.
    `captured` copies `like`. A `like` on the meta device has no values: `captured` then draws from `stats`, and the
    result is on the generator's device.
    Complex tensors get independent parts. Raises ValueError for an unknown family.
    """
    if family not in FAMILIES:
        raise ValueError(f"unknown input family {family!r}; known: {', '.join(FAMILIES)}")
    unknown = like.device.type == "meta"
    target = empty_like(like if not unknown else torch.empty_strided(
        like.shape, like.stride(), dtype=like.dtype, device=generator.device))
    into = writable(target)
    if like.numel() == 0:
        return target
    if family == "captured" and not unknown:
        into.copy_(writable(like))
    elif like.is_complex():
        parts = torch.stack([_floats("normal" if family == "captured" else family, into.shape,
                                     torch.view_as_real(into).dtype, generator) for _ in range(2)], -1)
        torch.view_as_real(into).copy_(parts)
    elif not like.is_floating_point():
        low, high = _bounds(like, stats)
        into.copy_(_integers(family, into, low, high, generator))
    elif family == "captured":
        into.copy_(_as_recorded(into.shape, like.dtype, stats, generator))
    else:
        into.copy_(_floats(family, into.shape, like.dtype, generator))
    return target
