"""`profile`: the time of each step of a wrapper alone, and of the whole compiled call.

On a GPU a step is timed by events: the device is first kept busy for longer than the host needs to enqueue the
step, so that launch gaps do not count, and the L2 cache is overwritten. On a CPU it is the wall time of the step.
"""

from __future__ import annotations

import ast
import itertools
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.compiler._runtime import read_wrapper
from kernelopt_bot.compiler.instrument import Instrumented
from kernelopt_bot.sandbox.worker.arms import Arm, build
from kernelopt_bot.sandbox.worker.capture import captured, compiler_faults, fresh_compiler
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.record import run_hooked
from kernelopt_bot.sandbox.worker.tensors import storage_key

WARM_UP = 2
LEAST_BUSY_S = 50e-6
BUSY_FACTOR = 3.0
"""The device's head start, in units of the host's time to enqueue the step."""
CALLS_PER_REPEAT = 2


def step_indices(source: str) -> dict[int, int]:
    """Line of each kernel and vendor call -> `Step.index`: the number of the statement in the order of execution, a
    partition's statements where it is called."""
    wrapper = read_wrapper(source)
    indices: dict[int, int] = {}
    numbers = itertools.count()

    def walk(function: str) -> None:
        for statement in wrapper.statements:
            if statement.scope.name != function:
                continue
            if statement.kind != "partition":
                number = next(numbers)
                if statement.kind in ("kernel", "vendor"):
                    indices[statement.lines[0]] = number
                continue
            for node in ast.walk(statement.node):
                if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
                    walk(f"partition_{node.slice.value!r}")
                    break

    walk("call")
    return indices


class StepTimer:
    """A hook that repeats each step on its own arguments, puts them back, and then makes the call once."""

    def __init__(self, source: str, instrumented: Instrumented, device: Device, repeats: int) -> None:
        self.steps: list[dict[str, Any]] = []
        self._sites, self._device, self._repeats = instrumented.sites, device, repeats
        self._indices = step_indices(source)

    def __call__(self, site: int, callee: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        storages: dict[tuple[str, int], torch.UntypedStorage] = {}
        for value in (*args, *kwargs.values()):
            if isinstance(value, Tensor):
                storages.setdefault(storage_key(value), value.untyped_storage())
        kept = {key: storage.clone() for key, storage in storages.items()}  # type: ignore[no-untyped-call]
        times = self._times(lambda: callee(*args, **kwargs))
        for key, storage in storages.items():
            storage.copy_(kept[key])
        at = self._sites[site]
        self.steps.append({"index": self._indices[at.line], "line": at.line, "callee": at.callee, "times_us": times})
        return callee(*args, **kwargs)

    def _times(self, step: Callable[[], Any]) -> list[float]:
        for _ in range(WARM_UP):
            step()
        self._device.wait()
        start = time.perf_counter()
        step()
        host = time.perf_counter() - start
        self._device.wait()
        if not self._device.gpu:
            times = []
            for _ in range(self._repeats):
                start = time.perf_counter()
                step()
                times.append(1e6 * (time.perf_counter() - start))
            return times
        busy, pairs = max(LEAST_BUSY_S, BUSY_FACTOR * host), []
        for _ in range(self._repeats):
            begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
            self._device.busy(busy)
            self._device.flush()
            begin.record()
            step()
            end.record()
            self._device.wait()
            pairs.append((begin, end))
        return [1e3 * begin.elapsed_time(end) for begin, end in pairs]


def profile(context: Context, params: dict[str, Any]) -> dict[str, Any]:
    """See docs/architecture.md; each step also names its `line` and `callee`.

    Under `cpp_wrapper` the wrapper is no Python text: `steps` is then empty.
    """
    target, options, repeats = current(context), dict(params.get("options") or {}), int(params["repeats"])
    graphs = captured(context, target, options)
    if not 0 <= int(params["graph"]) < len(graphs):
        raise WorkerFault("bad_request", f"there are {len(graphs)} graphs, numbered from 0")
    graph, device = graphs[int(params["graph"])], Device(target.device)
    steps: list[dict[str, Any]] = []
    if "def call(" in graph.source:
        with compiler_faults("timing the steps failed"):
            _, hook = run_hooked(graph.source, graph.constants, graph.copies(),
                                 lambda text: StepTimer(graph.source, text, device, repeats))
        assert isinstance(hook, StepTimer)
        steps = hook.steps
    fresh_compiler(context)
    arm = build(context, target, Arm("profiled", "compile", options=options))
    call_us: list[float] = []
    with torch.no_grad():
        for _ in range(CALLS_PER_REPEAT * repeats):
            args, kwargs = target.copies()
            device.flush()
            device.wait()
            start = time.perf_counter()
            arm.call(*args, **kwargs)
            device.wait()
            call_us.append(1e6 * (time.perf_counter() - start))
    arm.close()
    return {"steps": steps, "call_us": call_us}
