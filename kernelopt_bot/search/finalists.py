"""compute-sanitizer over the kernels that a search would adopt: gate 2's last word on them."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import sanitizer
from kernelopt_bot.device.sanitizer import ABSENT, Finding, Sanitizer
from kernelopt_bot.errors import Unavailable
from kernelopt_bot.gates import correctness
from kernelopt_bot.gates.verdict import Status, Verdict
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.trials import Trials

if TYPE_CHECKING:
    from kernelopt_bot.search.kernel_lever import Kept

OFF = Finding(Status.NOT_APPLICABLE, "switched off by gates.sanitizer")


def sanitized(session: Session, trials: Trials, kept: Sequence[Kept], scratch: Path) -> list[Kept]:
    """Those that no tool accuses, their verdict of gate 2 with the evidence `sanitizer`: tool -> finding.

    `scratch` is where the captured tensors lie. What a tool cannot say (absent, too slow, too large) is evidence too.
    """
    if not kept:
        return []
    findings: list[Mapping[str, Finding]] = [{} for _ in kept]
    path = sanitizer.find() if session.config.gates.sanitizer == "auto" else None
    if path is None:
        only = ABSENT if session.config.gates.sanitizer == "auto" else OFF
        findings = [{tool: only for tool in sanitizer.TOOLS} for _ in kept]
    elif not session.jail.connects:
        findings = [{tool: sanitizer.UNCONNECTED for tool in sanitizer.TOOLS} for _ in kept]
    else:
        session.progress.update(f"kernel: {sanitizer.NAME} over {len(kept)} kernels")
        at = Sanitizer(path, session.python, session.jail, session.scratch / "sanitizer", session.device)
        steps = [_step(session, k, scratch, at.scratch) for k in kept]
        with session.turns.turn("beside") if session.turns else contextlib.nullcontext(0.0) as waited:
            session.budget.wait(waited)
            findings = examined(at, steps)
    left = []
    for one, found in zip(kept, findings, strict=True):
        trial = trials.record(noted(one.trial, found))
        if trial.stopped_by is None:
            left.append(dataclasses.replace(one, trial=trial))
        else:
            session.progress.note(f"kernel: {one.spot.name}: {trial.stopped_by.reason}")
    return left


def examined(tool: Sanitizer, steps: Sequence[Mapping[str, Any] | str]) -> list[Mapping[str, Finding]]:
    """Tool -> finding for each step; a text instead of a step is the reason why it is not examined."""
    whole: list[dict[str, Finding]] = [{} for _ in steps]
    there = [(n, s) for n, s in enumerate(steps) if not isinstance(s, str)]
    for name in sanitizer.TOOLS:
        for n, step in enumerate(steps):
            if isinstance(step, str):
                whole[n][name] = Finding(Status.NOT_MEASURED, step)
        for (n, _), finding in zip(there, tool.examine(name, [s for _, s in there]) if there else (), strict=True):
            whole[n][name] = finding
    return list(whole)


def noted(trial: Trial, findings: Mapping[str, Finding]) -> Trial:
    """The trial with the findings in its verdict of gate 2, which fails where one of them does."""
    bad = next((f for f in findings.values() if f.status is Status.FAIL), None)
    evidence = {name: finding.to_json() for name, finding in findings.items()}

    def changed(verdict: Verdict) -> Verdict:
        if verdict.gate != "correctness":
            return verdict
        seconds = verdict.seconds + sum(f.seconds for f in findings.values())
        verdict = dataclasses.replace(verdict, evidence={**verdict.evidence, "sanitizer": evidence}, seconds=seconds)
        return verdict if bad is None else dataclasses.replace(verdict, status=Status.FAIL, reason=bad.reason)

    return dataclasses.replace(trial, verdicts=tuple(map(changed, trial.verdicts)))


def _step(session: Session, one: Kept, source: Path, destination: Path) -> dict[str, Any] | str:
    """Parameters of `check_step`, or why there are none."""
    spot, candidate = one.spot, one.trial.candidate
    assert isinstance(candidate, KernelCandidate)
    if spot.buffer_bytes > sanitizer.LIMIT_BYTES:
        return f"buffers of {spot.buffer_bytes} bytes: more than {sanitizer.LIMIT_BYTES} take too long"
    destination.mkdir(parents=True, exist_ok=True)
    try:
        arguments = [lend(dict(call), source, destination) for call in spot.recorded]
    except (Unavailable, ValueError) as e:
        return f"its arguments cannot be handed over: {e}"
    return correctness.step_params(candidate, spot.baseline, spot.arguments(arguments), lane="cuda",
                                   secret=session.secret, families=["normal"], precision=session.precision())
