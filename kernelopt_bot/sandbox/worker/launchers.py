"""One way to run a step's baseline, its float64 promotion and a candidate, in either lane."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any, Protocol

import torch
from torch import Tensor

from kernelopt_bot.compiler._runtime import KernelSource, read_kernel, render_scratch
from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker import interpret
from kernelopt_bot.sandbox.worker.buffers import GUARD_BYTE
from kernelopt_bot.sandbox.worker.compile import rendered, words
from kernelopt_bot.sandbox.worker.kernels import (
    BaselineKernel,
    execute,
    load_baseline,
    pointer_use,
)
from kernelopt_bot.sandbox.worker.lane import Lane
from kernelopt_bot.sandbox.worker.promote import promote
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

LOST = "the GPU context is lost: restart the worker"
"""`detail` of a fault after which this process cannot use the GPU any more."""


class Runner(Protocol):
    """Launches on named arguments; `synchronize` in the cuda lane is the caller's."""

    def __call__(self, arguments: Mapping[str, Any]) -> None: ...


class Replaced(Protocol):
    """What a candidate replaces: one kernel, or a run of them. Names are those that the candidate's plan uses."""

    lane: Lane
    folder: str
    """Where kernel sources are written."""
    name: str
    bound: KernelSource
    """Types, alignment and device properties that bind the plan."""
    loaded: AbstractSet[str]
    """Arguments whose former contents count."""
    stored: AbstractSet[str]
    """Arguments whose contents afterwards count."""
    changed: AbstractSet[str]
    """Arguments that the baseline stores to, those that do not count included."""

    def bind(self, arguments: Sequence[Any]) -> dict[str, Any]: ...

    def promoted(self) -> Runner: ...

    def __call__(self, arguments: Mapping[str, Any]) -> None: ...


class Baseline:
    """A kernel in Inductor's form: by Inductor's autotuner on a GPU, by its first configuration interpreted."""

    def __init__(self, source: str, folder: str, lane: Lane, reads: Iterable[str] | None = None) -> None:
        """`reads`: parameters whose former contents count, where they are known better than by the source's text: a
        user's kernel may give the address of a store a name."""
        self.lane, self.folder = lane, os.path.join(folder, "kernels")
        self.kernel: BaselineKernel = load_baseline(source, self.folder)
        self._tuned = _autotuner(source, self.folder) if lane == "cuda" else None
        loaded, stored = pointer_use(source, self.kernel.name)
        self.name = self.kernel.name
        self.bound = read_kernel(source)
        self.stored: AbstractSet[str] = stored | set(self.kernel.inductor_meta.get("mutated_arg_names", ()))
        self.loaded: AbstractSet[str] = loaded if reads is None else frozenset(reads)
        self.changed: AbstractSet[str] = self.stored

    def bind(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """Positional arguments by parameter name. Raises WorkerFault if the count is wrong."""
        return self.kernel.bind(arguments)

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        self.launch([arguments[n] for n in self.kernel.parameters])

    def launch(self, values: Sequence[Any]) -> None:
        """`.run` of the wrapper, by position."""
        if self._tuned is None:
            interpret.run_baseline(self.kernel, values)
        else:
            self._tuned.run(*values, stream=torch.cuda.current_stream().cuda_stream)

    def promoted(self) -> Promoted:
        """Raises CannotPromote."""
        return Promoted(load_baseline(promote(self.kernel.source), self.folder), self.lane)


class Promoted:
    """The baseline in float64, under the first of its configurations that fits the GPU."""

    def __init__(self, kernel: BaselineKernel, lane: Lane) -> None:
        self.kernel, self.lane = kernel, lane

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        values = [arguments[n] for n in self.kernel.parameters]
        if self.lane == "interpret":
            interpret.run_baseline(self.kernel, values)
            return
        bound = self.kernel.bind(values)
        own = {n: v for n, v in bound.items() if n in self.kernel.function.arg_names}
        failure: Exception | None = None
        for config in self.kernel.configs:
            try:
                self.kernel.function[self.kernel.grid(config, bound)](
                    **own, **self.kernel.constants(config), num_warps=config.num_warps, num_stages=config.num_stages)
                return
            except Exception as e:
                if "out of resource" not in str(e):
                    raise
                failure = e
        raise WorkerFault("unsupported", f"no configuration of the float64 reference fits: {failure}")


def _autotuner(source: str, folder: str) -> Any:
    names = execute(source, folder, "autotuned")
    found = [v for v in names.values() if type(v).__name__.endswith("Autotuner") and hasattr(v, "run")]
    if not found:
        raise WorkerFault("compile_failed", "the source holds no kernel of Inductor's autotuner")
    return found[-1]


class Candidate:
    """A candidate's launches in order, rendered as the artifact will hold them, scratch buffers included."""

    def __init__(
        self, source: str, plan: Plan, baseline: Replaced, integers: Mapping[str, Any], device: torch.device
    ) -> None:
        kernel = baseline.bound
        self.plan, self.device = plan, device
        self.launches = rendered(source, plan, kernel, integers)
        numbers = {n: v for n, v in integers.items() if isinstance(v, int)}
        self.scratch = render_scratch(plan.to_json(), {**numbers, "num_sms": kernel.multiprocessors})
        self.kernels = [Baseline(launch.source, baseline.folder, baseline.lane) for launch in self.launches]

    @property
    def scratch_bytes(self) -> int:
        return sum(s.elements * getattr(torch, s.dtype).itemsize for s in self.scratch)

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        known = {**{p.name: arguments[p.name] for p in self.plan.parameters}, **self._allocate()}
        for launch, kernel in zip(self.launches, self.kernels, strict=True):
            kernel.launch([known[a] if isinstance(a, str) else a for a in launch.arguments])

    def _allocate(self) -> dict[str, Tensor]:
        made = {}
        for s in self.scratch:
            if s.zeroed:
                made[s.name] = torch.zeros(s.elements, dtype=getattr(torch, s.dtype), device=self.device)
            else:
                # not torch.empty: what a candidate reads before it writes must show
                raw = torch.full((s.elements * getattr(torch, s.dtype).itemsize,), GUARD_BYTE, dtype=torch.uint8,
                                 device=self.device)
                made[s.name] = raw.view(getattr(torch, s.dtype))
        return made


def run(runner: Runner, arguments: Mapping[str, Any], device: torch.device, who: str) -> None:
    """Launch and wait. Raises WorkerFault runtime_failed or compile_failed, naming `who`; `detail` is LOST after a
    CUDA error, which no later call in this process survives."""
    try:
        runner(arguments)
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    except WorkerFault as e:
        raise WorkerFault(e.kind, f"{who}: {e.message}", e.detail) from e
    except torch.OutOfMemoryError as e:
        raise WorkerFault("out_of_memory", f"{who}: {e}") from e
    except Exception as e:
        if device.type == "cuda" and lost(device):
            raise WorkerFault("runtime_failed", f"{who}: {words(e)}", LOST) from e
        compiling = "Compilation" in type(e).__name__ or "out of resource" in str(e)
        raise WorkerFault("compile_failed" if compiling else "runtime_failed", f"{who}: {words(e)}") from e


def lost(device: torch.device) -> bool:
    """Whether the GPU context of this process is unusable."""
    try:
        torch.cuda.synchronize(device)
        return bool(torch.ones(1, device=device).item() != 1)
    except RuntimeError:
        return True
