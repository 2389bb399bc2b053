"""Gate 1's compile: real machine code for a GPU that need not be there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from kernelopt_bot.compiler._runtime import evaluate
from kernelopt_bot.contract.candidate import Launch, Plan
from kernelopt_bot.sandbox.worker import facts
from kernelopt_bot.sandbox.worker.kernels import (
    interpreting,
    load_baseline,
    load_candidate,
    pretended_driver,
    run_time_parameters,
)
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

TRITON_TYPE = {
    "float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "int64": "i64", "int32": "i32",
    "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "i1", "float8_e4m3fn": "fp8e4nv", "float8_e5m2": "fp8e5",
    "uint16": "u16", "uint32": "u32", "uint64": "u64",
}
"""torch's dtype name -> Triton's spelling in signatures."""
DIVISIBLE = [["tt.divisibility", 16]]
WORDS_LIMIT = 4000


def _compile(function: Any, signature: Mapping[str, str], constants: Mapping[str, Any], attributes: Any,
             options: Mapping[str, Any], arch: int) -> dict[str, Any]:
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    source = ASTSource(function, dict(signature), dict(constants), attributes)
    try:
        binary = triton.compile(source, target=GPUTarget("cuda", arch, 32), options=dict(options))
    except Exception as e:
        raise WorkerFault("compile_failed", words(e)) from e
    return facts.of_cubin(binary.asm["cubin"], binary.metadata)


def words(error: BaseException) -> str:
    """The compiler's own message, cause included, cut to a readable length."""
    parts = [f"{type(error).__name__}: {error}"]
    if error.__cause__ is not None and str(error.__cause__) not in parts[0]:
        parts.append(f"caused by {type(error.__cause__).__name__}: {error.__cause__}")
    text = "\n".join(parts)
    return text if len(text) <= WORDS_LIMIT else text[:WORDS_LIMIT] + " ..."


def _need_compiler() -> None:
    if interpreting():
        raise WorkerFault("bad_request", "this worker interprets kernels: compile in a worker without interpret")


def compile_baseline(source: str, arch: int, folder: str) -> dict[str, Any]:
    """Method `compile_baseline`: every configuration that Inductor's heuristics offer, with its Facts.

    A configuration that the compiler refuses (too much shared memory) has `error` instead of `facts`.
    Raises WorkerFault compile_failed if none compiles.
    """
    _need_compiler()
    kernel = load_baseline(source, os.path.join(folder, "kernels"), arch)
    meta = kernel.triton_meta
    configs: list[dict[str, Any]] = []
    failure: WorkerFault | None = None
    for config in kernel.configs:
        constants = {**meta.get("constants", {}), **kernel.constants(config)}
        options = {"num_warps": config.num_warps, "num_stages": config.num_stages, "sanitize_overflow": False,
                   "debug": bool(kernel.inductor_meta.get("assert_indirect_indexing", True)),
                   "enable_fp_fusion": bool(meta.get("enable_fp_fusion", True)),
                   "launch_cooperative_grid": bool(meta.get("launch_cooperative_grid", False))}
        entry: dict[str, Any] = {"constexprs": kernel.constants(config), "num_warps": config.num_warps,
                                 "num_stages": config.num_stages}
        try:
            with pretended_driver(arch):
                entry["facts"] = _compile(kernel.function, meta["signature"], constants, meta["configs"][0], options, arch)
        except WorkerFault as e:
            failure = e
            entry["error"] = e.message
        configs.append(entry)
    if failure is not None and not any("facts" in c for c in configs):
        raise failure
    return {"configs": configs, "grid_type": kernel.inductor_meta.get("grid_type", ""), "parameters": list(kernel.parameters)}


def argument_type(expression: str, plan: Plan, integers: Mapping[str, int]) -> tuple[str, bool]:
    """(Triton type, multiple of 16) of one launch argument: a parameter, a scratch buffer or an integer expression."""
    for parameter in plan.parameters:
        if parameter.name == expression:
            if parameter.type.startswith("*") or parameter.name not in integers:
                return parameter.type, parameter.divisible
            return parameter.type, integers[parameter.name] % 16 == 0
    for scratch in plan.scratch:
        if scratch.name == expression:
            return "*" + TRITON_TYPE[scratch.dtype], True
    value = evaluate(expression, integers)
    return ("i32" if -(2**31) <= value < 2**31 else "i64"), value % 16 == 0


def compile_launch(launch: Launch, plan: Plan, functions: Mapping[str, Any], integers: Mapping[str, int],
                   arch: int) -> dict[str, Any]:
    """Facts of one launch. Raises WorkerFault compile_failed."""
    function = functions.get(launch.function)
    if function is None:
        raise WorkerFault("compile_failed", f"the source defines no jitted function {launch.function!r}")
    names = run_time_parameters(function)
    if len(names) != len(launch.arguments):
        raise WorkerFault("compile_failed", f"{launch.function} takes {names}, the plan passes {launch.arguments}")
    signature: dict[str, str] = {}
    attributes: dict[tuple[int, ...], list[list[Any]]] = {}
    types = {n: argument_type(a, plan, integers) for n, a in zip(names, launch.arguments, strict=True)}
    for position, name in enumerate(function.arg_names):
        if name in types:
            signature[name], divisible = types[name]
            if divisible:
                attributes[(position,)] = DIVISIBLE
        elif name in launch.constexprs:
            signature[name] = "constexpr"
        else:
            raise WorkerFault("compile_failed", f"{launch.function} needs a value for constexpr {name!r}")
    options: dict[str, Any] = {"num_warps": launch.num_warps, "num_stages": launch.num_stages, "num_ctas": launch.num_ctas,
                               "sanitize_overflow": False}
    if launch.maxnreg is not None:
        options["maxnreg"] = launch.maxnreg
    with pretended_driver(arch):
        return _compile(function, signature, launch.constexprs, attributes, options, arch)


def compile_candidate(source: str, plan: Plan, integers: Mapping[str, int], arch: int, folder: str) -> dict[str, Any]:
    """Method `compile_candidate`: Facts of each launch. Raises WorkerFault compile_failed."""
    _need_compiler()
    functions = load_candidate(source, os.path.join(folder, "kernels"))
    return {"launches": [compile_launch(launch, plan, functions, integers, arch) for launch in plan.launches]}
