"""Runs of kernel calls: canonical hash and slots."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.shipped.kernels import KernelSource
from kernelopt_bot.compiler.shipped.wrapper import Binding, Call, Scope, Statement


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
    inside, slots = inside_and_dying(calls)[0], {}
    for position, call in enumerate(calls):
        for b in call.bindings:
            divisible = b.name in kernels[call.kernel].divisible
            key = (b.root, b.offset) if b.root else (position, b.name)
            if key not in slots and b.root not in inside:
                slots[key] = (b, divisible, "" if b.root else f"{b.name}_{position}")
    pointers = iter(range(len(slots)))
    return tuple(Slot(name or f"p{next(pointers)}", b, divisible) for b, divisible, name in slots.values())


def inside_and_dying(calls: Sequence[Call]) -> tuple[frozenset[str], frozenset[str]]:
    """Roots whose value lives only inside the run, and roots that come in with a value which nothing reads after it.

    The second may be read by what replaces the run and need not be written. A buffer whose memory is given away by
    `buf9 = buf0; del buf0` and that the next kernel takes as an output only has lost its value by then."""
    scope = calls[0].statement.scope
    first, last = calls[0].statement.index, calls[-1].statement.index
    inside: set[str] = set()
    dying: set[str] = set()
    for root in {b.root for c in calls for b in c.bindings if b.root} & scope.owned:
        uses = scope.uses.get(root, [])
        before, after = [u for u in uses if u < first], [u for u in uses if u > last]
        within = [u for u in uses if first <= u <= last]
        if after and not _replaced(scope, root, within[-1], after[0]):
            continue
        (dying if before and not _replaced(scope, root, before[-1], within[0]) else inside).add(root)
    return frozenset(inside), frozenset(dying)


def _replaced(scope: Scope, root: str, use: int, following: int) -> bool:
    """True if between two uses the memory went to another buffer, which the second one only writes."""
    return following in scope.overwrites.get(root, ()) and any(use < r < following for r in scope.reuses.get(root, ()))


def run_hash(calls: Sequence[Call], kernels: Mapping[str, KernelSource]) -> str:
    """Canonical hash of a run: kernel hashes, which arguments share memory, scalars, and, for several calls, which
    buffers live only inside and which die there. '' where an argument is symbolic."""
    if not all(c.stable for c in calls):
        return ""
    order: dict[str, int] = {}
    parts: list[Any] = []
    for call in calls:
        bound = [(order.setdefault(b.root, len(order)), b.offset) if b.root else (b.type, repr(b.value))
                 for b in call.bindings]
        parts.append([kernels[call.kernel].hash, bound])
    if len(calls) > 1:
        parts += [sorted(order[r] for r in roots) for roots in inside_and_dying(calls)]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def consecutive(calls: Sequence[Call], statements: Sequence[Statement]) -> bool:
    """True if only allocations, views, frees and checks stand between the calls, all in one block, and alignments of
    inputs that no call before them in the run has seen: what is no call moves before the run. Its last call
    is a kernel's, unless it is the only one."""
    a, b = calls[0].statement, calls[-1].statement
    between = statements[a.index:b.index + 1]
    indents = {s.node.col_offset for s in between if s.kind in ("kernel", "vendor")}
    seen: set[str] = set()
    calls_by_index = {c.statement.index: c for c in calls}
    if b.kind != "kernel" and len(calls) > 1:
        return False
    for s in between:
        if s.index in calls_by_index:
            seen |= {x.root for x in calls_by_index[s.index].bindings if x.root}
        elif s.kind == "align":
            if seen & {s.scope.names.get(n.id, (n.id, 0))[0] for n in ast.walk(s.node) if isinstance(n, ast.Name)}:
                return False
        elif s.kind not in ("kernel", "allocation", "view", "free", "stream", "check"):
            return False
    return a.scope is b.scope and len(indents) == 1
