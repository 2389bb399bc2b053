"""A run of several of the compiler's kernels, launched one after the other, as gate 2 and the races see it: one thing
with live-ins, live-outs, and buffers between its kernels that no candidate gets to see."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

from kernelopt_bot.compiler._runtime import KernelSource, read_kernel
from kernelopt_bot.sandbox.worker.compile import any_kernel
from kernelopt_bot.sandbox.worker.lane import Lane
from kernelopt_bot.sandbox.worker.launchers import Baseline, Promoted, Replaced
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.vendor_step import VendorStep

Role = Literal["through", "inside", "dying"]


@dataclass(frozen=True)
class RunBuffer:
    """One buffer of a run. `role`: `inside` if its value begins and ends in the run, `dying` if it comes in with a
    value and nothing reads it afterwards, else `through`. `old`: something before the run used it."""

    name: str
    type: str
    divisible: bool
    role: Role
    old: bool


Passed = tuple[str | int | float | bool, ...]
"""A call's arguments in order: names of buffers, and numbers."""


class RunBaseline:
    """`kernels`: [{source, arguments: [buffer's name or number]} or a vendor call, {vendor, arguments, keywords,
    result}]; `buffers`: the run's, in the order of `arguments`. What a vendor call returns is copied into its buffer
    after the run, where that counts and `copies` is set: without, times are those of the wrapper.

    Raises WorkerFault bad_request for kernels and buffers that do not fit together, compile_failed for a source that
    cannot be loaded.
    """

    def __init__(self, kernels: Sequence[Mapping[str, Any]], buffers: Sequence[RunBuffer], folder: str,
                 lane: Lane) -> None:
        self.lane, self.folder = lane, os.path.join(folder, "kernels")
        self.buffers = {b.name: b for b in buffers}
        self.copies = True
        self.steps: list[tuple[Baseline, Passed] | VendorStep] = []
        touched = []
        for data in kernels:
            if "vendor" in data:
                vendor = VendorStep.of(data)
                self.steps.append(vendor)
                touched.append(vendor.touched())
            else:
                baseline, passed = Baseline(data["source"], folder, lane), tuple(data["arguments"])
                touched.append(_touched(baseline, passed))
                self.steps.append((baseline, passed))
            if unknown := set().union(*touched[-1]) - set(self.buffers):
                raise WorkerFault("bad_request", f"no buffer {', '.join(sorted(unknown))} in the run")
        own = [s for s in self.steps if not isinstance(s, VendorStep)]
        if not self.steps:
            raise WorkerFault("bad_request", "a run of no kernels")
        self.stored: AbstractSet[str] = frozenset(
            n for n, b in self.buffers.items() if b.role == "through" and any(n in s for _, s in touched))
        self.loaded: AbstractSet[str] = frozenset(
            n for n, b in self.buffers.items() if b.role != "inside" and _comes_in(b, touched))
        self.changed: AbstractSet[str] = frozenset().union(*(stores for _, stores in touched))
        self.name = " + ".join(s.name if isinstance(s, VendorStep) else s[0].name for s in self.steps)
        first = read_kernel(own[0][0].kernel.source) if own else any_kernel(_arch(lane))
        self.bound: KernelSource = replace(
            first, signature={n: b.type for n, b in self.buffers.items()},
            divisible=frozenset(n for n, b in self.buffers.items() if b.divisible))

    def bind(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """`arguments` of `check_step` by buffer name. Raises WorkerFault if the count is wrong."""
        if len(arguments) != len(self.buffers):
            raise WorkerFault("bad_request", f"the run has {len(self.buffers)} buffers, got {len(arguments)}")
        return dict(zip(self.buffers, arguments, strict=True))

    def __call__(self, arguments: Mapping[str, Any]) -> None:
        buffers = dict(arguments)
        for step in self.steps:
            if isinstance(step, VendorStep):
                step.launch(buffers)
            else:
                baseline, passed = step
                baseline.launch([buffers[a] if isinstance(a, str) else a for a in passed])
        if self.copies:
            self._return(arguments, buffers)

    def _return(self, arguments: Mapping[str, Any], buffers: Mapping[str, Any]) -> None:
        """Results of vendor calls, and what kernels made of them in place, into the run's own memory."""
        for name in self.stored:
            if buffers[name] is not arguments[name]:
                arguments[name].copy_(buffers[name])

    def promoted(self) -> Callable[[Mapping[str, Any]], None]:
        """All steps in float64, what passes between them too. Raises CannotPromote."""
        promoted: list[tuple[Promoted, Passed] | VendorStep] = [
            s if isinstance(s, VendorStep) else (s[0].promoted(), s[1]) for s in self.steps]

        def call(arguments: Mapping[str, Any]) -> None:
            buffers = dict(arguments)
            for step in promoted:
                if isinstance(step, VendorStep):
                    step.launch(buffers)
                    continue
                kernel, passed = step
                named = zip(kernel.kernel.parameters, passed, strict=True)
                kernel({n: buffers[a] if isinstance(a, str) else a for n, a in named})
            self._return(arguments, buffers)

        return call


def _arch(lane: Lane) -> int:
    major, minor = torch.cuda.get_device_capability() if lane == "cuda" else (9, 0)
    return 10 * major + minor


def _touched(baseline: Baseline, passed: Passed) -> tuple[set[str], set[str]]:
    """Buffers that one call (loads from, stores to)."""
    bound = baseline.kernel.bind(passed)
    loads, stores = ({str(bound[p]) for p in names if isinstance(bound.get(p), str)}
                     for names in (baseline.loaded, baseline.stored))
    # A buffer that a kernel takes and does not touch must be one of the run all the same.
    return loads | ({a for a in passed if isinstance(a, str)} - stores), stores


def _comes_in(buffer: RunBuffer, touched: Sequence[tuple[set[str], set[str]]]) -> bool:
    """Whether the run can see what was in the buffer before: its first kernel there loads, or a later one loads what
    an older value may still fill in part."""
    name = buffer.name
    order = [(name in loads, name in stores) for loads, stores in touched if name in loads | stores]
    return bool(order) and (order[0][0] or (buffer.old and any(loads for loads, _ in order)))


def open_baseline(data: Mapping[str, Any], folder: str, lane: Lane) -> Replaced:
    """`{source, reads?}` of one kernel, or `{kernels, buffers}` of a run. Raises WorkerFault bad_request or
    compile_failed."""
    if "kernels" not in data:
        return Baseline(data["source"], folder, lane, data.get("reads"))
    try:
        buffers = [RunBuffer(str(b["name"]), str(b["type"]), bool(b["divisible"]), b["role"], bool(b["old"]))
                   for b in data["buffers"]]
    except TypeError as e:
        raise WorkerFault("bad_request", f"the run's buffers are not understood: {e}") from e
    if bad := [b.role for b in buffers if b.role not in ("through", "inside", "dying")]:
        raise WorkerFault("bad_request", f"no role {bad[0]!r}")
    return RunBaseline(data["kernels"], buffers, folder, lane)
