"""The search for one standalone Triton kernel: the way of a target from its recorded launches to an edit in place.

The baseline is the user's kernel with the configuration that the host, or its autotuner, gives it. Candidates are other
configurations; each goes through gates 1 and 2 on every distinct launch, and times are weighed by how often each was
recorded. Gate 3 launches the edited file and compares what it launches with what was verified. Without a GPU nothing is
timed and nothing adopted.
"""

from __future__ import annotations

import ast
import contextlib
import secrets
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.compiler.plain_triton import PlainKernel, Unfit, plain_kernel
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.answers import Malformed, need
from kernelopt_bot.gates.static import Group
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.client import Worker, WorkerError, WorkerFailed
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import triton_race
from kernelopt_bot.search.loading import SEED
from kernelopt_bot.search.proposing import Compiler
from kernelopt_bot.search.result import LeverGain, TargetResult, Trial
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.triton_calls import (
    ASSUMED_MULTIPROCESSORS,
    MOST_LAUNCHES,
    MOST_TIMES,
    Case,
    TritonConfig,
    case_of,
    device_kernel,
    integer,
    settings_of,
)
from kernelopt_bot.search.triton_space import space
from kernelopt_bot.targets.triton_edit import Handle, NotEditable, Settings, edited, handle, must_be_utf8
from kernelopt_bot.targets.triton_edit_check import reason_of
from kernelopt_bot.targets.triton_kernels import TritonTarget, imported, kernels

ARCH = 90
"""Compiled for where no GPU is there."""
TIMEOUT_S = 600.0
SAVE_LIMIT_BYTES = 64 << 20
INTERPRET_S = 20.0
"""Interpreter time for gate 2 of one candidate on one launch."""
COMPILED = 3
"""Configurations that are looked at without a GPU."""
FEW = 2
"""Candidates that pass gate 2 without a GPU before no further one is tried: nothing can be adopted there."""
FAULTS = (Unfit, NotEditable, OSError, SyntaxError, ValueError, RecursionError, WorkerError, Malformed)
"""What can be wrong with a kernel, with what launches it, or with the worker that does."""
NO_GPU = "no GPU: gates 1 and 2 were run, times were not measured"


@dataclass(frozen=True)
class Idea:
    """A configuration, as a candidate for each case in order."""

    config: TritonConfig
    candidates: tuple[KernelCandidate, ...]


@dataclass
class Work:
    """What the steps of one search share."""

    session: Session
    target: TritonTarget
    text: bytes
    plain: PlainKernel
    trials: Trials
    versions: dict[str, Any] = field(default_factory=dict)
    cases: tuple[Case, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def lane(self) -> str:
        return "cuda" if self.session.has_gpu else "interpret"

    @property
    def arch(self) -> int:
        major, minor = self.versions["gpu"]["capability"] if self.versions.get("gpu") else divmod(ARCH, 10)
        return 10 * int(major) + int(minor)

    @property
    def multiprocessors(self) -> int:
        gpu = self.versions.get("gpu") or {}
        return int(gpu.get("multiprocessors", ASSUMED_MULTIPROCESSORS))

    @property
    def main(self) -> int:
        """The case that was recorded most often."""
        return max(range(len(self.cases)), key=lambda i: self.cases[i].count)


def optimise(session: Session, target: TritonTarget) -> TargetResult:
    """Never raises for what is wrong with the kernel or what launches it: that is the result's `error`. Raises
    UserError where the run cannot go on."""
    trials = Trials(session.archive, session.budget)
    try:
        work, tree = opened(session, target, trials)
        with session.model_worker("model", interpret=not session.has_gpu) as worker:
            work.versions = worker.call("hello", {}, timeout=TIMEOUT_S)
            session.progress.update(f"recording the launches of {target.entry}")
            answer = record(work, worker)
            reason, result = _searched(work, worker, answer, kernels(tree)[target.entry].node, tree)
    except FAULTS as e:
        words, kind, bad = refusal(target, e)
        return _failed(session, target, trials, words, kind, bad=bad)
    session.progress.note(f"{target.entry}: {reason}" if reason else f"{target.entry}: adopted")
    return result


def opened(session: Session, target: TritonTarget, trials: Trials) -> tuple[Work, ast.Module]:
    """The kernel as its file has it now, and the file's tree; a worker says the versions. Raises one of FAULTS."""
    text = (session.root / target.path).read_bytes()
    must_be_utf8(text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tree = ast.parse(text)
    if target.entry not in kernels(tree):
        raise Unfit("it is no longer in its file")
    plain = plain_kernel(tree, target.entry, imported(tree))
    return Work(session, target, text, plain, trials), tree


def refusal(target: TritonTarget, fault: Exception) -> tuple[str, str, bool]:
    """(words, kind, whether it is the user's to mend) of one of FAULTS."""
    if isinstance(fault, WorkerFailed):
        bad = fault.kind.startswith("target_") or fault.kind == "unsupported"
        return f"{fault.message}\n{fault.detail}".strip(), fault.kind, bad
    if isinstance(fault, WorkerError | Malformed):
        return str(fault), type(fault).__name__, False
    why = "its file is nested deeper than Python walks" if isinstance(fault, RecursionError) else fault
    return f"{target.entry} cannot be taken: {why}", "unsupported", True


def record(work: Work, worker: Worker, text: str | None = None) -> dict[str, Any]:
    """`record_launches` of the target, with another `text` of its file where one is given. Raises WorkerError."""
    target = work.target
    return worker.call("record_launches", {
        "root": str(work.session.root), "path": target.path, "kernel": target.entry, "inputs": target.inputs,
        "record": target.record, "roots": list(target.roots), "device": work.session.inside, "seed": SEED,
        "save_limit_bytes": SAVE_LIMIT_BYTES, **({} if text is None else {"text": text})}, timeout=TIMEOUT_S)


def cases_of(answer: Mapping[str, Any], plain: PlainKernel, arch: int, multiprocessors: int) -> tuple[Case, ...]:
    """Raises Unfit, Malformed."""
    device = device_kernel(arch, multiprocessors)
    with understood():
        calls = need(answer, "calls", list)
        if not 1 <= len(calls) <= MOST_LAUNCHES:
            raise Malformed(f"a worker answers with {len(calls)} launches")
        return tuple(case_of(call, plain, device) for call in calls)


@contextlib.contextmanager
def understood() -> Iterator[None]:
    """A worker's answer is read inside: what is not of its form is Malformed."""
    try:
        yield
    except (TypeError, KeyError, ValueError, AttributeError, IndexError, ArithmeticError, RecursionError) as e:
        words = f"{type(e).__name__}: {str(e)[:200]}"
        raise Malformed(f"what a worker says of the launches is not understood: {words}") from e


def _searched(work: Work, worker: Worker, answer: Mapping[str, Any], node: ast.FunctionDef,
              tree: ast.Module) -> tuple[str, TargetResult]:
    work.cases = cases_of(answer, work.plain, work.arch, work.multiprocessors)
    if empty := integer(answer.get("empty", 0), "launches over no elements", 0, MOST_TIMES):
        work.notes = (f"{empty} {'launch' if empty == 1 else 'launches'} over no elements left out",)
    try:
        place = usable(handle(tree, work.target.entry), work.cases)
        mine = own(answer, place, work.cases, work.plain)
    except NotEditable as e:
        return _nothing(work, f"nothing can be changed in place: {e}")
    if place.kind == "autotune":
        # A list that is made elsewhere is written out in the decorator, so all of its names may change.
        place = replace(place, constexprs=tuple(sorted({n for c in mine for n, _ in c.constexprs})))
    configs = space(mine, place, node)
    ideas = ideas_of(work, worker, configs if work.session.has_gpu else configs[:COMPILED])
    if not ideas:
        return _nothing(work, "no other configuration can be launched")
    with work.session.compiling_worker() as compiling:
        passed = compiled(work, ideas, Compiler(compiling, work.arch))
    if not work.session.has_gpu:
        _interpreted(work, worker, passed)
        return _nothing(work, NO_GPU)
    return _raced(work, worker, passed, place)


def usable(place: Handle, cases: Sequence[Case]) -> Handle:
    """What may be changed for these launches: without a grid that follows them, constexprs may not. Raises
    NotEditable."""
    if place.kind == "launch":
        for option in ("num_warps", "num_stages"):
            if option not in place.options and len({getattr(c.launch, option) for c in cases}) > 1:
                raise NotEditable(f"the host computes {option} for each launch")
        if not all(c.callable_grid for c in cases):
            place = replace(place, constexprs=())
    if not place.constexprs and not place.options:
        raise NotEditable("the host computes all that could be changed")
    return place


def own(answer: Mapping[str, Any], place: Handle, cases: Sequence[Case], plain: PlainKernel) -> list[TritonConfig]:
    """The user's own configurations: the autotuner's list, or what the host gives. Raises NotEditable, Unfit,
    Malformed."""
    if place.kind == "autotune":
        with understood():
            listed = need(answer, "configs", list)
            if any(need(c, "special", bool) for c in listed):
                raise NotEditable("the autotuner's configurations have hooks or options of their own")
            return [settings_of(c, plain) for c in listed]
    return list(dict.fromkeys(c.config(place.constexprs) for c in cases))


def ideas_of(work: Work, worker: Worker, configs: Sequence[TritonConfig]) -> list[Idea]:
    """Those that the host's own code gives a grid for every case. Raises WorkerError."""
    answer = worker.call("launch_grids", {"configs": [c.to_json() for c in configs]}, timeout=TIMEOUT_S)
    made = []
    with understood():
        for n, config in enumerate(configs):
            launched = [grids[n] for grids in need(answer, "grids", list)]
            if any(one is None or min(one["grid"], default=0) < 1 for one in launched):
                continue
            made.append(Idea(config, tuple(
                case.candidate(case.planned(config, one, work.plain), case.source, "launch_configuration",
                               f"unchanged code with {config}")
                for case, one in zip(work.cases, launched, strict=True))))
    return made


def compiled(work: Work, ideas: Sequence[Idea], compiler: Compiler) -> list[tuple[Idea, Trial]]:
    """Gate 1 of every idea on every case; those that pass all, each with its trial."""
    work.session.progress.update(f"compiling {len(ideas)} configurations of {work.target.entry}")
    groups = [Group([i.candidates[n] for i in ideas], case.baseline, case.integers)
              for n, case in enumerate(work.cases)]
    verdicts = compiler.judge(groups, {})
    judged = [(idea, work.trials.judged(idea.candidates[work.main], worst([of[i] for of in verdicts])))
              for i, idea in enumerate(ideas)]
    return [(idea, trial) for idea, trial in judged if trial.stopped_by is None]


def worst(verdicts: Sequence[Verdict]) -> Verdict:
    """One verdict over all cases: the first that does not let on, else the first, with the number of cases."""
    bad = next((n for n, v in enumerate(verdicts) if not v.lets_on), None)
    chosen = verdicts[bad or 0]
    reason = f"launch {bad}: {chosen.reason}" if bad is not None and len(verdicts) > 1 else chosen.reason
    return replace(chosen, reason=reason, evidence={**chosen.evidence, "launches": len(verdicts)},
                   seconds=sum(v.seconds for v in verdicts))


def checked(work: Work, idea: Idea, worker: Worker, scratch: Any) -> Verdict:
    """Gate 2 on every case, until one fails."""
    verdicts = []
    for case, candidate in zip(work.cases, idea.candidates, strict=True):
        if not worker.alive:
            worker.restart()
        verdicts.append(correctness.check_spot(
            candidate, case.baseline_json(), lend(list(case.arguments), scratch, worker.scratch), worker,
            lane=work.lane, secret=work.session.secret, precision=work.session.precision(), budget_s=INTERPRET_S))
        if not verdicts[-1].lets_on:
            break
    return worst(verdicts)


def _interpreted(work: Work, worker: Worker, passed: Sequence[tuple[Idea, Trial]]) -> None:
    right = 0
    with work.session.kernel_worker("interpret", interpret=True) as interpreter:
        for idea, trial in passed:
            if left := f"no GPU: {FEW} that pass are enough" if right == FEW else work.session.budget.exhausted():
                work.trials.update(trial, Verdict("correctness", Status.NOT_MEASURED, left))
                continue
            trial = work.trials.update(trial, checked(work, idea, interpreter, worker.scratch))
            if trial.stopped_by is None:
                right += 1
                work.trials.update(trial, Verdict("performance", Status.NOT_MEASURED, "no GPU"))


def _raced(work: Work, worker: Worker, passed: list[tuple[Idea, Trial]], place: Handle) -> tuple[str, TargetResult]:
    """On a GPU: the races, gate 2 of the winners, the edit and its launches, and the confirmation."""
    session, before = work.session, work.cases
    with session.kernel_worker("kernels") as kernels_worker, session.budget.device():
        arguments = [lend(list(c.arguments), worker.scratch, kernels_worker.scratch) for c in before]
        times = triton_race.raced(before, [i.candidates for i, _ in passed], arguments, kernels_worker, session)
        trials = [work.trials.update(t, **times.facts(n)) for n, (_, t) in enumerate(passed)]
        right: list[int] = []
        wrong: set[int] = set()
        while True:
            picked = times.picked(single=place.kind == "launch", without=wrong)
            unknown = [n for n in dict.fromkeys(picked) if n is not None and n not in right]
            if not unknown:
                break
            trials[unknown[0]] = work.trials.update(
                trials[unknown[0]], checked(work, passed[unknown[0]][0], kernels_worker, worker.scratch))
            (right.append if trials[unknown[0]].stopped_by is None else wrong.add)(unknown[0])
    kept = [n for n in dict.fromkeys(picked) if n is not None]
    if not kept:
        return _nothing(work, "no other configuration is faster")
    confirmed = replace(session, secret=secrets.token_hex(32))
    with session.kernel_worker("confirm") as fresh, session.budget.device():
        arguments = [lend(list(c.arguments), worker.scratch, fresh.scratch) for c in before]
        chosen = [c.candidate(c.plan, c.source, "", "") if n is None else passed[n][0].candidates[at]
                  for at, (c, n) in enumerate(zip(before, picked, strict=True))]
        timed = triton_race.confirmed(before, chosen, arguments, fresh, confirmed)
    if not timed.verdict.lets_on or timed.comparison is None:
        return _nothing(work, f"not confirmed: {timed.verdict.reason}", timed.verdict)
    configs = [passed[n][0].config for n in kept]
    stays = [before[at].config(place.constexprs) for at, n in enumerate(picked) if n is None]
    configs += [c for c in dict.fromkeys(stays) if c not in configs]
    gain = timed.comparison
    why = reason_of(gain.speedup, gain.low, gain.high, str(work.versions["gpu"]["name"]), len(before))
    try:
        new = edited(work.text, work.target.entry, [Settings(dict(c.constexprs), c.num_warps, c.num_stages)
                                                    for c in configs], why)
    except NotEditable as e:
        return _nothing(work, f"the file cannot be edited: {e}")
    # In a new process: here the user's other modules have the old file's functions.
    with session.model_worker("edited", interpret=not session.has_gpu) as again:
        whole = launches_as_verified(work, again, new, configs, place, [passed[n][0] for n in kept])
    if not whole.lets_on:
        return _nothing(work, f"the edited file does not launch what was verified: {whole.reason}", whole)
    for n in kept:
        # of several one may be slower over the mix, and be there for the launches on which it is faster
        work.trials.record(replace(trials[n], adopted=True, note=""))
    result = _result(work, f"{len(kept)} configurations", len(kept))
    return "", replace(result, headline=gain, against=(gain,), stitched=(whole, timed.verdict), noise=timed.noise,
                       levers=(LeverGain("kernel", len(kept), gain),), edits={work.target.path: new},
                       edited={work.target.path: work.text},
                       secret=f"{session.secret},{confirmed.secret}", trials=work.trials.all())


def launches_as_verified(work: Work, worker: Worker, new: bytes, configs: Sequence[TritonConfig],
                         place: Handle, kept: Sequence[Idea] = ()) -> Verdict:
    """Gate 3 of an edit: the edited file makes the same launches, each under one of `configs`, and those of `kept`
    with the grid and constexprs that passed the other gates."""
    try:
        answer = record(work, worker, new.decode())
        cases = cases_of(answer, work.plain, work.arch, work.cases[0].integers["num_sms"])
    except (WorkerFailed, Unfit, Malformed, UnicodeDecodeError) as e:
        return Verdict("model", Status.FAIL, f"the edited file: {e}")
    old = sorted((c.covered, c.count) for c in work.cases)
    if sorted((c.covered, c.count) for c in cases) != old:
        return Verdict("model", Status.FAIL, "the edited file makes other launches")
    strange = next((c for c in cases if c.config(place.constexprs) not in configs), None)
    if strange is not None:
        return Verdict("model", Status.FAIL, f"a launch has {strange.config(place.constexprs)}")
    for case in cases:
        verified = [candidate.plan.launches for idea in kept if case.config(place.constexprs) == idea.config
                    for candidate, own_case in zip(idea.candidates, work.cases, strict=True)
                    if own_case.covered == case.covered]
        if verified and case.plan.launches not in verified:
            return Verdict("model", Status.FAIL, "a launch has another grid or other constexprs than those that were "
                           "verified")
    return Verdict("model", Status.PASS, evidence={"launches": len(cases), "configurations": [str(c) for c in configs]})


def _nothing(work: Work, reason: str, *verdicts: Verdict) -> tuple[str, TargetResult]:
    return reason, replace(_result(work, reason, 0), stitched=verdicts)


def _result(work: Work, reason: str, adopted: int) -> TargetResult:
    session, versions = work.session, work.versions
    environment = {"kernelopt": __version__, "jail": session.jail.name, "lane": session.lane,
                   "baseline_arm": triton_race.BASELINE, **{k: v for k, v in versions.items() if k != "gpu"},
                   "gpu": versions.get("gpu")}
    return replace(
        _empty(session, work.target, work.trials), environment=environment, agents=work.notes,
        levers=(LeverGain("kernel", adopted, None, reason),),
        covered=tuple(f"{c.covered} ({c.launched}; {'once' if c.count == 1 else f'{c.count} times'})"
                      for c in work.cases),
        inputs_origin=work.target.record or f"{work.target.inputs} for {work.target.path}")


def _failed(session: Session, target: TritonTarget, trials: Trials, error: str, kind: str, *,
            bad: bool) -> TargetResult:
    return replace(_empty(session, target, trials), error=error, error_kind=kind, bad_input=bad)


def _empty(session: Session, target: TritonTarget, trials: Trials) -> TargetResult:
    return TargetResult(
        target=target, program=None, profile=None, trials=trials.all(), levers=(), stitched=(), headline=None,
        against=(), not_applicable={}, noise=None, first_call=None, peak_memory={}, covered=(), secret=session.secret,
        spent=session.budget.spent())
