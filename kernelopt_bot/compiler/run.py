"""Runs of several consecutive kernel calls as data: what techniques fuse and gates compare."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from kernelopt_bot.compiler._runtime import (
    POINTER_TYPES,
    Binding,
    Call,
    Slot,
    VendorCall,
    Wrapper,
    call_sequence,
    consecutive,
    inside_and_dying,
    read_wrapper,
    run_hash,
    run_slots,
)
from kernelopt_bot.compiler.program import Argument, Graph, Kernel, Step, TensorMeta

Role = Literal["through", "inside", "dying"]
_BYTES = {"*fp32": 4, "*fp16": 2, "*bf16": 2}


@dataclass(frozen=True)
class RunBuffer:
    """One buffer of a run. `through` and `dying` ones are slots of the plan, under `name`; `inside` ones are not."""

    name: str
    type: str
    """Triton's spelling, `*fp32`."""
    divisible: bool
    role: Role
    """`inside`: its value begins and ends in the run; `dying`: it comes in, and nothing reads it after the run."""
    old: bool
    """True if the wrapper used the memory before the run."""
    tensor: TensorMeta
    root: str
    """The wrapper's variable that owns the memory."""
    call: int
    """Position in the run's `all_steps` of the first call that takes it,"""
    argument: int
    """and which of its arguments it is there; -1 for the result of a vendor call that nothing else of the run takes."""


@dataclass(frozen=True)
class RunCall:
    """One kernel call of a run; `arguments` in call order: names of buffers, or numbers."""

    kernel: Kernel
    step: Step
    arguments: tuple[str | int | float | bool, ...]


@dataclass(frozen=True)
class RunVendor:
    """The vendor call that a run begins with. Operands are named `a0`, `a1`, ..., as the call has them by position."""

    function: str
    """`extern_kernels.mm`"""
    step: Step
    operands: Mapping[str, str]
    """Operand -> buffer of the run."""
    layouts: Mapping[str, tuple[tuple[int, ...], tuple[int, ...]]]
    """Operand, and `out` -> (shape, stride) in elements, as the call sees it."""
    options: Mapping[str, Any]
    """Its other arguments by keyword (or `a3` by position)."""
    out: str
    """The buffer that takes the result."""
    returns: bool
    """True if the result is new memory that the call returns."""

    def to_json(self) -> dict[str, Any]:
        """One element of `kernels` of the kernel worker's `baseline`."""
        def operand(name: str) -> Any:
            if name in self.operands:
                shape, stride = self.layouts[name]
                return {"buffer": self.operands[name], "shape": list(shape), "stride": list(stride)}
            return self.options[name]

        names = [*self.operands, *self.options]
        positional = sorted((n for n in names if n[1:].isdigit()), key=lambda n: int(n[1:]))
        keywords = {n: operand(n) for n in names if not n[1:].isdigit()}
        shape, stride = self.layouts["out"]
        if not self.returns:
            keywords["out"] = {"buffer": self.out, "shape": list(shape), "stride": list(stride)}
        return {"vendor": self.function, "arguments": [operand(n) for n in positional], "keywords": keywords,
                "result": self.out if self.returns else ""}


@dataclass(frozen=True)
class KernelRun:
    """Consecutive kernel calls of one graph that one candidate can replace, after a vendor call where there is one."""

    graph: Graph
    hash: str
    calls: tuple[RunCall, ...]
    buffers: tuple[RunBuffer, ...]
    integers: Mapping[str, int]
    """Values of the plan's integer slots, `xnumel_0`."""
    vendor: RunVendor | None = None

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """The vendor's step, if any, and those of the kernel calls: positions of `RunBuffer.call`."""
        return (*((self.vendor.step,) if self.vendor else ()), *(c.step for c in self.calls))

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(s.index for s in self.all_steps)

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return tuple(c.kernel for c in self.calls)

    @property
    def slots(self) -> tuple[RunBuffer, ...]:
        """Buffers that a candidate gets."""
        return tuple(b for b in self.buffers if b.role != "inside")

    @cached_property
    def buffer(self) -> Mapping[str, RunBuffer]:
        return {b.name: b for b in self.buffers}

    def touched(self, position: int) -> tuple[frozenset[str], frozenset[str]]:
        """Buffers that the call at `position` (takes, writes)."""
        call = self.calls[position]
        named = zip(call.step.arguments, call.arguments, strict=True)
        bound = {a.name: passed for a, passed in named if isinstance(passed, str)}
        return frozenset(bound.values()), frozenset(bound[n] for n in call.kernel.written if n in bound)

    @cached_property
    def written(self) -> frozenset[str]:
        """Slots whose contents after the run count, and that the run writes: a candidate must write these, no other."""
        all_written = frozenset[str]().union(*(self.touched(i)[1] for i in range(len(self.calls))))
        all_written |= {self.vendor.out} if self.vendor else set()
        return frozenset(b.name for b in self.buffers if b.role == "through" and b.name in all_written)

    def baseline(self) -> dict[str, Any]:
        """The kernel worker's `baseline`."""
        return {
            "kernels": [*([self.vendor.to_json()] if self.vendor else []),
                        *({"source": c.kernel.source, "arguments": list(c.arguments)} for c in self.calls)],
            "buffers": [{"name": b.name, "type": b.type, "divisible": b.divisible, "role": b.role, "old": b.old}
                        for b in self.buffers],
            "integers": dict(self.integers)}

    def slots_json(self) -> list[dict[str, Any]]:
        """`slots` of the kernel worker's `compile_candidate`."""
        return [{"name": b.name, "type": b.type, "divisible": b.divisible} for b in self.slots]


def runs_of(graph: Graph, longest: int) -> tuple[KernelRun, ...]:
    """Every run of 2 to `longest` consecutive kernel calls of a graph that can be replaced, in order of the first
    call. Left out: symbolic arguments, calls that were not recorded, buffers seen at two offsets or under two types."""
    wrapper = read_wrapper(graph.source)
    steps = {(s.function, s.lines[0]): s for s in graph.steps if s.kind == "kernel"}
    found = []
    for first in range(len(wrapper.calls)):
        for last in range(first + 2, min(first + longest, len(wrapper.calls)) + 1):
            calls = wrapper.calls[first:last]
            if not consecutive(calls, wrapper.statements):
                break
            run = _run(graph, wrapper, calls, steps)
            if run is not None:
                found.append(run)
    return tuple(found)


def regions_of(graph: Graph) -> tuple[KernelRun, ...]:
    """Every vendor call that can be replaced, by itself and with the kernel call after it, in order. Left out, besides
    what `runs_of` leaves out: vendor calls that `shipped/vendor.py` does not know, and results that the kernel does
    not take."""
    wrapper = read_wrapper(graph.source)
    sequence, kernels = call_sequence(wrapper)
    steps = {(s.function, s.lines[0]): s for s in graph.steps if s.kind in ("kernel", "vendor")}
    found = []
    for calls in (sequence[i:i + n] for i in range(len(sequence)) for n in (1, 2) if i + n <= len(sequence)):
        if isinstance(calls[0], VendorCall) and consecutive(calls, wrapper.statements):
            run = _run(graph, dataclasses.replace(wrapper, kernels=kernels), calls, steps)
            if run is not None:
                found.append(run)
    return tuple(found)


def _run(graph: Graph, wrapper: Wrapper, calls: Sequence[Call],
         steps: Mapping[tuple[str, int], Step]) -> KernelRun | None:
    digest = run_hash(calls, wrapper.kernels)
    own = [steps.get((c.statement.scope.name, c.statement.lines[0])) for c in calls]
    if not digest or any(s is None for s in own):
        return None
    slots = run_slots(calls, wrapper.kernels)
    inside, dying = inside_and_dying(calls)
    names = {s.binding.root: s.name for s in slots if s.binding.root}
    names |= {root: f"t{n}" for n, root in enumerate(dict.fromkeys(
        b.root for c in calls for b in c.bindings if b.root in inside))}
    maker = _Maker(wrapper, calls[0], names, {s.binding.root: s for s in slots if s.binding.root}, inside, dying)
    made: list[RunCall] = []
    vendor: RunVendor | None = None
    for position, (call, step) in enumerate(zip(calls, own, strict=True)):
        assert step is not None
        if isinstance(call, VendorCall):
            vendor = maker.vendor(call, step, position)
            if vendor is None:
                return None
            continue
        kernel = graph.kernels.get(call.kernel)
        if kernel is None or kernel.heuristic == "cpp" or len(step.arguments) != len(call.bindings):
            return None
        passed: list[str | int | float | bool] = []
        for index, (binding, argument) in enumerate(zip(call.bindings, step.arguments, strict=True)):
            if binding.root:
                name = maker.buffer(binding, argument, position, index, wrapper.kernels[call.kernel].divisible)
                if not name:
                    return None
                passed.append(name)
            elif binding.value is None:
                return None
            else:
                passed.append(binding.value)
        made.append(RunCall(kernel, step, tuple(passed)))
    if vendor is not None and not made:
        maker.result(calls[0])
    if vendor is not None and vendor.out not in {b.name for b in maker.buffers.values()}:
        return None
    integers = {s.name: s.binding.value for s in slots
                if isinstance(s.binding.value, int) and not isinstance(s.binding.value, bool)}
    return KernelRun(graph, digest, tuple(made), tuple(maker.buffers.values()), integers, vendor)


@dataclass
class _Maker:
    """Collects the buffers of a run."""

    wrapper: Wrapper
    first: Call
    names: Mapping[str, str]
    slots: Mapping[str, Slot]
    inside: frozenset[str]
    dying: frozenset[str]
    buffers: dict[str, RunBuffer] = dataclasses.field(default_factory=dict)

    def buffer(self, binding: Binding, argument: Argument, position: int, index: int,
               divisible: frozenset[str]) -> str:
        """The buffer's name; '' where it cannot be taken as one buffer with one type."""
        root, scope = binding.root, self.first.statement.scope
        if argument.tensor is None or binding.offset:
            return ""
        role: Role = "inside" if root in self.inside else "dying" if root in self.dying else "through"
        aligned = self.slots[root].divisible if root in self.slots else binding.name in divisible
        old = root not in scope.owned or any(u < self.first.statement.index for u in scope.uses.get(root, ()))
        buffer = self.buffers.setdefault(root, RunBuffer(
            self.names[root], binding.type, aligned, role, old, argument.tensor, root, position, index))
        if buffer.type != binding.type or buffer.tensor.dtype != argument.tensor.dtype:
            return ""
        return buffer.name if argument.tensor.numel <= buffer.tensor.numel else ""

    def result(self, call: Call) -> None:
        """The result of a vendor call by itself: nothing recorded it."""
        assert isinstance(call, VendorCall)
        out, (shape, stride) = call.bindings[-1], call.layouts["out"]
        dtype = next(n for n, t in POINTER_TYPES.items() if t == out.type)
        extent = 1 + sum((size - 1) * step for size, step in zip(shape, stride, strict=True))
        tensor = TensorMeta(dtype, shape, stride, 0, extent * _BYTES[out.type], "cuda:0")
        role: Role = "inside" if out.root in self.inside else "through"
        self.buffers[out.root] = RunBuffer(self.names[out.root], out.type, self.slots[out.root].divisible, role, False,
                                           tensor, out.root, 0, -1)

    def vendor(self, call: VendorCall, step: Step, position: int) -> RunVendor | None:
        """None for operands that were not recorded by position. The result is recorded by the kernel that takes it."""
        given = {a.name: a for a in step.arguments}
        places = {name: i for i, name in enumerate(given)}
        operands: dict[str, str] = {}
        divisible = self.wrapper.kernels[call.kernel].divisible
        for binding in call.bindings[:-1]:
            place = binding.name.removeprefix("a")
            if not place.isdigit() or place not in given:
                return None
            name = self.buffer(binding, given[place], position, places[place], divisible)
            if not name:
                return None
            operands[binding.name] = name
        out = call.bindings[-1]
        if out.root in {b.root for b in call.bindings[:-1]} or out.offset:
            return None
        return RunVendor(call.callee, step, operands, call.layouts, call.options, self.names[out.root],
                         bool(call.variable))
