"""Runs of kernel calls: canonical hash and slots."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.shipped.kernels import KernelSource
from kernelopt_bot.compiler.shipped.wrapper import Binding, Call, Statement


@dataclass(frozen=True)
class Slot:
    """A live-in or live-out of a run. One call: the kernel's parameters by name. More: `p0`, `p1`, ... for buffers
    in order of appearance, without those that live only inside the run, and `<parameter>_<call>` for scalars."""

    name: str
    binding: Binding
    divisible: bool


def run_slots(calls: Sequence[Call], kernels: Mapping[str, KernelSource]) -> tuple[Slot, ...]:
    """The slots of a run in canonical order."""
    if len(calls) == 1:
        known = kernels[calls[0].kernel].divisible
        return tuple(Slot(b.name, b, b.name in known) for b in calls[0].bindings)
    inside, slots = _internal(calls), {}
    for position, call in enumerate(calls):
        for b in call.bindings:
            divisible = b.name in kernels[call.kernel].divisible
            key = (b.root, b.offset) if b.root else (position, b.name)
            if key not in slots and b.root not in inside:
                slots[key] = (b, divisible, "" if b.root else f"{b.name}_{position}")
    pointers = iter(range(len(slots)))
    return tuple(Slot(name or f"p{next(pointers)}", b, divisible) for b, divisible, name in slots.values())


def _internal(calls: Sequence[Call]) -> set[str]:
    """Roots that only this run touches."""
    scope, inside = calls[0].statement.scope, {c.statement.index for c in calls}
    roots = {b.root for c in calls for b in c.bindings if b.root in scope.names}
    return {r for r in roots - scope.escaping if set(scope.uses.get(r, ())) <= inside}


def run_hash(calls: Sequence[Call], kernels: Mapping[str, KernelSource]) -> str:
    """Canonical hash of a run: kernel hashes, which arguments share memory, scalars, and, for several calls, which
    buffers live only inside. '' where an argument is symbolic."""
    if not all(c.stable for c in calls):
        return ""
    order: dict[str, int] = {}
    parts: list[Any] = []
    for call in calls:
        bound = [(order.setdefault(b.root, len(order)), b.offset) if b.root else (b.type, repr(b.value))
                 for b in call.bindings]
        parts.append([kernels[call.kernel].hash, bound])
    if len(calls) > 1:
        parts.append(sorted(order[r] for r in _internal(calls)))
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def consecutive(calls: Sequence[Call], statements: Sequence[Statement]) -> bool:
    """True if only allocations, views, frees and checks stand between the calls, all in one block."""
    a, b = calls[0].statement, calls[-1].statement
    between = statements[a.index:b.index + 1]
    indents = {s.node.col_offset for s in between if s.kind == "kernel"}
    return a.scope is b.scope and len(indents) == 1 and all(
        s.kind in ("kernel", "allocation", "view", "free", "stream", "check") for s in between)
