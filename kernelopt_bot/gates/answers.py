"""A worker's answer, or its failure, as a verdict."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates.verdict import GateName, Status, Verdict
from kernelopt_bot.sandbox.client import WorkerCrashed, WorkerError, WorkerFailed, WorkerLied, WorkerTimeout

T = TypeVar("T")

CANDIDATE_KINDS = frozenset({"compile_failed", "runtime_failed", "non_deterministic"})
"""Kinds of error answer that are the candidate's doing; any other says that nothing was measured."""


class Caller(Protocol):
    """`sandbox.client.Worker`, as far as gates need it. Raises WorkerError."""

    def call(
        self, method: str, params: Mapping[str, Any], *, timeout: float,
        progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]: ...


class Malformed(KerneloptError):
    """An answer lacks what its method must answer."""


def need(answer: object, key: str, kind: type[T] | tuple[type[T], ...]) -> T:
    """`answer[key]` if it is of that type. Raises Malformed."""
    value = answer.get(key) if isinstance(answer, Mapping) else None
    if not isinstance(value, kind):
        raise Malformed(f"the worker's answer has no proper {key!r}")
    return value


def number(answer: object, key: str, default: float = 0.0) -> float:
    """`answer[key]` as a float, `default` where it is absent or null. Raises Malformed on anything but a number."""
    value = answer.get(key) if isinstance(answer, Mapping) else None
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise Malformed(f"the worker's answer has {value!r} for {key!r}")
    return float(value)


def judged(gate: GateName, judge: Callable[[], Verdict], *, blame: bool = True) -> Verdict:
    """`judge()` with the seconds it took, or the verdict over what the worker did instead of answering.

    With `blame` the worker was compiling or running the candidate, so that a crash or time-out is its failure; a
    process that was killed from outside, which is what the kernel does when memory runs out, says nothing about it.
    """
    begin = time.monotonic()
    try:
        verdict = judge()
    except (WorkerError, Malformed) as e:
        verdict = failure(gate, e, blame=blame)
    return dataclasses.replace(verdict, seconds=time.monotonic() - begin)


def failure(gate: GateName, error: KerneloptError, *, blame: bool = True) -> Verdict:
    match error:
        case WorkerFailed(kind=kind) if blame and kind in CANDIDATE_KINDS:
            status, reason = Status.FAIL, f"{kind.replace('_', ' ')}: {error.message}"
        case WorkerFailed(kind="out_of_memory"):
            status, reason = Status.NOT_MEASURED, f"memory: {error.message}"
        case WorkerFailed():
            status, reason = Status.NOT_MEASURED, f"{error.kind.replace('_', ' ')}: {error.message}"
        case WorkerCrashed(how=how) if "memory" in how or "SIGKILL" in how:
            status, reason = Status.NOT_MEASURED, f"memory: the worker died: {how}"
        case WorkerCrashed(how=how):
            status, reason = Status.FAIL if blame else Status.NOT_MEASURED, f"the worker crashed: {how}"
        case WorkerTimeout():
            status, reason = Status.FAIL if blame else Status.NOT_MEASURED, f"no answer in time: {error}"
        case WorkerLied():
            status, reason = Status.FAIL, str(error)
        case _:
            status, reason = Status.NOT_MEASURED, str(error)
    evidence = {"worker": type(error).__name__, "detail": getattr(error, "detail", "")[:2000]}
    return Verdict(gate, status, reason, evidence)
