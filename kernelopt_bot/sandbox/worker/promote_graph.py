"""A graph's float64 reference: the same graph, interpreted with every floating type promoted to float64."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, fx

aten = torch.ops.aten
LOW = (torch.float16, torch.bfloat16, torch.float32)
_RANDOM_WORDS = ("rand", "bernoulli", "dropout", "multinomial", "normal_functional", "philox", "seed")
_ATTENTION = {
    aten._scaled_dot_product_flash_attention.default,
    aten._scaled_dot_product_flash_attention_for_cpu.default,
    aten._scaled_dot_product_efficient_attention.default,
    aten._scaled_dot_product_cudnn_attention.default,
}
"""Fused attentions, which have no float64 form; their first output is what the composite formula gives."""


class CannotPromote(Exception):
    """The graph means something else in float64; the message says why."""


def promote(value: Any) -> Any:
    """A tensor of a lower real floating dtype as float64, complex64 as complex128; anything else as it is."""
    if not isinstance(value, Tensor):
        return value
    if value.dtype is torch.complex64:
        return value.to(torch.complex128)
    return value.double() if value.dtype in LOW else value


def _type(value: Any) -> Any:
    if not isinstance(value, torch.dtype):
        return value
    return torch.float64 if value in LOW else torch.complex128 if value is torch.complex64 else value


class _Promoted(fx.Interpreter):
    def call_function(self, target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        name = str(target)
        if any(word in name for word in _RANDOM_WORDS):
            raise CannotPromote(f"{name} draws random numbers")
        if target is aten.view.dtype:
            raise CannotPromote("the bits of a tensor are read as another type")
        if target in _ATTENTION:
            return self._attention(target, args, kwargs)
        args, kwargs = fx.node.map_aggregate((args, kwargs), _type)
        return super().call_function(target, args, kwargs)

    def get_attr(self, target: Any, args: Any, kwargs: Any) -> Any:
        return promote(super().get_attr(target, args, kwargs))

    @staticmethod
    def _attention(target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        bound = dict(zip((a.name for a in target._schema.arguments), args, strict=False)) | kwargs
        if bound.get("dropout_p"):
            raise CannotPromote("attention with dropout draws random numbers")
        mask = bound.get("attn_mask", bound.get("attn_bias"))
        out = aten._scaled_dot_product_attention_math.default(
            bound["query"], bound["key"], bound["value"], promote(mask), 0.0, bool(bound.get("is_causal", False)),
            scale=bound.get("scale"))
        return (out[0], *[None] * (len(target._schema.returns) - 1))


def run_float64(module: fx.GraphModule, inputs: Sequence[Any]) -> tuple[list[Any], list[Any]]:
    """(outputs, inputs after the run), floating ones float64. `inputs` are not changed.

    Raises CannotPromote, or what torch raises where an operator has no float64 form (RuntimeError, out of memory).
    """
    values = [p.clone() if isinstance(p := promote(v), Tensor) and p is v else p for v in inputs]
    with torch.no_grad():
        return list(_Promoted(module).run(*values)), values
