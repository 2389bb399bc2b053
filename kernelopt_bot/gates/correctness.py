"""Gate 2: one run of steps (or, for options, one graph) against the compiler's own code on many inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from kernelopt_bot.compiler.program import Graph, Kernel, Program, Step
from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract.candidate import KernelCandidate, OptionsCandidate
from kernelopt_bot.gates.answers import Caller, Malformed, judged, need
from kernelopt_bot.gates.verdict import Status, Verdict

FAMILIES = ("captured", "normal", "constant", "zero", "cancelling", "large", "extreme")
"""In the order of work; those of `sandbox/worker/families.py`."""

REQUIRED = frozenset({"captured", "normal", "cancelling"})
"""Without these three nothing is said: real values, values whose errors are seen, values that show a weak accumulator.
Others may be cut by the budget of the interpreter lane; what was cut is in the reason."""


def check_kernel(
    candidate: KernelCandidate, baseline: Kernel, step: Step, arguments: Mapping[str, Any], worker: Caller, **rest: Any,
) -> Verdict:
    """`check_spot` for a single step; `arguments`: the step's recorded call (`CallJson`)."""
    return check_spot(candidate, {"source": baseline.source, "integers": integers(step)},
                      step_arguments(step, arguments), worker, **rest)


def check_run(candidate: KernelCandidate, run: KernelRun, arguments: Sequence[Any], worker: Caller,
              **rest: Any) -> Verdict:
    """`check_spot` for a run of several kernels; `arguments`: one for each of the run's buffers (`run_arguments`), lent
    to the worker."""
    return check_spot(candidate, run.baseline(), arguments, worker, **rest)


def check_spot(
    candidate: KernelCandidate, baseline: Mapping[str, Any], arguments: Sequence[Any], worker: Caller, *, lane: str,
    secret: str, precision: Mapping[str, float], budget_s: float, families: Sequence[str] = FAMILIES,
    timeout_s: float | None = None, program_bytes: int | None = None,
) -> Verdict:
    """`baseline` and `arguments` as the worker's `check_step` takes them; `lane`: `cuda` or `interpret`; `budget_s`
    bounds the interpreter lane, `timeout_s` the whole call (a minute and four budgets, unless it is given),
    `program_bytes` with twice the buffers its memory (`least_peak`; what is free where it is None). The worker is a
    kernel worker."""
    params = {**step_params(candidate, baseline, arguments, lane=lane, secret=secret, families=families,
                            precision=precision),
              "budget_s": budget_s, "program_bytes": program_bytes}

    def judge() -> Verdict:
        return _step(worker.call("check_step", params, timeout=timeout_s or 60 + 4 * budget_s), families)

    return judged("correctness", judge)


def step_params(candidate: KernelCandidate, baseline: Mapping[str, Any], arguments: Sequence[Any], *, lane: str,
                secret: str, families: Sequence[str], precision: Mapping[str, float]) -> dict[str, Any]:
    """What every call of `check_step` needs."""
    return {"baseline": dict(baseline), "candidate": {"source": candidate.source, "plan": candidate.plan.to_json()},
            "arguments": list(arguments), "lane": lane, "secret": secret, "families": list(families),
            "precision": dict(precision)}


def run_arguments(run: KernelRun, calls: Sequence[Mapping[str, Any]]) -> list[Any]:
    """The run's buffers as `check_step` and `time_step` take them, each as it was recorded (`CallJson`, one for each
    step of the run) when the first of the run took it. No two share memory."""
    return [{"meta": asdict(b.tensor), "stats": None} if b.argument < 0 else
            _argument(calls[b.call]["arguments"][b.argument], "") for b in run.buffers]


def check_options(
    candidate: OptionsCandidate, worker: Caller, *, secret: str, precision: Mapping[str, float],
    families: Sequence[str] = FAMILIES, timeout_s: float = 600.0,
) -> Verdict:
    """Graph by graph: the default compilation against the one under the options. The worker is a model worker."""

    def judge() -> Verdict:
        answer = worker.call("check_options", {
            "lever": candidate.lever, "options": dict(candidate.options), "secret": secret,
            "families": list(families), "precision": dict(precision)}, timeout=timeout_s)
        graphs = need(answer, "graphs", list)
        evidence = {"graphs": graphs, "peak_bytes": answer.get("peak_bytes")}
        if not graphs:
            return Verdict("correctness", Status.NOT_MEASURED, "no graph was compared", evidence)
        reports = []
        for graph in graphs:
            status, reason = _families(need(graph, "families", list), families)
            if status is not Status.PASS:
                return Verdict("correctness", status, f"graph {graph.get('index')}: {reason}", evidence)
            reports.append(reason)
        return Verdict("correctness", Status.PASS, reports[0], evidence)

    return judged("correctness", judge)


def least_peak(program: Program) -> int:
    """Bytes of inputs and outputs of the program's largest graph: its peak is not smaller, but for aliases."""
    def size(graph: Graph) -> int:
        tensors = [i.tensor for i in graph.inputs] + list(graph.outputs)
        return sum(t.storage_bytes for t in tensors if t is not None)

    return max(map(size, program.graphs), default=0)


def integers(step: Step) -> dict[str, int]:
    """Values of a step's integer arguments by parameter name."""
    return {a.name: a.value for a in step.arguments if isinstance(a.value, int) and not isinstance(a.value, bool)}


def step_arguments(step: Step, call: Mapping[str, Any]) -> list[Any]:
    """The arguments of a recorded call as `check_step` and `time_step` take them. Those of one buffer share memory:
    a candidate may be right only as long as its output is not its input."""
    buffers = [a.buffer for a in step.arguments]
    recorded = call["arguments"]
    if len(buffers) != len(recorded):
        return [_argument(r, "") for r in recorded]
    return [_argument(r, b if buffers.count(b) > 1 else "") for r, b in zip(recorded, buffers, strict=True)]


def _argument(recorded: Mapping[str, Any], storage: str) -> Any:
    """Saved tensor, tensor to synthesise, or plain value."""
    if recorded.get("tensor") is None:
        return recorded.get("value")
    made = dict(recorded.get("saved") or {"meta": recorded["tensor"], "stats": recorded.get("stats")})
    return {**made, "storage": storage} if storage else made


def _step(answer: Mapping[str, Any], families: Sequence[str]) -> Verdict:
    status, reason = _families(need(answer, "families", list), families)
    evidence = {key: answer.get(key) for key in (
        "families", "inputs_untouched", "guards_intact", "covered", "deterministic", "float64", "peak_bytes",
        "limit_bytes", "golden", "not_run", "orders", "order_dependent")}
    for key, words in (
        ("guards_intact", "it wrote outside a buffer"),
        ("inputs_untouched", "it changed a buffer that it may only read"),
        ("covered", "it left a part of an output unwritten"),
    ):
        if not need(answer, key, bool):
            return Verdict("correctness", Status.FAIL, words, evidence)
    if answer.get("deterministic") is False:
        words = "two runs on the same inputs differ, the baseline's do not"
        return Verdict("correctness", Status.FAIL, words, evidence)
    if answer.get("order_dependent"):
        words = f"its result depends on the order in which programs run ({answer['order_dependent']})"
        return Verdict("correctness", Status.FAIL, words, evidence)
    return Verdict("correctness", status, reason, evidence)


def _families(results: Sequence[Any], asked: Sequence[str]) -> tuple[Status, str]:
    ran = []
    for result in results:
        name = need(result, "family", str)
        outputs = need(result, "outputs", list)
        passed = need(result, "passed", bool)
        if passed and not (outputs and all(need(o, "passed", bool) for o in outputs)):
            raise Malformed(f"the worker passes {name} and not all of its outputs")
        if not passed:
            return Status.FAIL, f"{name}: {_worst(outputs) or result.get('reason') or 'failed'}"
        ran.append(name)
    missing = [f for f in asked if f not in ran]
    if REQUIRED.intersection(missing):
        return Status.NOT_MEASURED, f"out of time: {', '.join(missing)} did not run"
    return Status.PASS, f"not run, out of time: {', '.join(missing)}" if missing else ""


def _worst(outputs: Sequence[Any]) -> str:
    """The first failed output in words with numbers."""
    bad = next((o for o in outputs if isinstance(o, Mapping) and not o.get("passed")), None)
    return f"{bad.get('name')}: {bad.get('reason')}" if bad is not None else ""
