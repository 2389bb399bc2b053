"""The recorded launches of a user's kernel in the terms of the gates.

A launch is a plan of one launch over the kernel's plain copy. Rendered as every plan is, the plan with the user's own
configuration is the baseline: a kernel in the compiler's form with one configuration and a literal grid. A candidate is
another plan over a source of the same signature. So gates 1 and 2 and the races take both as they take a step.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelopt_bot.compiler._runtime import KernelSource, PlanError, read_kernel, render
from kernelopt_bot.compiler.plain_triton import PlainKernel, Unfit
from kernelopt_bot.compiler.program import Kernel
from kernelopt_bot.contract import flow
from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.contract import source as source_contract
from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Parameter, Plan, Scalar
from kernelopt_bot.contract.violation import Violation, shown
from kernelopt_bot.gates.answers import Malformed, need
from kernelopt_bot.search.loading import shape_words

POINTERS = {"float64": "*fp64", "float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int64": "*i64",
            "int32": "*i32", "int16": "*i16", "int8": "*i8", "uint8": "*u8", "bool": "*i1"}
"""torch's dtypes -> Triton's pointers to them."""
FITS_I32, FITS_I64 = range(-2**31, 2**31), range(-2**63, 2**63)
MOST_LAUNCHES = 16
"""Distinct launches that a worker may answer with: what it records at most."""
MOST_TIMES, MOST_ELEMENTS, MOST_DIMENSIONS = 1 << 40, 1 << 48, 64
ASSUMED_MULTIPROCESSORS = 132
"""Where no GPU is there: an H200's."""


@dataclass(frozen=True)
class TritonConfig:
    """What a launch may be given without another kernel: values of constexprs, warps and stages."""

    constexprs: tuple[tuple[str, Scalar], ...]
    """By the user's names, sorted; of a kernel without an autotuner only those that may be changed."""
    num_warps: int
    num_stages: int

    def to_json(self) -> dict[str, Any]:
        return {"constexprs": dict(self.constexprs), "num_warps": self.num_warps, "num_stages": self.num_stages}

    @classmethod
    def of(cls, constexprs: Mapping[str, Scalar], num_warps: int, num_stages: int) -> TritonConfig:
        return cls(tuple(sorted(constexprs.items())), num_warps, num_stages)

    def __str__(self) -> str:
        values = [f"{k}={v}" for k, v in self.constexprs]
        return ", ".join([*values, f"num_warps={self.num_warps}", f"num_stages={self.num_stages}"])


@dataclass(frozen=True)
class Case:
    """One distinct launch. `arguments` as `check_step` takes them, in the order of the baseline's parameters."""

    plan: Plan
    """The user's own launch."""
    source: str
    """The kernel's plain copy, specialised as this launch specialises it."""
    baseline: Kernel
    integers: Mapping[str, int]
    arguments: tuple[Any, ...]
    reads: tuple[str, ...]
    constexprs: Mapping[str, Scalar]
    """By the user's names."""
    count: int
    callable_grid: bool
    covered: str
    """`x: (8, 128) float32, ...`"""

    @property
    def launch(self) -> Launch:
        return self.plan.launches[0]

    def config(self, names: Sequence[str]) -> TritonConfig:
        """The user's own, of the constexprs `names`."""
        return TritonConfig.of({n: self.constexprs[n] for n in names}, self.launch.num_warps, self.launch.num_stages)

    @property
    def launched(self) -> str:
        """The user's own launch, in words."""
        return f"grid {', '.join(self.launch.grid)}, {self.config(sorted(self.constexprs))}"

    def baseline_json(self) -> dict[str, Any]:
        """As `check_step` and the races take it."""
        return {"source": self.baseline.source, "integers": dict(self.integers), "reads": list(self.reads)}

    def planned(self, config: TritonConfig, launched: Mapping[str, Any], plain: PlainKernel) -> Plan:
        """The launch under a configuration, with the grid and the constexprs that the host then gives it. Raises
        Malformed."""
        constexprs = need(launched, "constexprs", dict)
        if set(constexprs) != plain.constexprs:
            raise Malformed("a launch is said to have other constexprs than the kernel")
        values = {plain.called(k): v for k, v in constexprs.items()}
        grid = [integer(n, "the grid", 1, plan_contract.GRID_LIMITS[0]) for n in need(launched, "grid", list)]
        launch = replace(self.launch, grid=tuple(map(str, grid)), num_warps=config.num_warps,
                         num_stages=config.num_stages, constexprs={**self.launch.constexprs, **values})
        return replace(self.plan, launches=(launch,))

    def candidate(self, plan: Plan, source: str, technique: str, rationale: str) -> KernelCandidate:
        digest = hashlib.sha256(repr((source, plan)).encode()).hexdigest()[:12]
        return KernelCandidate(digest, self.baseline.hash, 0, (0,), source, plan, technique, rationale=rationale)


def device_kernel(arch: int, multiprocessors: int) -> KernelSource:
    """Stands in for the compiler's kernel that a plan is rendered like: the device, and nothing else."""
    device = (f"DeviceProperties(type='cuda', index=0, multi_processor_count={multiprocessors}, cc={arch}, "
              f"major={arch // 10}, warp_size=32)")
    return KernelSource(name="", language="triton", text="", lines=(0, 0), hash="", meta={"device": device},
                        multiprocessors=multiprocessors, capability=arch)


def case_of(call: Mapping[str, Any], plain: PlainKernel, device: KernelSource) -> Case:
    """From one element of `record_launches`' `calls`. Raises Unfit for what the gates cannot take, Malformed."""
    try:
        arguments, constexprs = dict(call["arguments"]), dict(call["constexprs"])
        grid = [integer(n, "the grid", 1, plan_contract.GRID_LIMITS[0]) for n in call["grid"]]
        count, options = integer(call["count"], "the count", 1, MOST_TIMES), call["options"]
        asked = bool(call["callable_grid"])
        warps, stages = (integer(options[o], o, 0, 1 << 10) for o in ("num_warps", "num_stages"))
    except (TypeError, KeyError, ValueError) as e:
        raise Malformed(f"a recorded launch is not understood: {e}") from e
    order = [p for p in plain.parameters if p not in plain.constexprs]
    if set(order) != set(arguments) or set(plain.constexprs) != set(constexprs):
        raise Malformed("a recorded launch has other arguments than the kernel")
    tensors = {n: a for n, a in arguments.items() if "tensor" in a}
    for name, argument in arguments.items():
        _sound(name, argument)
    # As Triton itself does with 1; numbers that no plan can pass, since the copy needs no other.
    fixed = {n: a["value"] for n, a in arguments.items() if n not in tensors
             and (not isinstance(a["value"], int) or isinstance(a["value"], bool) or a["value"] == 1)}
    source = plain.specialised(fixed)
    if isinstance(broken := source_contract.parse(source), Violation):
        raise Unfit(broken.message)
    pointers = frozenset(plain.called(n) for n in tensors)
    if violations := source_contract.check(source):
        raise Unfit(violations[0].message)
    effects = flow.analyse(source_contract.functions(source), plain.name, pointers)
    integers = {plain.called(n): int(arguments[n]["value"]) for n in order if n not in tensors and n not in fixed}
    parameters = []
    for name in (n for n in order if n not in fixed):
        called = plain.called(name)
        if name in tensors:
            parameters.append(Parameter(called, _pointer(name, tensors[name]["tensor"]), called in effects.stored,
                                        called in effects.loaded, bool(tensors[name].get("aligned"))))
        else:
            parameters.append(Parameter(called, "i32" if integers[called] in FITS_I32 else "i64"))
    given = {plain.called(n): v for n, v in {**constexprs, **fixed}.items()}
    plan = Plan(tuple(parameters), (Launch(plain.name, tuple(map(str, grid)), tuple(p.name for p in parameters), given,
                                           warps, stages),))
    names = {**integers, "num_sms": device.multiprocessors}
    if violations := plan_contract.check(plan, source, integers=names):
        raise Unfit(violations[0].message)
    try:
        (rendered,) = render(source, plan.to_json(), device, integers)
    except PlanError as e:
        raise Unfit(str(e)) from e
    facts = read_kernel(rendered.source)
    kernel = Kernel(plain.name, facts.function, rendered.source, facts.hash, facts.heuristic, facts.signature,
                    tuple(p.name for p in parameters if p.written), {})
    passed = tuple(_passed(arguments[n]) for n in order if n not in fixed)
    covered = [f"{n}: {_shape(a['tensor'])}" for n, a in tensors.items()]
    covered += [f"{n}={a['value']}" for n, a in arguments.items() if n not in tensors]
    return Case(plan, source, kernel, names, passed, tuple(p.name for p in parameters if p.read and p.type[0] == "*"),
                constexprs, count, asked, ", ".join(covered))


def integer(value: object, what: str, low: int, high: int) -> int:
    """A worker's number. Raises Malformed: whatever it is, it is neither printed nor computed with."""
    if type(value) is not int or not low <= value <= high:
        raise Malformed(f"a worker's answer has no proper number for {what}")
    return value


def settings_of(said: object, plain: PlainKernel) -> TritonConfig:
    """A configuration of the user's autotuner, as a worker gives it. Raises Unfit, Malformed."""
    constexprs = dict(need(said, "constexprs", dict))
    if strange := sorted(map(str, constexprs.keys() - plain.constexprs)):
        raise Unfit(f"its autotuner sets {shown(strange[0])}, which is no tl.constexpr of the kernel")
    for name, value in constexprs.items():
        if (reason := plan_contract.bad_scalar(value)) is not None:
            raise Unfit(f"its autotuner's value for {name} {reason}")
    warps, stages = (integer(need(said, o, int), o, 0, 1 << 10) for o in ("num_warps", "num_stages"))
    return TritonConfig.of(constexprs, warps, stages)


def _sound(name: str, argument: Mapping[str, Any]) -> None:
    """Raises Malformed, and Unfit for a number that no launch of ours can pass."""
    if "tensor" not in argument:
        value = argument["value"]
        if type(value) not in (int, float, bool):
            raise Malformed(f"the argument {name} is said to be neither a tensor nor a number")
        if type(value) is int and value not in FITS_I64:
            raise Unfit(f"the argument {name} does not fit 64 bits with a sign")
        return
    meta = argument["tensor"]
    shape, stride = need(meta, "shape", list), need(meta, "stride", list)
    if len(shape) != len(stride) or len(shape) > MOST_DIMENSIONS:
        raise Malformed(f"the shape of {name} is not understood")
    for extent, step in zip(shape, stride, strict=True):
        integer(extent, f"the shape of {name}", 0, MOST_ELEMENTS)
        integer(step, f"the strides of {name}", -MOST_ELEMENTS, MOST_ELEMENTS)


def _pointer(name: str, meta: Mapping[str, Any]) -> str:
    if meta["dtype"] not in POINTERS:
        raise Unfit(f"the argument {name} has the dtype {shown(meta['dtype'])}, which is not supported")
    return POINTERS[meta["dtype"]]


def _passed(argument: Mapping[str, Any]) -> Any:
    if "tensor" not in argument:
        return argument["value"]
    made = dict(argument.get("saved") or {"meta": argument["tensor"], "stats": argument.get("stats")})
    return {**made, "stats": argument.get("stats"), "storage": argument["storage"]}


def _shape(meta: Mapping[str, Any]) -> str:
    dense, expected = True, 1
    for size, stride in zip(reversed(meta["shape"]), reversed(meta["stride"]), strict=True):
        dense, expected = dense and (size == 1 or stride == expected), expected * size
    strides = "" if dense else f" with strides ({', '.join(str(n) for n in meta['stride'])})"
    return f"{shape_words(meta)}{strides}"
