"""What a model keeps from call to call: its buffers, and tensors that its modules hold as plain attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from kernelopt_bot.sandbox.worker.tensors import storage_key

_MODULES_OWN = frozenset({"_parameters", "_buffers", "_modules"})


@dataclass(frozen=True)
class Held:
    """One tensor. `container[key]` holds it; None for a tuple's, which cannot be put back."""

    name: str
    tensor: Tensor
    container: Any
    key: Any


def held(model: nn.Module) -> list[Held]:
    """Buffers, then plain tensors: attributes, and what lists, tuples and dicts that are attributes hold directly.

    Each tensor once. Parameters are left out, and so are plain tensors over their memory and expanded ones, which are
    not written in place.
    """
    found: dict[int, Held] = {}
    for prefix, module in model.named_modules():
        for name, buffer in module._buffers.items():
            if buffer is not None:
                found.setdefault(id(buffer), Held(_joined(prefix, name), buffer, module._buffers, name))
    shared = {storage_key(t) for t in (*model.parameters(), *(h.tensor for h in found.values())) if _strided(t)}
    for prefix, module in model.named_modules():
        for name, value in vars(module).items():
            for item in _inside(_joined(prefix, name), value, vars(module), name) if name not in _MODULES_OWN else ():
                t = item.tensor
                plain = not isinstance(t, nn.Parameter) and _strided(t) and storage_key(t) not in shared
                if plain and not any(size > 1 and not stride for size, stride in zip(t.shape, t.stride(), strict=True)):
                    found.setdefault(id(t), item)
    return list(found.values())


def _joined(prefix: str, name: str) -> str:
    return f"{prefix}.{name}" if prefix else name


def _strided(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, nn.Parameter) and tensor.layout is torch.strided and not tensor.is_meta


def _inside(name: str, value: Any, container: Any, key: Any) -> Iterator[Held]:
    if isinstance(value, Tensor):
        yield Held(name, value, container, key)
    elif type(value) in (list, tuple):
        inner = value if isinstance(value, list) else None
        yield from (Held(f"{name}.{i}", v, inner, i) for i, v in enumerate(value) if isinstance(v, Tensor))
    elif type(value) is dict:
        yield from (Held(f"{name}.{k}", v, value, k) for k, v in value.items() if isinstance(v, Tensor))


class State:
    """A model's tensors as they were, to undo what a forward changes."""

    def __init__(self, model: nn.Module) -> None:
        self._kept = [(h, h.tensor.detach().clone()) for h in held(model)]

    def restore(self) -> None:
        with torch.no_grad():
            for h, value in self._kept:
                h.tensor.copy_(value)
                # A list may have become shorter meanwhile.
                if h.container is not None and (not isinstance(h.container, list) or h.key < len(h.container)):
                    h.container[h.key] = h.tensor

    def reshaped(self) -> str:
        """The first tensor that has another shape than before, `cache: (1, 8) became (1, 9)`; '' if there is none."""
        for h, value in self._kept:
            now = h.container[h.key] if isinstance(h.container, dict) and h.key in h.container else None
            if isinstance(now, Tensor) and now.shape != value.shape:
                return f"{h.name}: {tuple(value.shape)} became {tuple(now.shape)}"
        return ""
