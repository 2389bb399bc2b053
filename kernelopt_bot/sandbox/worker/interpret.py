"""Launching kernels on the CPU under Triton's interpreter."""

from __future__ import annotations

import importlib
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from kernelopt_bot.sandbox.worker.kernels import BaselineKernel, load_baseline
from kernelopt_bot.sandbox.worker.lane import need_lane
from kernelopt_bot.sandbox.worker.protocol import WorkerFault


def _repair() -> None:
    """The repairs need numpy, which only this lane may import."""
    need_lane("interpret")
    importlib.import_module("kernelopt_bot.sandbox.worker.shim").install()


@contextmanager
def _quiet() -> Iterator[None]:
    """numpy warns where a GPU yields inf or nan."""
    numpy = importlib.import_module("numpy")
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


class DeadlinePassed(BaseException):
    """The interpreter lane's time is used up. Not an Exception: the interpreter wraps those."""


@contextmanager
def deadline(at: float | None) -> Iterator[None]:
    """Launches inside raise DeadlinePassed at the first program that starts after `at` (seconds of time.monotonic)."""
    _repair()
    builder = importlib.import_module("triton.runtime.interpreter").interpreter_builder
    original = builder.set_grid_idx

    def set_grid_idx(x: int, y: int, z: int) -> None:
        if at is not None and time.monotonic() > at:
            raise DeadlinePassed
        original(x, y, z)

    builder.set_grid_idx = set_grid_idx
    try:
        yield
    finally:
        del builder.set_grid_idx


@contextmanager
def reversed_order() -> Iterator[None]:
    """Launches inside run their programs from the last to the first."""
    _repair()
    builder = importlib.import_module("triton.runtime.interpreter").interpreter_builder
    outer = vars(builder).get("set_grid_idx")
    set_grid_idx = builder.set_grid_idx

    def from_the_end(x: int, y: int, z: int) -> None:
        last = [n - 1 for n in builder.grid_dim]
        set_grid_idx(last[0] - x, last[1] - y, last[2] - z)

    builder.set_grid_idx = from_the_end
    try:
        yield
    finally:
        if outer is None:
            del builder.set_grid_idx
        else:
            builder.set_grid_idx = outer


def launch(function: Any, grid: Sequence[int], arguments: Mapping[str, Any]) -> None:
    """Run `function[grid](**arguments)` in this thread, programs in order; tensors are changed in place.

    Raises WorkerFault runtime_failed with the interpreter's words, or unsupported for what it cannot run.
    """
    _repair()
    x, y, z = [*(int(n) for n in grid), 1, 1][:3]
    if min(x, y, z) < 1:
        return
    try:
        tensors = [a for a in arguments.values() if isinstance(a, Tensor)]
        with _quiet(), importlib.import_module("kernelopt_bot.sandbox.worker.memcheck").only(tensors):
            function[(x, y, z)](**arguments)
    except WorkerFault:
        raise
    except Exception as e:
        cause: BaseException = e
        while cause.__cause__ is not None:
            cause = cause.__cause__
        kind = "unsupported" if isinstance(cause, NotImplementedError) else "runtime_failed"
        raise WorkerFault(kind, f"{type(cause).__name__}: {str(cause)[:2000]}") from e


def run_baseline(kernel: BaselineKernel, arguments: Sequence[Any], config: Any = None) -> None:
    """What `.run(*arguments)` of the generated kernel does, under `config` or, of Inductor's choices, that of fewest
    programs: the interpreter's time goes with their number."""
    bound = kernel.bind(arguments)
    chosen = config or min(kernel.configs, key=lambda c: math.prod(kernel.grid(c, bound)))
    grid = kernel.grid(chosen, bound)
    constants = kernel.constants(chosen)
    own = {n: v for n, v in bound.items() if n in kernel.function.arg_names}
    launch(kernel.function, grid, {**constants, **own})


class InterpretedKernel:
    """Has the `.run` of Inductor's autotuner."""

    def __init__(self, source: str, folder: str) -> None:
        self.kernel = load_baseline(source, folder)

    def run(self, *arguments: Any, stream: Any = None, grid: Any = None, **ignored: Any) -> None:
        run_baseline(self.kernel, arguments)
