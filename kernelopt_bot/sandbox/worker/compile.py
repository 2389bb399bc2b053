"""Gate 1's compile: real machine code for a GPU that need not be there."""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelopt_bot.compiler._runtime import KernelSource, PlanError, RenderedLaunch, read_kernel, render
from kernelopt_bot.contract.candidate import Launch, Parameter, Plan
from kernelopt_bot.sandbox.worker import facts
from kernelopt_bot.sandbox.worker.kernels import BaselineKernel, load_baseline, pretended_driver
from kernelopt_bot.sandbox.worker.lane import ASSUMED_MULTIPROCESSORS, interpreting
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

WORDS_LIMIT = 4000


_WARM = """import triton
import triton.language as tl


@triton.jit
def warm(out_ptr0, XBLOCK: tl.constexpr):
    tl.store(out_ptr0 + tl.arange(0, XBLOCK), tl.zeros([XBLOCK], tl.float32))
"""
_WARM_PLAN = Plan((Parameter("out_ptr0", "*fp32", written=True, read=False),),
                  (Launch("warm", ("1",), ("out_ptr0",), {"XBLOCK": 64}),))


def words(error: BaseException) -> str:
    """The compiler's own message, cause included, cut to a readable length."""
    parts = [f"{type(error).__name__}: {error}"]
    if error.__cause__ is not None and str(error.__cause__) not in parts[0]:
        parts.append(f"caused by {type(error.__cause__).__name__}: {error.__cause__}")
    text = "\n".join(parts)
    return text if len(text) <= WORDS_LIMIT else text[:WORDS_LIMIT] + " ..."


@functools.lru_cache(maxsize=1)
def warm_up(folder: str) -> None:
    """Import and load all that compiling takes, some seconds, so that forks of this process need not. CUDA is not
    started."""
    with pretended_driver(90, always=True):
        compile_candidate(_WARM, _WARM_PLAN, {}, 90, folder)


def _need_compiler() -> None:
    if interpreting():
        raise WorkerFault("bad_request", "this worker interprets kernels: compile in a worker without interpret")


def _compile(kernel: BaselineKernel, config: Any, arch: int) -> dict[str, Any]:
    """Facts of a kernel under one configuration, compiled as Inductor would. Raises WorkerFault compile_failed."""
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    meta = kernel.triton_meta
    constants = {**meta.get("constants", {}), **kernel.constants(config)}
    options = {
        "num_warps": config.num_warps, "num_stages": config.num_stages, "sanitize_overflow": False,
        "debug": bool(kernel.inductor_meta.get("assert_indirect_indexing", True)),
        "enable_fp_fusion": bool(meta.get("enable_fp_fusion", True)),
        "launch_cooperative_grid": bool(meta.get("launch_cooperative_grid", False)),
    }
    source = ASTSource(kernel.function, dict(meta["signature"]), constants, meta["configs"][0])
    try:
        with pretended_driver(arch):
            binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=options)
    except Exception as e:
        raise WorkerFault("compile_failed", words(e)) from e
    return facts.of_cubin(binary.asm["cubin"], binary.metadata)


@functools.lru_cache(maxsize=64)  # a search asks once for each candidate of a kernel
def compile_baseline(source: str, arch: int, folder: str) -> dict[str, Any]:
    """Method `compile_baseline`: every configuration that Inductor's heuristics offer, with its Facts.

    A configuration that the compiler refuses (too much shared memory) has `error` instead of `facts`.
    Raises WorkerFault compile_failed if none compiles.
    """
    _need_compiler()
    kernel = load_baseline(source, os.path.join(folder, "kernels"), arch)
    configs: list[dict[str, Any]] = []
    failure: WorkerFault | None = None
    for config in kernel.configs:
        entry: dict[str, Any] = {"constexprs": kernel.constants(config), "num_warps": config.num_warps,
                                 "num_stages": config.num_stages}
        try:
            entry["facts"] = _compile(kernel, config, arch)
        except WorkerFault as e:
            failure = e
            entry["error"] = e.message
        configs.append(entry)
    if failure is not None and not any("facts" in c for c in configs):
        raise failure
    grid_type = kernel.inductor_meta.get("grid_type", "")
    return {"configs": configs, "grid_type": grid_type, "parameters": list(kernel.parameters)}


def rendered(source: str, plan: Plan, kernel: KernelSource, integers: Mapping[str, Any]) -> tuple[RenderedLaunch, ...]:
    """A candidate's launches exactly as the artifact will hold them. Raises WorkerFault compile_failed.

    What the plan claims about alignment counts only where the compiler's own kernel relies on it too.
    """
    data = plan.to_json()
    for parameter in data["parameters"]:
        known = kernel.signature.get(parameter["name"])
        if known is not None:
            parameter["divisible"] = bool(parameter["divisible"]) and parameter["name"] in kernel.divisible
            if parameter["type"] != known and not (known == "constexpr" and parameter["type"] in ("i32", "i64")):
                what = f"{parameter['name']} is {known}, the plan says {parameter['type']}"
                raise WorkerFault("compile_failed", what)
    numbers = {n: v for n, v in integers.items() if isinstance(v, int) and not isinstance(v, bool)}
    try:
        return render(source, data, kernel, numbers)
    except PlanError as e:
        raise WorkerFault("compile_failed", f"the plan cannot be rendered: {e}") from e


def any_kernel(arch: int) -> KernelSource:
    """Stands in for a baseline that is not at hand: device properties of `arch` and nothing else known."""
    device = (f"DeviceProperties(type='cuda', index=0, multi_processor_count={ASSUMED_MULTIPROCESSORS}, cc={arch}, "
              f"major={arch // 10}, warp_size=32)")
    return KernelSource(name="", language="triton", text="", lines=(0, 0), hash="", meta={"device": device},
                        multiprocessors=ASSUMED_MULTIPROCESSORS, capability=arch)


def compile_candidate(
    source: str, plan: Plan, integers: Mapping[str, int], arch: int, folder: str, baseline: str = "",
    slots: Sequence[Mapping[str, Any]] = (),
) -> dict[str, Any]:
    """Method `compile_candidate`: Facts of each launch. Raises WorkerFault compile_failed.

    With the source of the `baseline` kernel (of a run: its first), its floating-point options and alignment bind the
    candidate. `slots` of a run, {name, type, divisible}, bind it instead of the kernel's own parameters.
    """
    _need_compiler()
    kernel = read_kernel(baseline) if baseline else any_kernel(arch)
    if slots:
        kernel = replace(kernel, signature={str(s["name"]): str(s["type"]) for s in slots},
                         divisible=frozenset(str(s["name"]) for s in slots if s["divisible"]))
    launches = []
    for launch in rendered(source, plan, kernel, integers):
        loaded = load_baseline(launch.source, os.path.join(folder, "kernels"), arch)
        launches.append(_compile(loaded, loaded.configs[0], arch))
    return {"launches": launches}
