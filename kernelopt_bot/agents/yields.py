"""What each brain gave for what it took, measured: what the planner divides the budget by, and reports show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from kernelopt_bot.agents.brain import Attempt, Exchange, Role


@dataclass
class RoleYield:
    """Counts of one role's exchanges with one brain."""

    asked: int = 0
    answered: int = 0
    malformed: int = 0
    """Answers that did not fit the schema, each followed by a repair or given up."""
    pending: int = 0
    failed: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    money_usd: float = 0.0
    seconds: float = 0.0


@dataclass
class BrainYield:
    """Candidates of one brain: how many each gate stopped, how many passed all, and the gains of those."""

    roles: dict[Role, RoleYield] = field(default_factory=dict)
    candidates: int = 0
    passed: int = 0
    stopped: dict[str, int] = field(default_factory=dict)
    """Gate -> candidates that it stopped; `race`: correct or not, they were too slow."""
    gain_log2: float = 0.0
    """Sum of log2 of the step speedups above 1 of those that passed."""
    retries: int = 0
    mended: int = 0
    """Candidates that passed after at least one failed attempt."""


class Yields:
    """Not thread-safe: the strategy books, between the questions."""

    def __init__(self) -> None:
        self.brains: dict[str, BrainYield] = {}

    def exchanged(self, exchange: Exchange) -> None:
        role = self.of(exchange.brain).roles.setdefault(exchange.role, RoleYield())
        role.asked += 1
        role.answered += exchange.outcome == "answered"
        role.malformed += bool(exchange.faults)
        role.pending += exchange.outcome == "pending"
        role.failed += exchange.outcome not in ("answered", "pending", "unknown")
        role.input_tokens += exchange.usage.input_tokens
        role.output_tokens += exchange.usage.output_tokens
        role.money_usd += exchange.usage.money_usd or 0.0
        role.seconds += exchange.seconds

    def tried(self, attempt: Attempt, number: int) -> None:
        """`number`: 0 for a first attempt of its chain, more for a mended one."""
        brain = self.of(attempt.author)
        brain.candidates += 1
        brain.retries += number > 0
        if attempt.passed:
            brain.passed += 1
            brain.mended += number > 0
            brain.gain_log2 += reward(attempt)
        else:
            gate = next((g.gate for g in attempt.gates if not g.passed), "none")
            brain.stopped[gate] = brain.stopped.get(gate, 0) + 1

    def of(self, brain: str) -> BrainYield:
        return self.brains.setdefault(brain, BrainYield())

    def shares(self, brains: Sequence[str], plans: int, exploration: float) -> dict[str, int]:
        """How many of a round's plans each brain gets: one by one to the highest upper confidence bound of its gain a
        candidate (UCB1: Auer, Cesa-Bianchi, Fischer 2002); each plan given counts as a try that gained nothing yet."""
        given = dict.fromkeys(brains, 0)
        for _ in range(plans if brains else 0):
            tries = {b: self.of(b).candidates + given[b] for b in brains}
            total = sum(tries.values())
            best = max(brains, key=lambda b: ucb(self.of(b).gain_log2, tries[b], total, exploration))
            given[best] += 1
        return given

    def to_json(self) -> Mapping[str, Any]:
        return {name: asdict(brain) for name, brain in self.brains.items()}


def ucb(sum_of_rewards: float, tries: int, total: int, exploration: float) -> float:
    """Upper confidence bound of a mean reward; infinite for what was never tried."""
    if not tries:
        return math.inf
    return sum_of_rewards / tries + exploration * math.sqrt(math.log(max(total, 1)) / tries)


def reward(attempt: Attempt) -> float:
    """log2 of the step speedup of an attempt that passed, 0 where it gained or passed nothing. Where nothing can be
    timed, passing is all that there is to gain."""
    if not attempt.passed:
        return 0.0
    if attempt.speedup is None:
        return 1.0
    return max(0.0, math.log2(attempt.speedup))
