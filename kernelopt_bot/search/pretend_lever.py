"""The levers `kernel` and `region` without a GPU: gates 1 to 3 for real (a cubin, Triton's interpreter), gate 4 not
measured.

The target is captured for a pretended GPU. Nothing can be adopted; what comes out is which candidates are correct.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.compiler.run import regions_of, runs_of
from kernelopt_bot.contract.candidate import KernelCandidate, Lever
from kernelopt_bot.device import roofs
from kernelopt_bot.gates import correctness, model, performance
from kernelopt_bot.gates.answers import judged
from kernelopt_bot.gates.static import Compiled, Group
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import capturing, workshop
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.proposing import Compiler, ideas
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.runs import region_places, run_places
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.sites import places
from kernelopt_bot.search.spots import Spot, of_place, of_run
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.workshop import Workshop

ARCH = 90
DEVICE = "pretended sm_90"
PLACES = 3
"""Steps tried: the interpreter takes seconds where a GPU takes microseconds."""
FOR_EACH_PLACE = 3
ENOUGH_S = 25.0
"""No further candidate is begun after this time: nothing can be adopted here, so the run must not wait for it."""
INTERPRET_S = 20.0
"""Interpreter time for gate 2 of one candidate."""
TIMEOUT_S = 300.0
SAVE_LIMIT_BYTES = 64 << 20


def run(session: Session, worker: Worker, target_name: str, versions: Mapping[str, Any], trials: Trials,
        class_name: str, lever: Lever = "kernel") -> str:
    """Records the trials. Returns why nothing was adopted, which is always so without a GPU.

    `worker` is a model worker with the target loaded. Raises WorkerError where the capture itself fails.
    """
    answer = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": SAVE_LIMIT_BYTES},
                         timeout=TIMEOUT_S)
    with (session.kernel_worker("interpret", interpret=True) as interpreter,
          session.compiling_worker() as compiling):
        compiler = Compiler(compiling, ARCH)
        graphs = recorded(answer, worker, interpreter)
        captured = capturing.made(graphs, target_name, "pretend", DEVICE, versions, {})
        found = spots_of(captured, lever)
        if not found:
            return ("the compiler generates no Triton kernel for this model" if lever == "kernel" else
                    "no vendor call with the kernel after it that a technique takes as one")
        begin = time.monotonic()
        for n, spot in enumerate(found[:PLACES]):
            if time.monotonic() - begin > ENOUGH_S:
                break
            if spent := session.budget.exhausted():
                return spent
            session.progress.update(f"{lever}, without a GPU: {spot.name}", n, min(PLACES, len(found)))
            for trial in _candidates(session, spot, compiler, interpreter, trials, begin + ENOUGH_S):
                _stitched(session, trial, spot, captured, worker, interpreter, trials, versions, class_name)
        if session.party is not None and lever == "kernel":
            def judge(spot: Spot, candidates: Sequence[KernelCandidate]) -> list[Trial]:
                """All three gates that there are without a GPU."""
                made = []
                for candidate in candidates:
                    trial = _judged(session, candidate, spot, compiler, interpreter, trials, {})
                    made.append(trial if trial.stopped_by is not None else _stitched(
                        session, trial, spot, captured, worker, interpreter, trials, versions, class_name))
                return made

            fused = run_places(captured, None, roofs.pretended())
            shown = [*map(of_run, fused[:PLACES]), *found[:PLACES]]
            workshop.search(Workshop.of(session, session.party, trials, compiler, shown, roofs.pretended(), judge,
                                        measured=False))
    return "no GPU: gates 1 to 3 were run, gate 4 was not measured"


def spots_of(captured: Captured, lever: Lever) -> list[Spot]:
    """Where a lever works, with the first idea of each technique: true rewrites before other launch configurations."""
    ceilings = roofs.pretended()
    if lever == "region":
        return [of_run(p, most=FOR_EACH_PLACE) for p in region_places(captured, None, ceilings)]
    return [of_place(p, each=1, most=FOR_EACH_PLACE) for p in places(captured, None, ceilings)]


def recorded(answer: Mapping[str, Any], worker: Worker, interpreter: Worker) -> dict[str, Any]:
    """The captured graphs with the calls that the interpreter recorded."""
    graphs = []
    for graph in answer["graphs"]:
        inputs = lend(graph["saved_inputs"], worker.scratch, interpreter.scratch)
        foreign = lend(graph.get("foreign", ()), worker.scratch, interpreter.scratch)
        done = interpreter.call("interpret_graph", {"source": graph["source"], "inputs": inputs, "foreign": foreign,
                                                    "save_limit_bytes": SAVE_LIMIT_BYTES}, timeout=TIMEOUT_S)
        graphs.append({**graph, "calls": done["calls"]})
    return {**answer, "graphs": graphs}


def _candidates(session: Session, spot: Spot, compiler: Compiler, interpreter: Worker,
                trials: Trials, until: float) -> Sequence[Trial]:
    """Gates 1 and 2 of some candidates of one spot; the one rewriting most first, one that passes is enough. After
    `until` (monotonic seconds) no further one is begun but the first."""
    known = compiler.baselines([k.source for k in spot.kernels])
    candidates = ideas(spot, known)
    if isinstance(candidates, str):
        session.progress.note(f"{spot.name}: the baseline's kernel was not understood: {candidates}")
        return ()
    for n, candidate in enumerate(candidates):
        if session.budget.exhausted() or (n and time.monotonic() > until):
            break
        trial = _judged(session, candidate, spot, compiler, interpreter, trials, known)
        if trial.stopped_by is None:
            return (trial,)
    return ()


def _judged(session: Session, candidate: KernelCandidate, spot: Spot, compiler: Compiler, interpreter: Worker,
            trials: Trials, known: dict[str, Compiled]) -> Trial:
    """Gates 1 and 2 of one candidate."""
    ((first,),) = compiler.judge([Group([candidate], spot.kernel_or_run, spot.integers)], known)
    trial = trials.judged(candidate, first)
    if trial.stopped_by is None:
        trial = trials.update(trial, correctness.check_spot(
            candidate, spot.baseline, spot.arguments(spot.recorded), interpreter, lane="interpret",
            secret=session.secret, precision=session.precision(), budget_s=INTERPRET_S))
        if not interpreter.alive:
            interpreter.restart()
    return trial


def _stitched(session: Session, trial: Trial, spot: Spot, captured: Captured, worker: Worker, interpreter: Worker,
              trials: Trials, versions: Mapping[str, Any], class_name: str) -> Trial:
    """Gate 3 on the whole interpreted program with the candidate in it, and gate 4's answer."""
    candidate = trial.candidate
    assert isinstance(candidate, KernelCandidate)
    environment = {"torch": versions["torch"], "triton": versions["triton"], "device": DEVICE, "capability": [9, 0]}

    def judge() -> Verdict:
        stack = Stack().with_kernels((AdoptedKernel(candidate),)).written(
            session.artifacts / candidate.id, captured.program, class_name, environment)
        graph = captured.program.graphs[candidate.graph]
        references = worker.call("reference_graph", {"graph": graph.index, "secret": session.secret}, timeout=TIMEOUT_S)
        draws = lend(references["draws"], worker.scratch, interpreter.scratch)
        own = [s.hash for s in graph.steps] if spot.run is None else [r.hash for r in (
            *runs_of(graph, len(candidate.steps)), *regions_of(graph))]
        expected = own.count(candidate.run_hash)
        answer = interpreter.call("check_interpreted", {
            "source": graph.source, "artifact": str(stack.folder), "expected": expected, "draws": draws,
            "precision": session.precision()}, timeout=TIMEOUT_S)
        return model.decide(answer, kernels=True, draws_asked=len(draws))

    verdict = judged("model", judge)
    if not interpreter.alive:
        interpreter.restart()
    verdict = replace(verdict, evidence={**verdict.evidence, "lane": "interpreter", "calls": spot.calls})
    trial = trials.update(trial, verdict)
    if trial.stopped_by is None:
        settings = performance.Settings()
        measured = performance.measure(worker, candidate={"name": "candidate"}, baselines=[], settings=settings,
                                       lever="kernel", has_gpu=False, secret=session.secret, seed=0)
        trial = trials.update(trial, measured.verdict)
    return trial
