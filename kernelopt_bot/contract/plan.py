"""The contract over a launch plan: names, types, bounds, and that the source stores only where the plan says so."""

from __future__ import annotations

import ast
import math
import re
from collections.abc import Mapping

from kernelopt_bot.contract import expressions, flow
from kernelopt_bot.contract import source as source_contract
from kernelopt_bot.contract.candidate import Launch, Parameter, Plan, Scalar, Scratch
from kernelopt_bot.contract.violation import Violation, shown

SCRATCH_LIMIT = 2 * 1024**3
"""Bytes of all scratch buffers together."""

ITEM_BYTES: Mapping[str, int] = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "int32": 4, "int64": 8, "float16": 2, "bfloat16": 2, "float32": 4,
    "float64": 8,
}
"""dtypes of scratch buffers, by torch's name, and the bytes of an element."""

FLOATS = frozenset({"fp16", "bf16", "fp32", "fp64", "fp8e4nv", "fp8e5"})
TYPES = FLOATS | {"i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64"}
"""Triton's spelling of the scalar types; a pointer has `*` before it."""

GRID_LIMITS = (2**31 - 1, 65535, 65535)
"""Blocks along x, y, z (CUDA C++ Programming Guide, table of technical specifications per compute capability)."""

WARPS = (1, 2, 4, 8, 16, 32)
STAGES = range(1, 9)
CTAS = (1, 2, 4, 8)
"""Blocks of a cluster: 8 is the largest portable size (CUDA C++ Programming Guide, thread block clusters)."""
REGISTERS = range(24, 256)
"""`maxnreg`: 255 is the most that one thread can address."""
LAUNCHES = 16
NUM_SMS_LIMIT = 1024

_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,127}", re.ASCII)


def check(
    plan: Plan, source: str, *, integers: Mapping[str, int] | None = None, scratch_limit: int = SCRATCH_LIMIT
) -> list[Violation]:
    """What is wrong with `plan` for a `source` that conforms; [] if nothing.

    With `integers` (values of the integer parameters and `num_sms`) sizes and grids are evaluated and bounded too;
    without, only expressions of literals are. Violations of the source itself are answered as they are.
    """
    if broken := source_contract.check(source) or _mistyped(plan):
        return broken
    checker = _Checker(plan, source_contract.functions(source), dict(integers or {}), scratch_limit)
    checker.run()
    return sorted(set(checker.found), key=lambda v: (v.line, v.rule, v.message))


def _mistyped(plan: Plan) -> list[Violation]:
    """Plans come from JSON: what later code takes for texts must be texts."""
    texts: list[object] = [v for p in plan.parameters for v in (p.name, p.type)]
    texts += [v for s in plan.scratch for v in (s.name, s.dtype, s.elements)]
    for launch in plan.launches:
        texts += [launch.function, *launch.grid, *launch.arguments, *launch.constexprs]
    return [Violation(0, "plan", f"{shown(t)} is not a text") for t in texts if not isinstance(t, str)]


class _Checker:
    def __init__(
        self, plan: Plan, functions: Mapping[str, ast.FunctionDef], integers: Mapping[str, int], limit: int
    ) -> None:
        self.plan, self.functions, self.integers, self.limit = plan, functions, integers, limit
        self.found: list[Violation] = []
        self.parameters: Mapping[str, Parameter] = {p.name: p for p in plan.parameters}
        self.scratch: Mapping[str, Scratch] = {s.name: s for s in plan.scratch}
        self.numbers = {p.name for p in plan.parameters if re.fullmatch(r"[iu]\d+", p.type)}
        self.stored: set[str] = set()

    def refuse(self, rule: str, message: str, line: int = 0) -> None:
        self.found.append(Violation(line, rule, message))

    def run(self) -> None:
        self.names()
        for scratch in self.plan.scratch:
            self.sizes(scratch)
        if not 1 <= len(self.plan.launches) <= LAUNCHES:
            self.refuse("plan", f"{len(self.plan.launches)} launches: 1 to {LAUNCHES} are allowed")
        if self.found:
            return
        for number, launch in enumerate(self.plan.launches):
            self.launch(launch, f"launch {number} ({launch.function})")
        if not self.found:
            for parameter in self.plan.parameters:
                if parameter.written and parameter.name not in self.stored:
                    self.refuse("coverage", f"{parameter.name} must be written and no launch stores to it")

    def names(self) -> None:
        seen: set[str] = set()
        for name in [*(p.name for p in self.plan.parameters), *(s.name for s in self.plan.scratch)]:
            if not _NAME.fullmatch(name) or name == expressions.NUM_SMS:
                self.refuse("plan", f"{name!r} is not a name that a plan may use")
            elif name in seen:
                self.refuse("plan", f"{name} is there twice")
            seen.add(name)
        for p in self.plan.parameters:
            if p.type.removeprefix("*") not in TYPES:
                self.refuse("plan", f"{p.name}: unknown type {p.type!r}")
            if any(type(flag) is not bool for flag in (p.written, p.read, p.divisible)):
                self.refuse("plan", f"{p.name}: written, read and divisible are true or false")
            if p.written and not p.type.startswith("*"):
                self.refuse("plan", f"{p.name} is written and no pointer")

    def sizes(self, scratch: Scratch) -> None:
        if scratch.dtype not in ITEM_BYTES:
            self.refuse("plan", f"{scratch.name}: unknown dtype {scratch.dtype!r}")
        if type(scratch.zeroed) is not bool:
            self.refuse("plan", f"{scratch.name}: zeroed is true or false")
        elements = self.expression(scratch.elements, f"size of {scratch.name}")
        if elements is None or scratch.dtype not in ITEM_BYTES:
            return
        size = elements * ITEM_BYTES[scratch.dtype]
        self.limit -= size
        if elements < 1:
            self.refuse("plan", f"{scratch.name} has {elements} elements")
        if self.limit < 0:
            self.refuse("plan", f"{scratch.name} of {size} bytes takes the scratch buffers over their limit")

    def expression(self, text: str, what: str) -> int | None:
        """Its value where all its names have one."""
        if (reason := expressions.check(text, self.numbers)) is not None:
            self.refuse("expression", f"{what}: {reason}")
            return None
        try:
            return expressions.value(text, self.integers)
        except ValueError as e:
            used = {n.id for n in ast.walk(ast.parse(text.strip(), mode="eval")) if isinstance(n, ast.Name)}
            if used - set(expressions.FUNCTIONS) <= set(self.integers):
                self.refuse("expression", f"{what}: {e}")
            return None

    def launch(self, launch: Launch, what: str) -> None:
        self.shape(launch, what)
        function = self.functions.get(launch.function)
        if function is None:
            self.refuse("plan", f"{what}: the source has no such function")
            return
        wanted, names = source_contract.constexprs(function), source_contract.runtime_parameters(function)
        if set(launch.constexprs) != set(wanted):
            self.refuse("plan", f"{what}: constexprs {sorted(launch.constexprs)}, the function has {sorted(wanted)}")
        for name, value in launch.constexprs.items():
            if (reason := bad_scalar(value)) is not None:
                self.refuse("plan", f"{what}: constexpr {name} {reason}")
        if len(launch.arguments) != len(names):
            self.refuse("plan", f"{what}: {len(launch.arguments)} arguments for {len(names)} parameters")
            return
        pointers: dict[str, str] = {}
        for name, argument in zip(names, launch.arguments, strict=True):
            parameter = self.parameters.get(argument)
            if argument in self.scratch or (parameter is not None and parameter.type.startswith("*")):
                pointers[name] = argument
            elif parameter is None:
                self.expression(argument, f"{what}: argument {name}")
        self.flow(launch, pointers, what)

    def shape(self, launch: Launch, what: str) -> None:
        if not 1 <= len(launch.grid) <= 3:
            self.refuse("plan", f"{what}: a grid has one to three extents")
        for extent, limit in zip(launch.grid, GRID_LIMITS, strict=False):
            blocks = self.expression(extent, f"{what}: grid")
            if blocks is not None and not 1 <= blocks <= limit:
                self.refuse("plan", f"{what}: {blocks} blocks where 1 to {limit} are possible")
        for name, value, allowed in (
            ("num_warps", launch.num_warps, WARPS), ("num_stages", launch.num_stages, STAGES),
            ("num_ctas", launch.num_ctas, CTAS),
        ):
            if type(value) is not int or value not in allowed:
                self.refuse("plan", f"{what}: {name} {shown(value)} is not one of {list(allowed)}")
        if launch.maxnreg is not None and (type(launch.maxnreg) is not int or launch.maxnreg not in REGISTERS):
            self.refuse("plan", f"{what}: maxnreg {shown(launch.maxnreg)} is not within 24 to 255")

    def flow(self, launch: Launch, pointers: Mapping[str, str], what: str) -> None:
        effects = flow.analyse(self.functions, launch.function, frozenset(pointers))
        self.found += effects.unknown
        stored = {pointers[n] for n in effects.stored}
        for name in sorted(stored):
            if name in self.parameters and not self.parameters[name].written:
                self.refuse("store", f"{what} stores to {name}, which the replaced run does not write")
        for name in sorted({pointers[n] for n in effects.loaded}):
            fresh = not self.scratch[name].zeroed if name in self.scratch else not self.parameters[name].read
            # A launch may read what it stored itself (a race only gate 2 can judge), never what nobody stored.
            if fresh and name not in self.stored | stored:
                self.refuse("uninitialised", f"{what} loads from {name} before anything is stored there")
        self.stored |= stored


def bad_scalar(value: Scalar) -> str | None:
    """Why a constexpr cannot have this value, or None."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return None if -(2**63) <= value < 2**63 else "has more than 64 bits"
    if isinstance(value, float):
        return None if math.isfinite(value) else "is not finite"
    if isinstance(value, str):
        return None if re.fullmatch(r"[A-Za-z0-9_.]{1,64}", value, re.ASCII) else "is not a short plain word"
    return f"of type {type(value).__name__} is not allowed"


def float_atomics(plan: Plan, source: str) -> tuple[str, ...]:
    """Buffers of a floating type that a conforming candidate updates atomically, in order."""
    functions, found = source_contract.functions(source), set()
    types = {p.name: p.type for p in plan.parameters} | {
        s.name: "*fp32" if s.dtype.startswith(("float", "bfloat")) else "*i32" for s in plan.scratch}
    for launch in plan.launches:
        names = source_contract.runtime_parameters(functions[launch.function])
        bound = {n: a for n, a in zip(names, launch.arguments, strict=True) if types.get(a, "").startswith("*")}
        found |= {bound[n] for n in flow.analyse(functions, launch.function, frozenset(bound)).atomics}
    return tuple(name for name in types if name in found and types[name].removeprefix("*") in FLOATS)
