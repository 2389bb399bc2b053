"""Models that call `torch.compile` themselves, taken without it.

Eager is then eager, the compiler sees the whole model, and its modes are arms of their own. The compiler would look
through most of these calls anyway; where it does not (a class under the decorator, `self.compile()`), it sees nothing.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch import nn


@contextlib.contextmanager
def left_out(root: str, places: list[str]) -> Iterator[None]:
    """Within the block `torch.compile` and `Module.compile` change nothing; calls below `root` go to `places`,
    `path.py:12` each once."""

    def note() -> None:
        frame = sys._getframe(2)
        file = os.path.realpath(frame.f_code.co_filename)
        if file.startswith(root + os.sep):
            place = f"{os.path.relpath(file, root)}:{frame.f_lineno}"
            if place not in places:
                places.append(place)

    def compile(model: Any = None, **ignored: Any) -> Any:
        note()
        return _same if model is None else _same(model)

    def own_compile(self: nn.Module, *ignored: Any, **also: Any) -> None:
        note()

    with mock.patch.object(torch, "compile", compile), mock.patch.object(nn.Module, "compile", own_compile):
        yield


def _same(model: Callable[..., Any]) -> Callable[..., Any]:
    if isinstance(model, nn.Module):
        # By this name a compiled module's own one is reached.
        model.__dict__.setdefault("_orig_mod", model)
    return model
