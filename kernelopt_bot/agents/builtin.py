"""The built-in brain: five roles by rules, over the playbook's ideas. It needs no model and no key, and never fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from kernelopt_bot.agents import analyst
from kernelopt_bot.agents.brain import Attempt, Question, Reply
from kernelopt_bot.contract.candidate import KernelCandidate

FREE = "free choice"
"""The direction of a brain that has no plan: whatever it thinks best for the spot."""


class Builtin:
    """`ideas`: key of a spot -> the playbook's candidates for it, most promising first; asked for once a spot."""

    name = "builtin"

    def __init__(self, ideas: Callable[[str], Iterator[KernelCandidate]], near_optimal: float = 0.8) -> None:
        self._ideas, self._near_optimal = ideas, near_optimal
        self._left: dict[str, list[KernelCandidate]] = {}

    def ask(self, questions: Sequence[Question]) -> list[Reply]:
        return [self._reply(q) for q in questions]

    def _reply(self, question: Question) -> Reply:
        match question.role:
            case "profiler":
                return _json({"bottlenecks": [
                    {"spot": s.key, "bound": analyst.bound(s.steps, question.device, self._near_optimal),
                     "evidence": "speed of light of its unique bytes"} for s in question.spots], "metrics": []})
            case "planner":
                return self._plans(question)
            case "summarizer":
                return _summary(question)
            case _:
                return self._candidate(question)

    def _plans(self, question: Question) -> Reply:
        """Techniques of the playbook that have an idea left, by what they are expected to save of the call."""
        tried = {(a.spot, a.direction) for a in question.history} if question.diversify else set()
        found: list[tuple[float, dict[str, Any]]] = []
        for spot in question.spots:
            names = {c.technique for c in self._of(spot.key)}
            for entry in spot.playbook:
                if entry.name in names and entry.name not in question.avoid and (spot.key, entry.name) not in tried:
                    saved = max(spot.savings_us, 1.0) * (1 - 1 / max(entry.gain, 1.0))
                    found.append((saved, {"spot": spot.key, "name": entry.name, "idea": entry.reason,
                                          "expected_gain": min(entry.gain, 1000.0)}))
        found.sort(key=lambda pair: -pair[0])
        chosen = [d for _, d in found[:question.wanted]]
        return _json({"directions": chosen}) if chosen else Reply("unknown", reason="the playbook has no further idea")

    def _candidate(self, question: Question) -> Reply:
        direction = question.direction
        left = self._of(direction.spot) if direction else []
        at = next((n for n, c in enumerate(left) if direction and direction.name in (c.technique, FREE)), None)
        if at is None:
            return Reply("unknown", reason="the playbook has no further idea")
        idea = left.pop(at)
        plan = idea.plan.to_json()
        return _json({"source": idea.source, "plan": plan, "why": idea.rationale})

    def _of(self, spot: str) -> list[KernelCandidate]:
        if spot not in self._left:
            self._left[spot] = list(self._ideas(spot))
        return self._left[spot]


def _summary(question: Question) -> Reply:
    """Append what is new, replace what says less about the same direction, skip the rest."""
    attempt = question.parent
    if attempt is None or attempt.speedup is None:
        return _json({"action": "skip", "replaces": None, "lesson": ""})
    lesson = lesson_of(attempt)
    for n, old in enumerate(question.experiences):
        if old.direction == attempt.direction and (old.factor > 1) == (attempt.speedup > 1):
            stronger = abs(attempt.speedup - 1) > abs(old.factor - 1)
            return _json({"action": "replace" if stronger else "skip", "replaces": n, "lesson": lesson})
    return _json({"action": "append", "replaces": None, "lesson": lesson})


def lesson_of(attempt: Attempt) -> str:
    """An attempt in one sentence of figures."""
    ended = next((f"stopped by the gate {g.gate}" for g in attempt.gates if not g.passed), "passed its gates")
    return f"{attempt.direction}: {attempt.speedup or 1.0:.2f}x on the step, {ended}. {attempt.why}"[:1000].strip()


def _json(data: dict[str, Any]) -> Reply:
    return Reply("answered", json.dumps(data))
