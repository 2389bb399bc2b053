"""Loading kernel sources: Inductor's generated kernels with their configurations, and candidates.

Works in both lanes: with a compiler (`triton.jit` gives a JITFunction) and under `TRITON_INTERPRET=1`
(an InterpretedFunction). Executing a source is executing code: only ever inside the jail.
"""

from __future__ import annotations

import ast
import copy
import hashlib
import importlib
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch

from kernelopt_bot.sandbox.worker.lane import interpreting
from kernelopt_bot.sandbox.worker.protocol import WorkerFault


@dataclass(frozen=True)
class BaselineKernel:
    """A generated kernel as Inductor would launch it, taken apart instead of autotuned."""

    name: str
    function: Any
    """The JITFunction or InterpretedFunction."""
    configs: tuple[Any, ...]
    """`triton.Config`s from Inductor's own heuristics, best guess first."""
    triton_meta: Mapping[str, Any]
    inductor_meta: Mapping[str, Any]
    source: str

    @property
    def parameters(self) -> tuple[str, ...]:
        """Run-time parameters in call order: those not annotated constexpr, then extra launcher arguments."""
        return run_time_parameters(self.function) + tuple(self.inductor_meta.get("extra_launcher_args", ()))

    @property
    def signature(self) -> dict[str, str]:
        return dict(self.triton_meta["signature"])

    def bind(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Positional arguments of `.run` by parameter name. Raises WorkerFault if the count is wrong."""
        names = self.parameters
        if len(names) != len(arguments):
            raise WorkerFault("bad_request", f"{self.name} takes {len(names)} arguments {names}, got {len(arguments)}")
        return dict(zip(names, arguments, strict=True))

    def constants(self, config: Any) -> dict[str, Any]:
        """Every constexpr's value under `config`."""
        fixed = {k: v for k, v in self.triton_meta.get("constants", {}).items() if isinstance(k, str)}
        values = {**fixed, **config.kwargs}
        for name in self.function.arg_names:
            if name in ("num_warps", "num_stages") and name not in values:
                values[name] = getattr(config, name)
        return {k: v for k, v in values.items() if k in self.function.arg_names}

    def grid(self, config: Any, bound: Mapping[str, Any]) -> tuple[int, int, int]:
        """The launch grid of `config` for the bound integers, by Inductor's own grid expressions."""
        from torch._inductor.runtime import triton_heuristics

        integers = {k: v for k, v in bound.items() if isinstance(v, int)}
        meta = {**integers, **config.kwargs}
        grid = triton_heuristics.GridExpr.from_meta(dict(self.inductor_meta), config).eval_slow(meta)
        x, y, z = (int(n) for n in grid)
        return x, y, z


def run_time_parameters(function: Any) -> tuple[str, ...]:
    """Parameters of a jitted function that are not annotated `tl.constexpr`, in order."""
    parameters = inspect.signature(function.fn).parameters.values()
    return tuple(p.name for p in parameters if "constexpr" not in str(p.annotation))


def write_source(source: str, folder: str, stem: str) -> str:
    """A real file for `source`: Triton reads functions back by `inspect`."""
    os.makedirs(folder, exist_ok=True)
    path = os.path.join(folder, f"{stem}_{hashlib.sha256(source.encode()).hexdigest()[:16]}.py")
    with open(path, "w", encoding="utf-8") as f:
        f.write(source)
    return path


def execute(source: str, folder: str, stem: str) -> dict[str, Any]:
    """Run a kernel source's module level. Raises WorkerFault compile_failed with Python's own words."""
    if interpreting():
        # the source binds libdevice when it is imported, so the repairs come first; they need numpy
        importlib.import_module("kernelopt_bot.sandbox.worker.shim").install()
    path = write_source(source, folder, stem)
    names: dict[str, Any] = {"__name__": stem, "__file__": path}
    try:
        exec(compile(source, path, "exec"), names)
    except WorkerFault:
        raise
    except Exception as e:
        raise WorkerFault("compile_failed", f"the source cannot be loaded: {type(e).__name__}: {e}") from e
    return names


class PretendedDriver:
    """Stands in for Triton's CUDA driver while heuristics run or kernels compile on a machine without a GPU."""

    def __init__(self, arch: int) -> None:
        self.arch = arch

    def get_current_target(self) -> Any:
        return importlib.import_module("triton.backends.compiler").GPUTarget("cuda", self.arch, 32)

    def get_current_device(self) -> int:
        return 0

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return divmod(self.arch, 10)

    def get_active_torch_device(self) -> torch.device:
        return torch.device("cuda", 0)


@contextmanager
def pretended_driver(arch: int, *, always: bool = False) -> Iterator[None]:
    """No effect where a GPU is usable, unless `always`."""
    if not always and torch.cuda.is_available():
        yield
        return
    driver = importlib.import_module("triton.runtime").driver
    with mock.patch.object(driver, "_active", PretendedDriver(arch)):
        yield


@contextmanager
def heuristics_recorded(found: list[dict[str, Any]]) -> Iterator[None]:
    """Inductor's heuristics run as usual, but hand their configurations to `found` instead of an autotuner."""
    from torch._inductor.runtime import triton_helpers, triton_heuristics

    def cached_autotune(size_hints: Any, configs: Any, triton_meta: Any, *args: Any, inductor_meta: Any = None,
                        **kwargs: Any) -> Any:
        def decorate(function: Any) -> Any:
            found.append({"function": function, "configs": tuple(configs), "triton_meta": triton_meta,
                          "inductor_meta": dict(inductor_meta or {})})
            return function

        return decorate

    with mock.patch.object(triton_heuristics, "cached_autotune", cached_autotune), \
            mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None):
        yield


def load_baseline(source: str, folder: str, arch: int = 90) -> BaselineKernel:
    """A generated kernel's source, executed with its decorators recorded.

    Raises WorkerFault compile_failed if it cannot be executed or holds no kernel of Inductor's.
    """
    found: list[dict[str, Any]] = []
    with pretended_driver(arch), heuristics_recorded(found):
        execute(source, folder, "baseline")
    if not found:
        raise WorkerFault("compile_failed", "the source holds no kernel decorated by Inductor's heuristics")
    record = found[-1]
    function = record["function"]
    return BaselineKernel(
        name=function.__name__, function=function, configs=record["configs"],
        triton_meta=copy.deepcopy(record["triton_meta"]), inductor_meta=record["inductor_meta"], source=source,
    )


def pointer_use(source: str, function: str) -> tuple[frozenset[str], frozenset[str]]:
    """Parameters that a kernel's source (loads from, stores to), by its text.

    A parameter counts as stored to where it appears in the pointer of `tl.store` or an atomic, and as loaded from
    where it appears anywhere else, atomics included.
    """
    tree = next(n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.FunctionDef) and n.name == function)
    parameters = {a.arg for a in tree.args.args}
    stored: set[str] = set()
    only_stored: list[ast.AST] = []
    for call in (n for n in ast.walk(tree) if isinstance(n, ast.Call) and isinstance(n.func, ast.Attribute) and n.args):
        attribute = call.func.attr if isinstance(call.func, ast.Attribute) else ""
        if attribute == "store" or attribute.startswith("atomic_"):
            stored |= _names(call.args[0]) & parameters
            if attribute == "store":
                only_stored += [n for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)]
    skip = {id(n) for n in only_stored}
    read = (n for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load))
    loaded = {n.id for n in read if id(n) not in skip}
    return frozenset(loaded & parameters), frozenset(stored)


def _names(node: ast.AST) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
