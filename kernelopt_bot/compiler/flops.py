"""Floating-point operations of vendor products, from shapes. A multiply and an add count as two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

Shape = tuple[int, ...]


def vendor_name(callee: str) -> str:
    """`extern_kernels.mm` and `torch.ops.aten.mm.default` -> `mm`; '' if it is no such call."""
    parts = callee.split(".")
    if parts[0] == "extern_kernels":
        return parts[1] if len(parts) == 2 else ""
    if parts[:2] == ["torch", "ops"] and len(parts) >= 4:
        return parts[3]
    return parts[1] if parts[0] == "aten" and len(parts) >= 2 else ""


def vendor_flops(callee: str, shapes: Sequence[Shape | None], values: Mapping[str, Any]) -> int | None:
    """Operations of one call, None where unknown.

    `shapes` are those of the positional arguments (None where not a tensor), `values` the literal arguments by
    keyword or, for positional ones, by position as text."""
    name = vendor_name(callee)
    count = _COUNTERS.get(name)
    tensors = [s for s in shapes if s is not None]
    try:
        return None if count is None else count(tensors, values)
    except (IndexError, ValueError, TypeError, KeyError):
        return None


def _matmul(a: Shape, b: Shape) -> int:
    if len(a) < 2 or len(b) < 2 or a[-1] != b[-2]:
        raise ValueError("not the factors of a product")
    return 2 * prod(a) * b[-1]


def _first_two(tensors: Sequence[Shape], values: Mapping[str, Any]) -> int:
    return _matmul(tensors[0], tensors[1])


def _after_bias(tensors: Sequence[Shape], values: Mapping[str, Any]) -> int:
    return _matmul(tensors[1], tensors[2])


def _attention(tensors: Sequence[Shape], values: Mapping[str, Any]) -> int:
    """Both products in full, as without a mask: (..., s, d) with (..., t, d), then (..., s, t) with (..., t, e)."""
    query, key, value = tensors[:3]
    return 2 * prod(query) * key[-2] + 2 * prod(query[:-1]) * key[-2] * value[-1]


def _convolution(tensors: Sequence[Shape], values: Mapping[str, Any]) -> int:
    """Input (n, c, spatial...), weight (out, c/groups, kernel...); transposed: weight (c, out/groups, kernel...)."""
    x, weight = tensors[0], tensors[1]
    dimensions = len(weight) - 2

    def option(name: str, position: int) -> Any:
        found = values.get(name, values.get(str(position)))
        if found is None:
            raise KeyError(name)
        return found

    if option("transposed", 6):
        return 2 * prod(x) * prod(weight[1:])
    stride, padding, dilation = (tuple(option(n, p)) for n, p in (("stride", 3), ("padding", 4), ("dilation", 5)))
    stride, padding, dilation = ((v * dimensions if len(v) == 1 else v) for v in (stride, padding, dilation))
    spatial = [(size + 2 * padding[i] - dilation[i] * (weight[2 + i] - 1) - 1) // stride[i] + 1
               for i, size in enumerate(x[-dimensions:])]
    batch = x[0] if len(x) == len(weight) else 1
    return int(2 * batch * weight[0] * prod(spatial) * prod(weight[1:]))


_COUNTERS = {
    "mm": _first_two, "_int_mm": _first_two, "_scaled_mm": _first_two, "bmm": _first_two,
    "addmm": _after_bias, "_addmm_activation": _after_bias, "bias_addmm": _after_bias, "baddbmm": _after_bias,
    "convolution": _convolution,
    "_scaled_dot_product_flash_attention": _attention, "_scaled_dot_product_efficient_attention": _attention,
    "_scaled_dot_product_cudnn_attention": _attention, "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_fused_attention_overrideable": _attention, "scaled_dot_product_attention": _attention,
}
