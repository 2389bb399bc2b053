"""Gate 2 of a kernel candidate: the compiler's own kernel against the candidate on every input family.

Each launch gets fresh guarded memory for what is stored to. What is only read lies in one guarded place for all of
them, and its checksum stays what it was before the first (where there is no room for that, see `golden.room`, it is
fresh too).
Outputs that the baseline does not read are poisoned, once with all ones and once with another pattern: what keeps both
patterns was not written, so coverage is exact. A candidate must write every byte that the baseline writes and no other,
leave inputs and guard bands alone, give the same bits twice where the baseline does, and be as close to float64 as the
precision rule demands.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from kernelopt_bot.contract.candidate import Plan
from kernelopt_bot.sandbox.worker import families as input_families
from kernelopt_bot.sandbox.worker import golden, launch_order, precision, seeds
from kernelopt_bot.sandbox.worker.buffers import GUARD_BYTE, Arena, Contents, Slot, parse_argument
from kernelopt_bot.sandbox.worker.interpret import DeadlinePassed, deadline
from kernelopt_bot.sandbox.worker.lane import Lane, need_lane
from kernelopt_bot.sandbox.worker.launchers import LOST, Candidate, Replaced, Runner, run
from kernelopt_bot.sandbox.worker.promote import CannotPromote
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.run_baseline import open_baseline
from kernelopt_bot.sandbox.worker.step_inputs import Drawn, Inputs, StepInputs
from kernelopt_bot.sandbox.worker.tensors import Scratch

Nearby = Mapping[str, float]
"""Arguments of `precision.compare`: the baseline's errors next to the compared inputs."""
NONE: Mapping[str, Nearby] = {}
ORDER_FAMILIES = ("normal", "captured")
"""The first of these that is asked for also runs with the programs in other orders."""


COLLECTED = 1 << 26
"""Bytes of a launch in the interpreter lane after which its garbage is collected at once: the interpreter leaves cycles
that hold the arguments."""


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
    baseline: Replaced, arguments: Sequence[Any], integers: Mapping[str, Any]
) -> tuple[list[Slot], dict[str, Any]]:
    """The tensor arguments of a step, and the others by name. Raises WorkerFault bad_request."""
    parsed = {n: parse_argument(a, n) for n, a in baseline.bind(arguments).items()}
    slots = [replace(a, loaded=n in baseline.loaded, stored=n in baseline.stored, changed=n in baseline.changed)
             for n, a in parsed.items() if isinstance(a, Slot)]
    return slots, {**integers, **{n: a for n, a in parsed.items() if not isinstance(a, Slot)}}


class StepCheck:
    """One step, or run of steps, and one candidate. Raises WorkerFault: bad_request, compile_failed, unsupported."""

    def __init__(self, params: Mapping[str, Any], scratch: Scratch, folder: str) -> None:
        self.lane: Lane = params["lane"]
        self.device = need_lane(self.lane)
        self.secret = str(params["secret"])
        self.rule = {name: float(value) for name, value in params["precision"].items()}
        self.baseline = open_baseline(params["baseline"], folder, self.lane)
        self.slots, self.scalars = step_arguments(
            self.baseline, params["arguments"], params["baseline"].get("integers", {}))
        if not any(s.stored for s in self.slots):
            raise WorkerFault("bad_request", f"{self.baseline.name} stores to none of its arguments")
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
        self.room = golden.room(
            self.slots, self.device, scratch_bytes=self.candidate.scratch_bytes,
            program_bytes=params.get("program_bytes"), promoted=self.reference is not None)
        self.stored = sorted({s.storage for s in self.slots if s.stored})
        self.inputs = StepInputs(self.slots, self.device, self.room.home, self.secret, scratch)

    def launch(
        self, runner: Runner, who: str, inputs: Inputs, poison: int, *, watched: bool = True,
    ) -> tuple[Arena, bool]:
        """One launch, with `poison` in what the baseline only writes: (memory after it, whether what is only read is
        as it was, where `watched`)."""
        arena = Arena(self.slots, self.device, shared=inputs.blocks)
        read = {s.storage for s in self.slots if s.loaded}
        for slot in (s for s in self.slots if s.storage not in inputs.blocks):
            if slot.loaded:
                _copy(arena.view(slot), inputs.values[slot.name])
            elif slot.storage not in read:
                arena.payload(slot.storage).fill_(poison)
        still = sorted({s.storage for s in self.slots} - set(self.stored)) if watched else []
        before = [inputs.sums.get(s) or arena.checksum(s, self.inputs.key) for s in still]
        self._run(runner, arena, who)
        return arena, before == [arena.checksum(s, self.inputs.key) for s in still]

    def _run(self, runner: Runner, arena: Arena, who: str) -> None:
        run(runner, {**self.scalars, **{s.name: arena.view(s) for s in self.slots}}, self.device, who)
        if self.lane == "interpret" and arena.nbytes() > COLLECTED:
            gc.collect()

    def family(self, family: str, index: int) -> dict[str, Any]:
        """One `FamilyResult`."""
        drawn = Drawn(family, f"check_step/{family}", index)
        nearby = self._nearby(drawn) if family == "constant" else {}
        apart = family == self.order_family and self.findings.orders is None
        inputs, early, reference = self._begun(drawn, apart)
        try:
            base = golden.repeated(
                lambda poison: self.launch(self.baseline, "the baseline", inputs, poison, watched=False),
                self.slots, self.device, self.room.home)
        except WorkerFault as e:
            raise WorkerFault("unsupported" if e.kind == "runtime_failed" else e.kind, e.message, e.detail) from e
        outputs: list[dict[str, Any]] = []

        def look(arena: Arena) -> None:
            nonlocal reference
            outputs.extend(self._compared(arena, base.first, reference, nearby))
            # Its memory is needed for the second launch. Orders are compared with it only where bits may differ.
            reference = reference.moved(torch.device("cpu")) if reference and apart and not base.same else None

        ours = golden.repeated(
            lambda poison: self.launch(self.candidate, "the candidate", inputs, poison), self.slots, self.device,
            self.room.home, look)
        reasons = self._memory(base, ours)
        reasons += [f"{o['name']}: {o['reason']}" for o in outputs if not o["passed"]]
        if not reasons and apart:
            reasons += self._orders(inputs, early, ours.first, base.first, reference)
        return {"family": family, "seed": seeds.derive(self.secret, drawn.purpose, index), "outputs": outputs,
                "passed": not reasons, "reason": "; ".join(reasons)}

    def _begun(self, drawn: Drawn, apart: bool = False) -> tuple[Inputs, Contents | None, Contents | None]:
        """(inputs, the candidate's early result where orders are looked at, the reference)."""
        if not self.room.redrawn:
            inputs = self.inputs.there(drawn)
            early = self._early(inputs) if apart else None
            return inputs, early, self._reference(lambda wide: _copy_all(wide, inputs.values))
        early = self._early(self.inputs.there(drawn)) if apart else None
        digests: list[int] = []

        def fill(wide: Mapping[str, Tensor]) -> None:
            self.inputs.draw(drawn, wide)
            digests.extend(self.inputs.digests(wide))

        reference = self._reference(fill)
        inputs = self.inputs.there(drawn)
        if digests and digests != self.inputs.digests(inputs.values):
            raise WorkerFault("unsupported", "the same seed drew other inputs the second time")
        return inputs, early, reference

    def _compared(
        self, candidate: Contents, base: Contents, reference: Contents | None, nearby: Mapping[str, Nearby] = NONE,
    ) -> list[dict[str, Any]]:
        """`OutputResult` of every output."""
        return [precision.compare(s.name, candidate.view(s), base.view(s),
                                  None if reference is None else reference.view(s),
                                  **self.rule, **nearby.get(s.name, {}))
                for s in self.slots if s.stored]

    def _nearby(self, drawn: Drawn) -> dict[str, Nearby]:
        """Output -> the baseline's own error next to these inputs; empty without a float64 reference.

        On equal values a baseline can be exact by luck (Welford's mean of a constant), where one unit in the last place
        of an input or of a mean counts 300-fold (a normalisation by the root of its epsilon): an honest candidate that
        divides by its own means would fail for its rounding.
        """
        if self.reference is None:
            return {}
        inputs, _, reference = self._begun(replace(drawn, nudged=True))
        if reference is None:
            return {}
        arena, _ = self.launch(self.baseline, "the baseline", inputs, GUARD_BYTE, watched=False)
        found: dict[str, Nearby] = {}
        for slot in (s for s in self.slots if s.stored and s.dtype.is_floating_point):
            base = arena.view(slot)
            said = precision.compare(slot.name, base, base, reference.view(slot), **self.rule)
            found[slot.name] = {"near_rmse": said["rmse_baseline"], "near_max": said["max_baseline"]}
        return found

    def _early(self, inputs: Inputs) -> Contents | None:
        """The candidate's result, on the host, while no memory holds the expected one that it could find and copy.
        None if it does not run: the launch after the baseline's says why."""
        try:
            arena, _ = self.launch(self.candidate, "the candidate", inputs, GUARD_BYTE, watched=False)
        except WorkerFault as e:
            if e.detail == LOST:
                raise
            return None
        return arena.kept(self.stored, torch.device("cpu"))

    def _orders(
        self, inputs: Inputs, early: Contents | None, usual: Contents, base: Contents,
        reference: Contents | None,
    ) -> list[str]:
        """The candidate before the baseline has run, and with its programs in other orders, against its own first
        result: equal bits where the baseline has them, else by the precision rule. Raises WorkerFault."""
        self.findings.orders = 0

        def differs(got: Contents, words: str) -> list[str]:
            same = golden.equal(got, usual, self.stored, self.device)
            if not same and self.findings.deterministic is None:
                same = all(o["passed"] for o in self._compared(got, base, reference))
            if same:
                return []
            self.findings.order_dependent = words
            return [f"the result depends on the order of the programs ({words})"]

        if early is not None and (reasons := differs(early, "it before the baseline")):
            return reasons
        for words, runner in launch_order.orders(
                self.candidate, self.source, self.baseline, self.scalars, self.device):
            arena, _ = self.launch(runner, "the candidate in another order", inputs, GUARD_BYTE, watched=False)
            if reasons := differs(arena, words):
                return reasons
            if not arena.intact():
                self.findings.guards_intact = False
                return [f"memory outside of a buffer was written ({words})"]
            self.findings.orders += 1
        return []

    def _reference(self, fill: Callable[[Mapping[str, Tensor]], None]) -> Contents | None:
        """`fill` puts the inputs into wide memory, by argument."""
        if self.reference is None:
            return None
        try:
            arena = Arena(self.slots, self.device, promoted=True, bare=True)
            read = {s.storage for s in self.slots if s.loaded}
            for storage in {s.storage for s in self.slots} - read:
                arena.payload(storage).fill_(GUARD_BYTE)
            fill({s.name: arena.view(s) for s in self.slots if s.loaded})
            self._run(self.reference, arena, "the float64 reference")
            return arena.kept(self.stored, self.room.home)
        except ValueError as e:
            self.findings.float64 = str(e)
        except WorkerFault as e:
            if e.detail == LOST:
                raise WorkerFault("unsupported", e.message, e.detail) from e
            if e.kind == "out_of_memory":
                raise
            self.findings.float64 = e.message
        self.reference = None
        return None

    def _memory(self, base: golden.Repeated, ours: golden.Repeated) -> list[str]:
        """Reasons from guards, inputs, coverage and repeatability; notes them in the findings."""
        reasons = []
        found = self.findings
        if not ours.untouched:
            found.inputs_untouched = False
            reasons.append("an input was changed")
        if not ours.intact:
            found.guards_intact = False
            reasons.append("memory outside of a buffer was written")
        missed, outside = golden.coverage(base, ours, self.device)
        if missed:
            found.covered = False
            reasons.append(f"{missed} bytes that the baseline writes were not written")
        if outside:
            found.guards_intact = False
            reasons.append(f"{outside} bytes that the baseline leaves alone were written")
        if base.same:
            found.deterministic = ours.same and found.deterministic is not False
            if not ours.same:
                reasons.append("two runs on the same input differ, the baseline's do not")
        return reasons


def _copy(target: Tensor, source: Tensor) -> None:
    input_families.writable(target).copy_(input_families.writable(source))


def _copy_all(targets: Mapping[str, Tensor], sources: Mapping[str, Tensor]) -> None:
    for name, source in sources.items():
        _copy(targets[name], source)


def check_step(params: Mapping[str, Any], scratch: Scratch, folder: str) -> dict[str, Any]:
    """Method `check_step` of docs/architecture.md.

    `seeds` (default 1) draws each random family so often. `budget_s` bounds the interpreter lane in seconds. The first
    failing family ends the check; `not_run` lists [family, index, reason] of what was left out. `scratch_bytes` is what
    the candidate allocates for itself. `program_bytes`: the whole program's peak, which with twice the step's buffers
    bounds what the check may take (`golden.room`); `peak_bytes` is what it took of the GPU, null without one.
    """
    started = time.monotonic()
    budget = params.get("budget_s")
    end = started + float(budget) if budget is not None and params["lane"] == "interpret" else None
    check = StepCheck(params, scratch, folder)
    on_gpu = check.device.type == "cuda"
    if on_gpu:
        torch.cuda.reset_peak_memory_stats(check.device)
    before = torch.cuda.memory_allocated(check.device) if on_gpu else 0
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
    room = check.room
    return {
        "families": results, "inputs_untouched": found.inputs_untouched, "guards_intact": found.guards_intact,
        "covered": found.covered, "deterministic": found.deterministic, "float64": found.float64,
        "orders": found.orders, "order_dependent": found.order_dependent,
        "peak_bytes": torch.cuda.max_memory_allocated(check.device) - before if on_gpu else None,
        "needed_bytes": room.needed, "limit_bytes": room.limit, "golden": "device" if room.home == check.device else
        "host", "scratch_bytes": check.candidate.scratch_bytes,
        "not_run": [[f, i, stopped] for f, i in wanted[len(results):]], "seconds": time.monotonic() - started,
    }
