"""Running a wrapper made for a GPU on the CPU: its kernels interpreted, its vendor calls by ATen.

With an artifact, the artifact's own substitution runs first, so that what is verified is what ships.
"""

from __future__ import annotations

import importlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from kernelopt_bot.compiler._runtime import ArtifactError, load_manifest, substitute
from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.foreign import standing_in
from kernelopt_bot.sandbox.worker.interpret import InterpretedKernel
from kernelopt_bot.sandbox.worker.lane import need_lane
from kernelopt_bot.sandbox.worker.precision import same_bits
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.record import Recorder, run_hooked


class InterpretingCompile:
    """Stands in for Inductor's `AsyncCompile`: Triton kernels are interpreted, C++ ones compiled as ever."""

    def __init__(self, folder: str, real: Any) -> None:
        self._folder, self._real = folder, real

    def triton(self, name: str, source: str, device_str: str = "cuda", **ignored: Any) -> InterpretedKernel:
        return InterpretedKernel(source, self._folder)

    def multi_kernel(self, name: str, kernels: Any, arg_index: Mapping[int, Any] | None = None, **ignored: Any) -> Any:
        return _FirstOfMany(kernels[0], (arg_index or {}).get(0))

    def wait(self, scope: dict[str, Any]) -> None:
        """Nothing is compiled in the background, but C++ kernels are waited for by their own means."""
        self._real.wait(scope)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)


class _FirstOfMany:
    """A multi-kernel chooses by timing on a GPU; here its first variant is as good as any."""

    def __init__(self, kernel: Any, slices: Any) -> None:
        self._kernel, self._slices = kernel, slices

    def run(self, *arguments: Any, **keywords: Any) -> None:
        chosen = arguments if self._slices is None else tuple(a for s in self._slices for a in arguments[s])
        self._kernel.run(*chosen, **keywords)


class _NoGuard:
    def __init__(self, *ignored: Any) -> None: ...

    def __enter__(self) -> _NoGuard:
        return self

    def __exit__(self, *ignored: Any) -> None: ...


@contextmanager
def _on_the_cpu(folder: str) -> Iterator[None]:
    """What a wrapper for a GPU asks of torch, answered on the CPU."""
    async_compile = importlib.import_module("torch._inductor.async_compile")
    real = async_compile.AsyncCompile
    with ExitStack() as stack:
        for patch in (
            mock.patch.object(async_compile, "AsyncCompile", lambda: InterpretingCompile(folder, real())),
            mock.patch("torch._C._cuda_getCurrentRawStream", lambda device: 0, create=True),
            mock.patch("torch.cuda._DeviceGuard", _NoGuard),
            mock.patch("torch.cuda.set_device", lambda device: None),
        ):
            stack.enter_context(patch)
        yield


class _CpuRecorder(Recorder):
    def prepare(self, names: dict[str, Any]) -> None:
        if "empty_strided_cpu" in names:
            names["empty_strided_cuda"] = names["empty_strided_cpu"]
        names["device"] = lambda *ignored, **also: torch.device("cpu")
        super().prepare(names)


def interpret_graph(params: Mapping[str, Any], scratch: tensors.Scratch, folder: str) -> dict[str, Any]:
    """Method `interpret_graph` of docs/architecture.md: {outputs, changed, calls, seconds, replaced}.

    Outputs that are no tensors come as they are; `changed` has the inputs whose contents the run changed, by position.
    `constants` ({global: TensorRef}) are set in the wrapper. `replaced` is {run hash: count} of what the artifact
    replaced, null without one. Raises WorkerFault unsupported or runtime_failed.
    """
    need_lane("interpret")
    started = time.monotonic()
    source = str(params["source"])
    replaced: dict[str, int] | None = None
    if params.get("artifact"):
        source, replaced = _substituted(source, str(params["artifact"]))
    inputs = [_input(scratch, value) for value in params["inputs"]]
    constants = {name: tensors.load(scratch, ref) for name, ref in params.get("constants", {}).items()}
    limit = int(params.get("save_limit_bytes", 0))
    try:
        with _on_the_cpu(folder), standing_in(params.get("foreign", ()), scratch):
            outputs, recorder = run_hooked(source, constants, inputs, lambda text: _CpuRecorder(scratch, text, limit))
    except WorkerFault:
        raise
    except NotImplementedError as e:
        raise WorkerFault("unsupported", f"the wrapper calls what has no CPU form: {str(e)[:1000]}") from e
    except Exception as e:
        raise WorkerFault("runtime_failed", f"the wrapper failed: {type(e).__name__}: {str(e)[:1000]}") from e
    assert isinstance(recorder, _CpuRecorder)
    saved = [tensors.save(scratch, o) if isinstance(o, Tensor) else o for o in outputs]
    changed = {str(i): tensors.save(scratch, now) for i, (now, before) in enumerate(zip(inputs, params["inputs"],
                                                                                         strict=True))
               if isinstance(now, Tensor) and not same_bits(now, tensors.load(scratch, before))}
    return {"outputs": saved, "changed": changed, "calls": recorder.calls, "seconds": time.monotonic() - started,
            "replaced": replaced}


def _input(scratch: tensors.Scratch, value: Any) -> Any:
    # a copy: the file is mapped, and wrappers mutate their inputs
    return tensors.clone(tensors.load(scratch, value)) if isinstance(value, dict) else value


def _substituted(source: str, folder: str) -> tuple[str, dict[str, int]]:
    try:
        done = substitute(source, load_manifest(folder).runs)
    except ArtifactError as e:
        raise WorkerFault("bad_request", str(e)) from e
    if done.skipped:
        raise WorkerFault("runtime_failed", f"runs that could not be replaced: {'; '.join(done.skipped)}")
    return done.text, dict(done.replaced)
