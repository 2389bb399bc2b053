"""The model worker's methods.

What compiles is imported when it is first asked for: Inductor takes longer to import than a model that cannot be loaded
takes to say so. A worker that is started ahead imports it at once.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import Any

from kernelopt_bot.sandbox.worker.hello import hello
from kernelopt_bot.sandbox.worker.importing import importing
from kernelopt_bot.sandbox.worker.load import load
from kernelopt_bot.sandbox.worker.main import Context, Method
from kernelopt_bot.sandbox.worker.protocol import COMPILES

COMPILING = ("capture", "profile", "check_options", "check_model", "time_model", "device_time", "reference_graph")
"""Modules, each with the method of its name."""


_OURS = tuple(sys.path)
"""Before a target's folders are put in front: what a repository calls `sympy` is not what Inductor means by it."""


def _module(name: str) -> Any:
    full = f"kernelopt_bot.sandbox.worker.{name}"
    if (found := sys.modules.get(full)) is not None:
        return found
    before = sys.path[:]
    sys.path[:] = _OURS
    try:
        with importing():
            return importlib.import_module(full)
    finally:
        sys.path[:] = before


def _later(module: str, name: str) -> Method:
    def method(context: Context, params: dict[str, Any]) -> dict[str, Any]:
        found: Method = getattr(_module(module), name)
        return found(context, params)

    return method


METHODS: dict[str, Method] = {
    "hello": hello,
    "load": load,
    **{name: _later(name, name) for name in COMPILING},
    "first_call": _later("time_model", "first_call"),
    "record_launches": _later("record_launches", "record_launches"),
    "launch_grids": _later("record_launches", "launch_grids"),
}


def prepare(context: Context) -> None:
    """Before the first question."""
    if os.environ.get(COMPILES):
        for name in COMPILING:
            _module(name)


PREPARE = prepare
