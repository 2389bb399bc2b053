"""Gate 1: the contract by AST, then compiled facts against the baseline's; a broken contract is never compiled."""

from __future__ import annotations

import ast
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from kernelopt_bot.compiler.program import Kernel
from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract import options as options_contract
from kernelopt_bot.contract import plan as plan_contract
from kernelopt_bot.contract.body import dotted
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate, Plan
from kernelopt_bot.contract.names import APPROXIMATE
from kernelopt_bot.contract.violation import Violation
from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates.answers import Caller, Malformed, judged, need, number
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import WorkerError, WorkerFailed

COMPILE_TIMEOUT_S = 120.0
"""A kernel takes 0.03 to 0.5 s and a first call some 10 s of imports; what takes longer is an endless unrolling."""

SHARED_LIMIT: Mapping[int, int] = {
    75: 64, 80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99, 121: 99,
}
"""Compute capability -> most shared memory of a block in KiB (CUDA C++ Programming Guide, technical specifications)."""

REGISTER_FILE = 65536
"""32-bit registers of a multiprocessor, which one block cannot exceed (same table)."""

MATRIX = ("HGMMA", "QGMMA", "IGMMA", "HMMA", "QMMA", "IMMA", "DMMA", "UTCMMA", "UTCHMMA")
WEAKER = ("TF32", "BF16", *MATRIX, "MUFU")
"""Instruction kinds that may be less precise than plain arithmetic."""


Compiled = Mapping[str, Any] | KerneloptError
"""What a compiling method of a kernel worker answered, or the error in its place."""


def check_kernel(
    candidate: KernelCandidate, baseline: Kernel | KernelRun, worker: Caller, *, integers: Mapping[str, int],
    arch: int, allow_float_atomics: bool = False, timeout_s: float = COMPILE_TIMEOUT_S,
) -> Verdict:
    """`baseline`: the replaced kernel, or run of several; `integers`: values of the plan's integer parameters and
    `num_sms`; `arch`: compute capability as 90. A kernel worker compiles; no GPU is needed."""
    (verdict,) = check_kernels([candidate], baseline, worker, integers=integers, arch=arch,
                               allow_float_atomics=allow_float_atomics, timeout_s=timeout_s)
    return verdict


@dataclass(frozen=True)
class Group:
    """Candidates for one run, with the values of its plans' integers and `num_sms`."""

    candidates: Sequence[KernelCandidate]
    baseline: Kernel | KernelRun
    integers: Mapping[str, int]

    @property
    def kernels(self) -> tuple[Kernel, ...]:
        return (self.baseline,) if isinstance(self.baseline, Kernel) else self.baseline.kernels

    def job(self, candidate: KernelCandidate, arch: int) -> dict[str, Any]:
        slots = [] if isinstance(self.baseline, Kernel) else self.baseline.slots_json()
        return {"source": candidate.source, "plan": candidate.plan.to_json(), "integers": dict(self.integers),
                "target": {"arch": arch}, "baseline": self.kernels[0].source, "slots": slots}


def check_kernels(
    candidates: Sequence[KernelCandidate], baseline: Kernel | KernelRun, worker: Caller, *,
    integers: Mapping[str, int], arch: int, allow_float_atomics: bool = False, timeout_s: float = COMPILE_TIMEOUT_S,
    known: Mapping[str, Compiled] = {},
) -> list[Verdict]:
    """As `check_groups` for candidates of one run."""
    (verdicts,) = check_groups([Group(candidates, baseline, integers)], worker, arch=arch, known=known,
                               allow_float_atomics=allow_float_atomics, timeout_s=timeout_s)
    return verdicts


def check_groups(
    groups: Sequence[Group], worker: Caller, *, arch: int, allow_float_atomics: bool = False,
    timeout_s: float = COMPILE_TIMEOUT_S, known: Mapping[str, Compiled] = {},
) -> list[list[Verdict]]:
    """A verdict a candidate, all of them compiled side by side by a kernel worker. `known`: what `compile_each` gave
    for baselines, by kernel source, as far as it is at hand."""
    verdicts = [[_contract(c, g, allow_float_atomics) for c in g.candidates] for g in groups]
    wanted = {k.source for g, vs in zip(groups, verdicts, strict=True) if any(v.lets_on for v in vs) for k in g.kernels}
    known = known if wanted <= known.keys() else {**known, **baselines(
        [s for s in sorted(wanted) if s not in known], worker, arch=arch, timeout_s=timeout_s)}
    jobs: list[tuple[int, int]] = []
    before: dict[int, list[Mapping[str, Any]]] = {}
    for n, (group, found) in enumerate(zip(groups, verdicts, strict=True)):
        if not any(v.lets_on for v in found):
            continue
        before[n] = []
        verdict = _understood(group.kernels, known, before[n])
        for i, v in enumerate(found):
            if v.lets_on and not verdict.lets_on:
                found[i] = verdict
            elif v.lets_on:
                jobs.append((n, i))
    begin = time.monotonic()
    answers = compile_each("compile_candidate", [groups[n].job(groups[n].candidates[i], arch) for n, i in jobs], worker,
                           timeout_s=timeout_s)
    seconds = time.monotonic() - begin
    for (n, i), answer in zip(jobs, answers, strict=True):
        made = _compiled(groups[n].candidates[i], groups[n].kernels, before[n], answer, arch)
        verdicts[n][i] = replace(made, seconds=seconds)
    return verdicts


def baselines(sources: Sequence[str], worker: Caller, *, arch: int,
              timeout_s: float = COMPILE_TIMEOUT_S) -> dict[str, Compiled]:
    """Kernel source -> what `compile_baseline` says of it, side by side."""
    jobs = [{"source": source, "target": {"arch": arch}} for source in sources]
    return dict(zip(sources, compile_each("compile_baseline", jobs, worker, timeout_s=timeout_s), strict=True))


def _understood(kernels: Sequence[Kernel], known: Mapping[str, Compiled], facts: list[Mapping[str, Any]]) -> Verdict:
    """Adds the baseline's facts to `facts`; not measured where there are none."""

    def judge() -> Verdict:
        for kernel in kernels:
            answer = known[kernel.source]
            if isinstance(answer, KerneloptError):
                raise answer
            # A configuration that the compiler itself refuses has `error` instead of facts.
            facts.extend(need(c, "facts", Mapping) for c in need(answer, "configs", list) if not c.get("error"))
        return Verdict("static", Status.PASS)

    return judged("static", judge, blame=False)


def compile_each(method: str, jobs: Sequence[Mapping[str, Any]], worker: Caller, *,
                 timeout_s: float = COMPILE_TIMEOUT_S) -> list[Compiled]:
    """The answer of each call of `method`, or the WorkerError or Malformed in its place."""
    if not jobs:
        return []
    try:
        answer = worker.call("compile_each", {"method": method, "params": [dict(j) for j in jobs],
                                              "timeout_s": timeout_s}, timeout=30 + timeout_s * len(jobs))
        answers = need(answer, "answers", list)
        if len(answers) != len(jobs):
            raise Malformed("the worker's answers are of another number than its questions")
        return [_one(a) for a in answers]
    except (WorkerError, Malformed) as e:
        return [e for _ in jobs]


def _one(answer: object) -> Compiled:
    if isinstance(answer, Mapping) and isinstance(answer.get("error"), Mapping):
        error = answer["error"]
        return WorkerFailed(*(str(error.get(key, ""))[:20_000] for key in ("kind", "message", "detail")))
    return need(answer, "result", Mapping)


def _compiled(candidate: KernelCandidate, kernels: Sequence[Kernel], before: Sequence[Mapping[str, Any]],
              answer: Compiled, arch: int) -> Verdict:
    def judge() -> Verdict:
        if isinstance(answer, KerneloptError):
            raise answer
        return _facts(candidate, kernels, before, need(answer, "launches", list), arch)

    return judged("static", judge)


def _contract(candidate: KernelCandidate, group: Group, allow_float_atomics: bool) -> Verdict:
    """The contract by AST: a candidate that breaks it is never compiled."""
    baseline, kernels = group.baseline, group.kernels
    broken = plan_contract.check(candidate.plan, candidate.source, integers=group.integers)
    if not broken:
        broken = _binding(candidate.plan, baseline) if isinstance(baseline, Kernel) else _run_binding(
            candidate.plan, baseline)
    if not broken and not allow_float_atomics and not any(_has_float_atomics(k) for k in kernels):
        broken = [Violation(0, "atomics", f"float atomics on {name}, where the baseline has none")
                  for name in plan_contract.float_atomics(candidate.plan, candidate.source)]
    if not broken:
        return Verdict("static", Status.PASS)
    more = f" (and {len(broken) - 1} more)" if len(broken) > 1 else ""
    return Verdict("static", Status.FAIL, f"contract: {broken[0]}{more}",
                   {"violations": [v.to_json() for v in broken]})


def check_options(candidate: OptionsCandidate, device: str) -> Verdict:
    """The allow-list of the candidate's lever on `device` (`cuda`, `cuda:N`, `pretend`, `cpu`)."""
    broken = options_contract.check(candidate.lever, candidate.options, device)
    if broken:
        return Verdict("static", Status.FAIL, f"options: {broken[0]}", {"violations": [v.to_json() for v in broken]})
    return Verdict("static", Status.PASS, evidence={
        "options": dict(candidate.options), "why": {n: options_contract.ALLOWED[n].why for n in candidate.options}})


def _binding(plan: Plan, kernel: Kernel) -> list[Violation]:
    """A plan for one kernel must take that kernel's buffers, by name and type, and write what it writes."""
    found = []
    pointers = {name: kind for name, kind in kernel.signature.items() if kind.startswith("*")}
    for p in plan.parameters:
        if p.type.startswith("*") and pointers.get(p.name) != p.type:
            found.append(Violation(0, "binding", f"{p.name}: {p.type} is no buffer of {kernel.name}"))
        if p.written and p.name not in kernel.written:
            found.append(Violation(0, "store", f"{p.name} is not written by {kernel.name}"))
    written = {p.name for p in plan.parameters if p.written}
    found += [Violation(0, "coverage", f"{name} is written by {kernel.name} and not by the plan")
              for name in kernel.written if name not in written]
    return found


def _run_binding(plan: Plan, run: KernelRun) -> list[Violation]:
    """A plan for a run must take the run's slots, by name and type, and write what the run as a whole writes and
    something later reads. What lives only inside is not there to take."""
    found = []
    types = {b.name: b.type for b in run.slots}
    for p in plan.parameters:
        if p.type.startswith("*") and types.get(p.name) != p.type:
            found.append(Violation(0, "binding", f"{p.name}: {p.type} is no buffer of the run"))
        if p.written and p.name not in run.written:
            found.append(Violation(0, "store", f"{p.name} is not written by the run, or nothing reads it afterwards"))
    written = {p.name for p in plan.parameters if p.written}
    found += [Violation(0, "coverage", f"{name} is written by the run and not by the plan")
              for name in sorted(run.written) if name not in written]
    return found


def _calls(source: str) -> Iterable[ast.Call]:
    try:
        return [n for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Call)]
    except SyntaxError:
        return []


def _has_float_atomics(kernel: Kernel) -> bool:
    """Whether Inductor's own kernel updates a floating buffer atomically: it names the buffer first in the address."""
    floats = {n for n, t in kernel.signature.items() if t.removeprefix("*") in plan_contract.FLOATS and t[:1] == "*"}
    return any(
        dotted(call.func).startswith("tl.atomic_") and call.args
        and floats & {n.id for n in ast.walk(call.args[0]) if isinstance(n, ast.Name)}
        for call in _calls(kernel.source))


def _facts(
    candidate: KernelCandidate, kernels: Sequence[Kernel], before: Sequence[Mapping[str, Any]],
    launches: Sequence[Any], arch: int,
) -> Verdict:
    limit = SHARED_LIMIT.get(arch, 0) * 1024
    evidence: dict[str, Any] = {
        "arch": arch, "baseline": list(before), "candidate": list(launches), "shared_limit": limit or None}
    if len(launches) != len(candidate.plan.launches):
        return Verdict("static", Status.NOT_MEASURED, "facts of another number of launches came back", evidence)
    for launch, facts in zip(candidate.plan.launches, launches, strict=True):
        shared, registers = number(facts, "shared"), number(facts, "registers")
        if limit and shared > limit:
            reason = f"{launch.function} takes {shared:.0f} bytes of shared memory, sm_{arch} has {limit}"
            return Verdict("static", Status.FAIL, reason, evidence)
        if registers * 32 * launch.num_warps > REGISTER_FILE:
            return Verdict("static", Status.FAIL, f"{launch.function} takes {registers:.0f} registers in "
                           f"{launch.num_warps} warps, a block has {REGISTER_FILE}", evidence)
    evidence["flags"] = _flags(candidate, kernels, before, launches)
    return Verdict("static", Status.PASS, evidence=evidence)


def _kinds(facts: Iterable[Any]) -> set[str]:
    return {kind for f in facts for kind, count in need(f, "instructions", Mapping).items() if count}


def _flags(
    candidate: KernelCandidate, kernels: Sequence[Kernel], before: Sequence[Any], launches: Sequence[Any]
) -> list[str]:
    """What gate 2 must look at more closely; the numeric rule decides."""
    new = _kinds(launches) - _kinds(before)
    flags = [f"{kind} instructions, which the baseline lacks" for kind in WEAKER if kind in new]
    used = {dotted(c.func) for c in _calls(candidate.source)} & APPROXIMATE
    used -= {dotted(c.func) for k in kernels for c in _calls(k.source)}
    flags += [f"{name}, which the baseline lacks" for name in sorted(used)]
    most = max((number(f, "spills") for f in before), default=0.0)
    flags += [f"{number(f, 'spills'):.0f} spilled words a thread, the baseline {most:.0f}"
              for f in launches if number(f, "spills") > most]
    return flags
