"""A launch plan as Inductor kernels with one fixed configuration and a literal grid each."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.shipped.errors import PlanError
from kernelopt_bot.compiler.shipped.expressions import evaluate
from kernelopt_bot.compiler.shipped.kernels import KernelSource, dotted, is_constexpr

POINTER_TYPES = {
    "float64": "*fp64", "float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int64": "*i64", "int32": "*i32",
    "int16": "*i16", "int8": "*i8", "uint8": "*u8", "bool": "*i1"}
"""torch dtype of a scratch buffer -> Triton's signature spelling."""
GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""CUDA programming guide, technical specifications per compute capability: maximum grid dimensions."""
UNFIT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
"""What reading a plan of a wrong shape, or a source that is no Python, may raise."""
_PREAMBLE = """\
import triton
import triton.language as tl
from torch._inductor.runtime import triton_helpers, triton_heuristics
from torch._inductor.runtime.hints import AutotuneHint, DeviceProperties, ReductionHint, TileHint
from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math
triton_helpers.set_driver_to_gpu()

"""
_RESERVED = {"triton", "tl", "triton_helpers", "triton_heuristics", "AutotuneHint", "DeviceProperties",
             "ReductionHint", "TileHint", "libdevice", "tl_math"}
_IMPORTED = {"triton", "tl", "triton_helpers", "libdevice", "tl_math"}
"""Those that a candidate may import itself, under the contract's rules."""


@dataclass(frozen=True)
class ScratchBuffer:
    name: str
    elements: int
    dtype: str
    zeroed: bool


@dataclass(frozen=True)
class RenderedLaunch:
    """`source` is a module whose `function` is an Inductor kernel; `run` takes `arguments` and `stream`.
    An argument is a slot's name, a scratch buffer's name, or an integer."""

    function: str
    source: str
    arguments: tuple[str | int, ...]
    grid: tuple[int, int, int]


def render_scratch(plan: Mapping[str, Any], names: Mapping[str, int]) -> tuple[ScratchBuffer, ...]:
    """Raises PlanError for an unknown dtype or a size that is not positive."""
    buffers = []
    for scratch in plan.get("scratch", ()):
        elements = evaluate(scratch["elements"], names)
        # The name becomes part of a variable of the wrapper.
        if not (scratch["name"].isascii() and scratch["name"].isidentifier()):
            raise PlanError(f"scratch {scratch['name'][:80]!r}: not a name")
        if elements < 1 or scratch["dtype"] not in POINTER_TYPES:
            raise PlanError(f"scratch {scratch['name']!r}: {elements} elements of {scratch['dtype']!r}")
        buffers.append(ScratchBuffer(scratch["name"], elements, scratch["dtype"], bool(scratch.get("zeroed"))))
    return tuple(buffers)


def render(source: str, plan: Mapping[str, Any], kernel: KernelSource, integers: Mapping[str, int],
           num_sms: int | None = None) -> tuple[RenderedLaunch, ...]:
    """The plan's launches as Inductor kernels.

    `plan` is `Plan.to_json()`, `kernel` the (first) baseline kernel, whose device properties and floating-point
    options are kept; `integers` the values of the run's integer slots; `num_sms` defaults to the baseline's device.
    Raises PlanError."""
    names = {**integers, "num_sms": num_sms or kernel.multiprocessors}
    try:
        module = ast.parse(source)
        pointers = {s.name: POINTER_TYPES[s.dtype] for s in render_scratch(plan, names)}
        if not plan["launches"]:
            raise PlanError("no launches")
        return tuple(_launch(module, source, launch, plan, kernel, names, pointers) for launch in plan["launches"])
    except PlanError:
        raise
    except UNFIT as e:
        raise PlanError(f"{type(e).__name__}: {e}") from None


def _bound(module: ast.Module) -> set[str]:
    """Names that the module binds, whatever by; of imports, those that do not come from Inductor as they are."""
    names: set[str] = set()
    stack: list[ast.AST] = [*module.body]
    while stack:
        node = stack.pop()
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            own = (getattr(node, "module", None) or "").startswith("torch._inductor.runtime")
            names |= {a.asname or a.name for a in node.names if a.asname or not own} - _IMPORTED
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        if isinstance(getattr(node, "name", None), str):
            names.add(getattr(node, "name"))  # noqa: B009
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            stack += ast.iter_child_nodes(node)
    return names


def _launch(module: ast.Module, source: str, launch: Mapping[str, Any], plan: Mapping[str, Any],
            kernel: KernelSource, names: Mapping[str, int], scratch: Mapping[str, str]) -> RenderedLaunch:
    functions = {n.name: n for n in module.body if isinstance(n, ast.FunctionDef)}
    if clash := _bound(module) & _RESERVED:
        raise PlanError(f"the source binds {', '.join(sorted(clash))}")
    function = functions.get(launch["function"])
    if function is None or [dotted(d) for d in function.decorator_list] != ["triton.jit"]:
        raise PlanError(f"no @triton.jit function {launch['function']!r}")
    lines, jit = source.rstrip().split("\n"), function.decorator_list[0]
    # Another decorator goes on a line of its own before this one's `@`.
    if lines[jit.lineno - 1].encode()[:jit.col_offset].strip() != b"@":
        raise PlanError(f"the decorator of {function.name} does not stand alone on the line of its @")
    # Inductor's launcher hands neither option to Triton, so a plan that needs one cannot run as verified.
    if launch.get("num_ctas", 1) != 1 or launch.get("maxnreg") is not None:
        raise PlanError("num_ctas and maxnreg do not pass through Inductor's launcher")
    parameters = {p["name"]: p for p in plan["parameters"]}
    run_time = iter(launch["arguments"])
    signature, hints, arguments, written = {}, {}, [], []
    for index, parameter in enumerate(function.args.args):
        if is_constexpr(parameter):
            if parameter.arg not in launch["constexprs"]:
                raise PlanError(f"no value for {parameter.arg!r}")
            signature[parameter.arg] = "constexpr"
            continue
        argument = next(run_time, None)
        if argument is None:
            raise PlanError(f"{function.name} takes more arguments than the plan gives")
        declared = parameters.get(argument, {}).get("type", "")
        if argument in scratch or declared.startswith("*"):
            signature[parameter.arg] = scratch.get(argument) or declared
            divisible = argument in scratch or parameters[argument].get("divisible", False)
            if argument in scratch or parameters[argument].get("written", False):
                written.append(parameter.arg)
            arguments.append(argument)
        elif declared.startswith(("fp", "bf")):
            signature[parameter.arg], divisible = declared, False
            arguments.append(argument)
        else:
            value = evaluate(argument, names)
            wide = declared == "i64" or value > 2**31 - 1
            signature[parameter.arg], divisible = "i64" if wide else "i32", value % 16 == 0
            arguments.append(value)
        if divisible:
            hints[(index,)] = [["tt.divisibility", 16]]
    if next(run_time, None) is not None:
        raise PlanError(f"{function.name} takes fewer arguments than the plan gives")
    if unknown := set(launch["constexprs"]) - {k for k, v in signature.items() if v == "constexpr"}:
        raise PlanError(f"{function.name} has no constexpr {', '.join(sorted(unknown))}")
    grid = [evaluate(g, names) for g in launch["grid"]]
    grid += [1] * (3 - len(grid))
    if len(grid) != 3 or not all(1 <= g <= limit for g, limit in zip(grid, GRID_LIMITS, strict=True)):
        raise PlanError(f"grid {grid}")
    config = {**launch["constexprs"], "num_warps": int(launch.get("num_warps", 4)),
              "num_stages": int(launch.get("num_stages", 1))}
    kept = {k: v for k, v in kernel.meta.items() if k in ("device", "native_matmul", "enable_fp_fusion", "disable_ftz")}
    meta = ", ".join([f"'signature': {signature!r}", *(f"{k!r}: {v}" for k, v in kept.items()), "'constants': {}",
                      "'launch_pdl': False", f"'configs': [{hints!r}]"])
    inductor = {"grid_type": "FixedGrid", "fixed_grid": grid, "kernel_name": function.name,
                "mutated_arg_names": written}
    decorator = (f"@triton_heuristics.fixed_config(\n    config={config!r},\n    filename=__file__,\n"
                 f"    triton_meta={{{meta}}},\n    inductor_meta={inductor!r},\n)")
    lines.insert(jit.lineno - 1, decorator)
    text = _PREAMBLE + "\n".join(lines) + "\n"
    return RenderedLaunch(function.name, text, tuple(arguments), (grid[0], grid[1], grid[2]))
