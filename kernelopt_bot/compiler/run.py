"""Runs of several consecutive kernel calls as data: what techniques fuse and gates compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from kernelopt_bot.compiler._runtime import (
    Call,
    Wrapper,
    consecutive,
    inside_and_dying,
    read_wrapper,
    run_hash,
    run_slots,
)
from kernelopt_bot.compiler.program import Graph, Kernel, Step, TensorMeta

Role = Literal["through", "inside", "dying"]


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
    """Position in the run of the first call that takes it,"""
    argument: int
    """and which of its arguments it is there."""


@dataclass(frozen=True)
class RunCall:
    """One kernel call of a run; `arguments` in call order: names of buffers, or numbers."""

    kernel: Kernel
    step: Step
    arguments: tuple[str | int | float | bool, ...]


@dataclass(frozen=True)
class KernelRun:
    """Consecutive kernel calls of one graph that one candidate can replace."""

    graph: Graph
    hash: str
    calls: tuple[RunCall, ...]
    buffers: tuple[RunBuffer, ...]
    integers: Mapping[str, int]
    """Values of the plan's integer slots, `xnumel_0`."""

    @property
    def steps(self) -> tuple[int, ...]:
        return tuple(c.step.index for c in self.calls)

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
        return frozenset(b.name for b in self.buffers if b.role == "through" and b.name in all_written)

    def baseline(self) -> dict[str, Any]:
        """The kernel worker's `baseline`."""
        return {
            "kernels": [{"source": c.kernel.source, "arguments": list(c.arguments)} for c in self.calls],
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
    known = {s.binding.root: s for s in slots if s.binding.root}
    buffers: dict[str, RunBuffer] = {}
    made: list[RunCall] = []
    for position, (call, step) in enumerate(zip(calls, own, strict=True)):
        assert step is not None
        kernel = graph.kernels.get(call.kernel)
        if kernel is None or kernel.heuristic == "cpp" or len(step.arguments) != len(call.bindings):
            return None
        passed: list[str | int | float | bool] = []
        for index, (binding, argument) in enumerate(zip(call.bindings, step.arguments, strict=True)):
            if not binding.root:
                if binding.value is None:
                    return None
                passed.append(binding.value)
                continue
            if argument.tensor is None or binding.offset:
                return None
            root = binding.root
            role: Role = "inside" if root in inside else "dying" if root in dying else "through"
            divisible = known[root].divisible if root in known else binding.name in wrapper.kernels[
                call.kernel].divisible
            buffer = buffers.setdefault(root, RunBuffer(
                names[root], binding.type, divisible, role,
                any(u < calls[0].statement.index for u in call.statement.scope.uses.get(root, ())) or
                root not in call.statement.scope.owned, argument.tensor, root, position, index))
            if buffer.type != binding.type or buffer.tensor.dtype != argument.tensor.dtype:
                return None
            if argument.tensor.numel > buffer.tensor.numel:
                return None
            passed.append(names[root])
        made.append(RunCall(kernel, step, tuple(passed)))
    integers = {s.name: s.binding.value for s in slots
                if isinstance(s.binding.value, int) and not isinstance(s.binding.value, bool)}
    return KernelRun(graph, digest, tuple(made), tuple(buffers.values()), integers)
