"""Launching kernels on the CPU under Triton's interpreter."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from kernelopt_bot.sandbox.worker import shim
from kernelopt_bot.sandbox.worker.kernels import BaselineKernel, load_baseline
from kernelopt_bot.sandbox.worker.protocol import WorkerFault


@contextmanager
def _quiet() -> Iterator[None]:
    """numpy warns where a GPU yields inf or nan."""
    numpy = importlib.import_module("numpy")
    with numpy.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        yield


def launch(function: Any, grid: Sequence[int], arguments: Mapping[str, Any]) -> None:
    """Run `function[grid](**arguments)` in this thread, programs in order; tensors are changed in place.

    Raises WorkerFault runtime_failed with the interpreter's words. A store far outside of a tensor kills the process.
    """
    shim.install()
    x, y, z = [*(int(n) for n in grid), 1, 1][:3]
    if min(x, y, z) < 1:
        return
    try:
        with _quiet():
            function[(x, y, z)](**arguments)
    except WorkerFault:
        raise
    except Exception as e:
        cause = e.__cause__ or e
        raise WorkerFault("runtime_failed", f"{type(cause).__name__}: {str(cause)[:2000]}") from e


def run_baseline(kernel: BaselineKernel, arguments: Sequence[Any], config: Any = None) -> None:
    """What `.run(*arguments)` of the generated kernel does, under `config` or Inductor's first choice."""
    chosen = config or kernel.configs[0]
    bound = kernel.bind(arguments)
    grid = kernel.grid(chosen, bound)
    constants = kernel.constants(chosen)
    own = {n: v for n, v in bound.items() if n in kernel.function.arg_names}
    launch(kernel.function, grid, {**constants, **own})


class InterpretedKernel:
    """Has the `.run` of Inductor's autotuner."""

    def __init__(self, source: str, folder: str) -> None:
        shim.install()
        self.kernel = load_baseline(source, folder)

    def run(self, *arguments: Any, stream: Any = None, grid: Any = None, **ignored: Any) -> None:
        run_baseline(self.kernel, arguments)
