"""Gate 2 of a kernel candidate: the compiler's own kernel against the candidate on every input family.

Each launch gets fresh guarded memory. Outputs that the baseline does not read are poisoned, once with all ones and once
with another pattern: what keeps both patterns was not written, so coverage is exact. A candidate must write every byte
that the baseline writes and no other, leave inputs and guard bands alone, give the same bits twice where the baseline
does, and be as close to float64 as the precision rule demands.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker import families as input_families
from kernelopt_bot.sandbox.worker import launch_order, precision, seeds
from kernelopt_bot.sandbox.worker.buffers import GUARD_BYTE, Arena, Slot, parse_argument
from kernelopt_bot.sandbox.worker.interpret import DeadlinePassed, deadline
from kernelopt_bot.sandbox.worker.lane import Lane, need_lane
from kernelopt_bot.sandbox.worker.launchers import LOST, Baseline, Candidate, Runner, run
from kernelopt_bot.sandbox.worker.promote import CannotPromote
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.tensors import Scratch

SECOND_POISON = 0x5A
ORDER_FAMILIES = ("normal", "captured")
"""The first of these that is asked for also runs with the programs in other orders."""


@dataclass(frozen=True)
class _Outcome:
    arena: Arena
    untouched: bool


@dataclass
class Findings:
    """What the candidate was caught at, over all families run."""

    inputs_untouched: bool = True
    guards_intact: bool = True
    covered: bool = True
    deterministic: bool | None = None
    float64: str = "used"
    orders: int | None = None
    """Further orders of its programs in which the result was the same; None where none was tried."""
    order_dependent: str = ""
    """The order in which the result differed."""


def step_arguments(
    baseline: Baseline, arguments: Sequence[Any], integers: Mapping[str, Any]
) -> tuple[list[Slot], dict[str, Any]]:
    """The tensor arguments of a step, and the others by name. Raises WorkerFault bad_request."""
    parsed = {n: parse_argument(a, n) for n, a in baseline.kernel.bind(arguments).items()}
    slots = [replace(a, loaded=n in baseline.loaded, stored=n in baseline.stored)
             for n, a in parsed.items() if isinstance(a, Slot)]
    return slots, {**integers, **{n: a for n, a in parsed.items() if not isinstance(a, Slot)}}


class StepCheck:
    """One step and one candidate. Raises WorkerFault: bad_request, compile_failed, unsupported."""

    def __init__(self, params: Mapping[str, Any], scratch: Scratch, folder: str) -> None:
        self.lane: Lane = params["lane"]
        self.device = need_lane(self.lane)
        self.secret, self.scratch = str(params["secret"]), scratch
        self.rule = {name: float(value) for name, value in params["precision"].items()}
        self.baseline = Baseline(params["baseline"]["source"], folder, self.lane)
        self.slots, self.scalars = step_arguments(
            self.baseline, params["arguments"], params["baseline"].get("integers", {}))
        if not any(s.stored for s in self.slots):
            raise WorkerFault("bad_request", f"{self.baseline.kernel.name} stores to none of its arguments")
        self.order_family = next((f for f in ORDER_FAMILIES if f in params["families"]), "")
        self.source: str = params["candidate"]["source"]
        self.candidate = Candidate(
            self.source, Plan.from_json(params["candidate"]["plan"]), self.baseline, self.scalars,
            self.device)
        self.findings = Findings()
        self.reference: Runner | None = None
        try:
            self.reference = self.baseline.promoted()
        except CannotPromote as e:
            self.findings.float64 = f"the kernel cannot be promoted: {e}"
        except WorkerFault as e:
            self.findings.float64 = f"the promoted kernel does not load: {e.message}"

    def values(self, family: str, generator: torch.Generator) -> dict[str, Tensor]:
        """Contents of every argument that the baseline reads."""
        made = {}
        for slot in (s for s in self.slots if s.loaded):
            recorded = slot.recorded(self.scratch)
            index = not slot.dtype.is_floating_point and slot.dtype is not torch.bool
            chosen = "captured" if index and slot.saved is not None else family
            like = recorded if recorded.device.type == "meta" else recorded.to(self.device)
            made[slot.name] = input_families.make(chosen, like, slot.stats, generator)
        return made

    def launch(
        self, runner: Runner, who: str, values: Mapping[str, Tensor], poison: int, promoted: bool = False
    ) -> _Outcome:
        """One launch in fresh memory, with `poison` in what the baseline only writes."""
        arena = Arena(self.slots, self.device, promoted)
        read = {s.storage for s in self.slots if s.loaded}
        for slot in self.slots:
            if slot.loaded:
                input_families.writable(arena.view(slot)).copy_(input_families.writable(values[slot.name]))
            elif slot.storage not in read:
                arena.payload(slot.storage).fill_(poison)
        inputs = sorted({s.storage for s in self.slots} - {s.storage for s in self.slots if s.stored})
        key = seeds.derive(self.secret, "checksum", 0)
        before = [arena.checksum(s, key) for s in inputs]
        run(runner, {**self.scalars, **{s.name: arena.view(s) for s in self.slots}}, self.device, who)
        return _Outcome(arena, before == [arena.checksum(s, key) for s in inputs])

    def family(self, family: str, index: int) -> dict[str, Any]:
        """One `FamilyResult`."""
        purpose = f"check_step/{family}"
        values = self.values(family, seeds.generator(self.secret, purpose, index, self.device))
        try:
            base = [self.launch(self.baseline, "the baseline", values, p) for p in (GUARD_BYTE, SECOND_POISON)]
        except WorkerFault as e:
            raise WorkerFault("unsupported" if e.kind == "runtime_failed" else e.kind, e.message, e.detail) from e
        ours = [self.launch(self.candidate, "the candidate", values, p) for p in (GUARD_BYTE, SECOND_POISON)]
        reference = self._reference(values)
        reasons = self._memory(base, ours)
        outputs = [
            precision.compare(s.name, ours[0].arena.view(s), base[0].arena.view(s),
                              None if reference is None else reference.view(s), **self.rule)
            for s in self.slots if s.stored
        ]
        reasons += [f"{o['name']}: {o['reason']}" for o in outputs if not o["passed"]]
        if not reasons and family == self.order_family and self.findings.orders is None:
            reasons += self._orders(values, ours[0].arena, base[0].arena, reference)
        return {"family": family, "seed": seeds.derive(self.secret, purpose, index), "outputs": outputs,
                "passed": not reasons, "reason": "; ".join(reasons)}

    def _orders(self, values: Mapping[str, Tensor], usual: Arena, base: Arena, reference: Arena | None) -> list[str]:
        """The candidate with its programs in other orders, against its own first result: equal bits where the baseline
        has them, else by the precision rule. Raises WorkerFault."""
        self.findings.orders = 0
        stored = sorted({s.storage for s in self.slots if s.stored})
        for words, runner in launch_order.orders(
                self.candidate, self.source, self.baseline, self.scalars, self.device):
            arena = self.launch(runner, "the candidate in another order", values, GUARD_BYTE).arena
            same = all(torch.equal(arena.payload(s), usual.payload(s)) for s in stored)
            if not same and self.findings.deterministic is None:
                same = arena.intact() and all(precision.compare(
                    s.name, arena.view(s), base.view(s), None if reference is None else reference.view(s),
                    **self.rule)["passed"] for s in self.slots if s.stored)
            if not same:
                self.findings.order_dependent = words
                return [f"the result depends on the order of the programs ({words})"]
            self.findings.orders += 1
        return []

    def _reference(self, values: Mapping[str, Tensor]) -> Arena | None:
        if self.reference is None:
            return None
        try:
            return self.launch(self.reference, "the float64 reference", values, GUARD_BYTE, promoted=True).arena
        except ValueError as e:
            self.findings.float64 = str(e)
        except WorkerFault as e:
            if e.detail == LOST:
                raise
            self.findings.float64 = e.message
        self.reference = None
        return None

    def _memory(self, base: Sequence[_Outcome], ours: Sequence[_Outcome]) -> list[str]:
        """Reasons from guards, inputs, coverage and repeatability; notes them in the findings."""
        reasons = []
        found = self.findings
        if not all(o.untouched for o in ours):
            found.inputs_untouched = False
            reasons.append("an input was changed")
        if not all(o.arena.intact() for o in ours):
            found.guards_intact = False
            reasons.append("memory outside of a buffer was written")
        missed, outside, base_same, ours_same = self._writes([o.arena for o in base], [o.arena for o in ours])
        if missed:
            found.covered = False
            reasons.append(f"{missed} bytes that the baseline writes were not written")
        if outside:
            found.guards_intact = False
            reasons.append(f"{outside} bytes that the baseline leaves alone were written")
        if base_same:
            found.deterministic = ours_same and found.deterministic is not False
            if not ours_same:
                reasons.append("two runs on the same input differ, the baseline's do not")
        return reasons

    def _writes(self, base: Sequence[Arena], ours: Sequence[Arena]) -> tuple[int, int, bool, bool]:
        """(bytes missed, bytes written outside, baseline repeats, candidate repeats) over all written storages."""
        read = {s.storage for s in self.slots if s.loaded}
        missed = outside = 0
        base_same = ours_same = True
        for storage in sorted({s.storage for s in self.slots if s.stored}):
            a, b, c, d = (arena.payload(storage) for arena in (*base, *ours))
            if storage in read:
                base_same, ours_same = base_same and torch.equal(a, b), ours_same and torch.equal(c, d)
                continue
            by_base = (a != GUARD_BYTE) | (b != SECOND_POISON)
            by_ours = (c != GUARD_BYTE) | (d != SECOND_POISON)
            missed += int((by_base & ~by_ours).sum())
            outside += int((by_ours & ~by_base).sum())
            base_same = base_same and not bool(((a != b) & by_base).any())
            ours_same = ours_same and not bool(((c != d) & by_ours).any())
        return missed, outside, base_same, ours_same


def check_step(params: Mapping[str, Any], scratch: Scratch, folder: str) -> dict[str, Any]:
    """Method `check_step` of docs/architecture.md.

    `seeds` (default 1) draws each random family so often. `budget_s` bounds the interpreter lane in seconds. The first
    failing family ends the check; `not_run` lists [family, index, reason] of what was left out. `scratch_bytes` is what
    the candidate allocates for itself.
    """
    started = time.monotonic()
    budget = params.get("budget_s")
    end = started + float(budget) if budget is not None and params["lane"] == "interpret" else None
    check = StepCheck(params, scratch, folder)
    repeats = int(params.get("seeds", 1))
    wanted = [(f, i) for f in params["families"] for i in range(1 if f in ("captured", "zero") else repeats)]
    results: list[dict[str, Any]] = []
    stopped = ""
    with deadline(end) if check.lane == "interpret" else nullcontext():
        for family, index in wanted:
            try:
                results.append(check.family(family, index))
            except DeadlinePassed:
                stopped = f"the budget of {budget} s was used up"
                break
            if not results[-1]["passed"]:
                stopped = "an earlier family failed"
                break
    found = check.findings
    payload = sum({s.storage: s.extent * s.dtype.itemsize for s in check.slots}.values())
    return {
        "families": results, "inputs_untouched": found.inputs_untouched, "guards_intact": found.guards_intact,
        "covered": found.covered, "deterministic": found.deterministic, "float64": found.float64,
        "orders": found.orders, "order_dependent": found.order_dependent,
        "peak_bytes": payload + check.candidate.scratch_bytes, "scratch_bytes": check.candidate.scratch_bytes,
        "not_run": [[f, i, stopped] for f, i in wanted[len(results):]], "seconds": time.monotonic() - started,
    }
