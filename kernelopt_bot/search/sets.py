"""Gains of sets of levers: what was adopted, without the pieces of some levers.

The levers build on each other, so their single gains say nothing of a stack that leaves an early one out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

from kernelopt_bot.contract.candidate import Lever, Scalar
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import performance
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.sandbox.client import Worker, WorkerError
from kernelopt_bot.search.result import Comparison
from kernelopt_bot.search.session import Session, bootstrap_seed
from kernelopt_bot.search.stack import DEFAULT, Stack, Stage

SETS: Mapping[str, frozenset[Lever]] = {
    "kernel+dispatch": frozenset({"kernel", "dispatch"}),
    "kernel+dispatch+launch": frozenset({"kernel", "dispatch", "launch"}),
}
"""The sets that a benchmark tells apart; the whole stack is measured anyway."""

Write = Callable[[Worker, Stack], Stack]
"""Writes a stack as an artifact. Raises InputError where its kernels do not fit its options' program."""


def only(stages: Sequence[Stage], kept: Collection[Lever]) -> Stack:
    """The last stage's stack without the pieces of the levers that are not `kept`."""
    options: dict[str, Scalar] = {}
    before: Mapping[str, Scalar] = {}
    for stage in stages:
        if stage.lever in kept:
            options |= {k: v for k, v in stage.stack.options.items() if k not in before or before[k] != v}
        before = stage.stack.options
    kernels = tuple(k for k in stages[-1].stack.kernels if k.candidate.lever in kept)
    return Stack(options, kernels)


def measure(session: Session, worker: Worker, stages: Sequence[Stage], settings: Settings, secret: str,
            write: Write) -> dict[str, Comparison]:
    """Each set's gain over default torch.compile, where it is neither empty nor the whole stack.

    A set that cannot be built or timed is left out, with a note.
    """
    whole = stages[-1].stack
    found: dict[str, Comparison] = {}
    for name, levers in SETS.items():
        stack = only(stages, levers)
        if stack.empty or (dict(stack.options), stack.kernels) == (dict(whole.options), whole.kernels):
            continue
        session.progress.update(f"confirming: {name} alone")
        cache = settings.cache if session.has_gpu else "warm"
        try:
            measured = performance.measure(
                worker, candidate=write(worker, stack).arm("candidate"), baselines=[dict(DEFAULT)],
                settings=replace(settings, budget_s=settings.budget_s / 2),
                lever="kernel" if stack.kernels else "dispatch", has_gpu=session.has_gpu, secret=secret,
                seed=bootstrap_seed(secret), others=False)
        except (InputError, WorkerError) as e:
            session.progress.note(f"{name} alone: not measured: {e}")
            continue
        comparison = next((c for c in measured.comparisons if (c.metric, c.cache) == (settings.metric, cache)), None)
        if comparison is None:
            session.progress.note(f"{name} alone: not measured: {measured.verdict.reason}")
        else:
            found[name] = comparison
    return found
