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
from kernelopt_bot.contract.violation import Violation
from kernelopt_bot.gates.answers import Malformed

POINTERS = {"float64": "*fp64", "float32": "*fp32", "float16": "*fp16", "bfloat16": "*bf16", "int64": "*i64",
            "int32": "*i32", "int16": "*i16", "int8": "*i8", "uint8": "*u8", "bool": "*i1"}
"""torch's dtypes -> Triton's pointers to them."""
FITS_I32 = range(-2**31, 2**31)
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

    def baseline_json(self) -> dict[str, Any]:
        """As `check_step` and the races take it."""
        return {"source": self.baseline.source, "integers": dict(self.integers), "reads": list(self.reads)}

    def planned(self, config: TritonConfig, launched: Mapping[str, Any], plain: PlainKernel) -> Plan:
        """The launch under a configuration, with the grid and the constexprs that the host then gives it."""
        values = {plain.called(k): v for k, v in launched["constexprs"].items()}
        launch = replace(self.launch, grid=tuple(str(n) for n in launched["grid"]), num_warps=config.num_warps,
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
        grid, options, count = [int(n) for n in call["grid"]], call["options"], int(call["count"])
        asked = bool(call["callable_grid"])
        warps, stages = int(options["num_warps"]), int(options["num_stages"])
    except (TypeError, KeyError, ValueError) as e:
        raise Malformed(f"a recorded launch is not understood: {e}") from e
    order = [p for p in plain.parameters if p not in plain.constexprs]
    if set(order) != set(arguments) or set(plain.constexprs) != set(constexprs):
        raise Malformed("a recorded launch has other arguments than the kernel")
    tensors = {n: a for n, a in arguments.items() if "tensor" in a}
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
    shown = [f"{n}: {_shape(a['tensor'])}" for n, a in tensors.items()]
    shown += [f"{n}={a['value']}" for n, a in arguments.items() if n not in tensors]
    return Case(plan, source, kernel, names, passed, tuple(p.name for p in parameters if p.read and p.type[0] == "*"),
                constexprs, count, asked, ", ".join(shown))


def _pointer(name: str, meta: Mapping[str, Any]) -> str:
    if meta["dtype"] not in POINTERS:
        raise Unfit(f"the argument {name} has the dtype {meta['dtype']}, which is not supported")
    return POINTERS[meta["dtype"]]


def _passed(argument: Mapping[str, Any]) -> Any:
    if "tensor" not in argument:
        return argument["value"]
    made = dict(argument.get("saved") or {"meta": argument["tensor"], "stats": argument.get("stats")})
    return {**made, "stats": argument.get("stats"), "storage": argument["storage"]}


def _shape(meta: Mapping[str, Any]) -> str:
    shape = ", ".join(str(n) for n in meta["shape"]) + ("," if len(meta["shape"]) == 1 else "")
    dense, expected = True, 1
    for size, stride in zip(reversed(meta["shape"]), reversed(meta["stride"]), strict=True):
        dense, expected = dense and (size == 1 or stride == expected), expected * size
    strides = "" if dense else f" with strides ({', '.join(str(n) for n in meta['stride'])})"
    return f"({shape}) {meta['dtype']}{strides}"
