"""Capture and profile of a loaded target, from a model worker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Lane, Program, Step
from kernelopt_bot.contract.candidate import Scalar
from kernelopt_bot.device import profiling
from kernelopt_bot.device.profile import Profile, Roofs
from kernelopt_bot.sandbox.client import Worker

TIMEOUT_S = 600.0
SAVE_LIMIT_BYTES = 256 << 20
"""Largest step whose real arguments are saved; beyond it gate 2 draws from their statistics."""
REPEATS = 9


@dataclass(frozen=True)
class Captured:
    program: Program
    raw: tuple[Mapping[str, Any], ...]
    """`GraphJson` of each graph: recorded calls, saved inputs."""
    graph_breaks: int
    break_reasons: tuple[str, ...]

    def call_of(self, step: Step) -> Mapping[str, Any] | None:
        """The recorded call (`CallJson`) of a step."""
        calls = self.raw[step.graph]["calls"]
        return next((c for c in calls if c["line"] == step.lines[0]), None)


def capture(worker: Worker, target: str, lane: Lane, device: str, versions: Mapping[str, Any], *,
            options: Mapping[str, Scalar] | None = None, save: bool = True) -> Captured:
    """The target's graphs. Raises WorkerError, InputError (kind `unsupported`)."""
    answer = worker.call("capture", {"lane": lane, "options": dict(options or {}),
                                     "save_limit_bytes": SAVE_LIMIT_BYTES if save else 0}, timeout=TIMEOUT_S)
    return made(answer, target, lane, device, versions, options or {})


def made(answer: Mapping[str, Any], target: str, lane: Lane, device: str, versions: Mapping[str, Any],
         options: Mapping[str, Scalar]) -> Captured:
    graphs = tuple(parse_graph(g) for g in answer["graphs"])
    program = Program(target, lane, graphs, str(versions["torch"]), str(versions["triton"]), device, dict(options))
    reasons = tuple(str(r) for r in answer.get("break_reasons", ()))
    return Captured(program, tuple(answer["graphs"]), int(answer.get("graph_breaks", 0)), reasons)


def profile(worker: Worker, captured: Captured, roofs: Roofs, options: Mapping[str, Scalar]) -> Profile:
    """Times of every step. Raises WorkerError."""
    raw = {g.index: worker.call("profile", {"graph": g.index, "options": dict(options), "repeats": REPEATS},
                                timeout=TIMEOUT_S) for g in captured.program.graphs}
    return profiling.build(captured.program, raw, roofs)
