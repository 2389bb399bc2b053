"""What a search remembers while it runs: its beams, its experiences, and what of its plans has stopped paying.

After KernelOPT (arXiv:2609.30059, sections 4.3 and 4.5) as reported of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kernelopt_bot.agents.answers import SummaryAnswer
from kernelopt_bot.agents.brain import Attempt, Bound, Experience
from kernelopt_bot.agents.builtin import FREE
from kernelopt_bot.agents.strategy_settings import Strategy
from kernelopt_bot.agents.yields import reward, ucb

FIRST = ""
"""The node that every chain begins at: the compiler's own kernel."""


class Memory:
    """Of one target. `attempts` of all spots, oldest first; `plans` the names of all directions carried out."""

    def __init__(self, settings: Strategy, attempts: Sequence[Attempt] = ()) -> None:
        self.settings = settings
        self.attempts: list[Attempt] = []
        self.plans: list[str] = []
        self.experiences: list[Experience] = []
        self._parents: dict[str, str] = {}
        for attempt in attempts:
            self.tried(attempt, None)

    def tried(self, attempt: Attempt, parent: str | None) -> None:
        self.attempts.append(attempt)
        self._parents.setdefault(attempt.candidate, parent or FIRST)

    def of(self, spots: Iterable[str]) -> tuple[Attempt, ...]:
        wanted = set(spots)
        return tuple(a for a in self.attempts if a.spot in wanted)

    def beam(self, spot: str) -> list[Attempt]:
        """Candidates that further ones may start from: `diverse` of those that passed."""
        passed = {a.candidate: a for a in self.of([spot]) if _right(a)}
        return diverse(list(passed.values()), {c: self.chain(c) for c in passed}, self.settings.beam)

    def chain(self, candidate: str) -> str:
        """The first candidate of the chain that this one belongs to."""
        seen = {candidate}
        while (parent := self._parents.get(candidate, FIRST)) != FIRST and parent not in seen:
            seen.add(parent)
            candidate = parent
        return candidate

    def parent(self, spot: str, taken: Sequence[str] = ()) -> Attempt | None:
        """Where the next candidate of a spot starts: of the compiler's kernel (None) and the beam, the one with the
        highest upper confidence bound of what came of it. `taken`: starts already given away in this round."""
        nodes: list[Attempt | None] = [None, *self.beam(spot)]
        names = [FIRST if n is None else n.candidate for n in nodes]
        own = self.of([spot])
        children = {n: [a for a in own if self._parents.get(a.candidate, FIRST) == n] for n in names}
        tries = {n: 1 + len(children[n]) + list(taken).count(n) for n in names}
        total = sum(tries.values())

        def bound(at: int) -> float:
            node, name = nodes[at], names[at]
            gained = sum(map(reward, children[name])) + (reward(node) if node is not None else 0.0)
            return ucb(gained, tries[name], total, self.settings.exploration)

        return nodes[max(range(len(nodes)), key=lambda n: (bound(n), -n))]

    def avoided(self) -> tuple[str, ...]:
        """Directions that failed too often to be planned again."""
        found = []
        for name in dict.fromkeys(a.direction for a in self.attempts if a.direction != FREE):
            own = [a for a in self.attempts if a.direction == name]
            good = sum(reward(a) > 0 for a in own)
            if len(own) >= self.settings.avoid_after and good / len(own) < self.settings.avoid_below:
                found.append(name)
        return tuple(found)

    def melted(self) -> bool:
        """Whether the last plans were too alike (meltdown detector)."""
        last = self.plans[-self.settings.meltdown_window:]
        return (len(last) == self.settings.meltdown_window
                and len(set(last)) <= self.settings.meltdown_directions)

    def noteworthy(self, attempt: Attempt) -> bool:
        """Whether it is worth a summary: a gain or a loss beyond the thresholds."""
        return attempt.speedup is not None and (
            attempt.speedup >= self.settings.memory_gain or attempt.speedup <= 1 / self.settings.memory_loss)

    def sum_up(self, attempt: Attempt, answer: SummaryAnswer, bound: Bound) -> Experience | None:
        """Appends or replaces an experience; of a full queue the oldest goes. None where nothing was kept."""
        if answer.action == "skip" or not self.settings.memory:
            return None
        made = Experience(answer.lesson, attempt.direction, attempt.speedup or 1.0, attempt.passed, bound,
                          attempt.source if attempt.passed else "")
        if answer.action == "replace" and answer.replaces is not None and answer.replaces < len(self.experiences):
            self.experiences[answer.replaces] = made
        else:
            self.experiences = [*self.experiences, made][-self.settings.memory:]
        return made


def diverse(attempts: Sequence[Attempt], chains: dict[str, str], most: int) -> list[Attempt]:
    """DiverseSelect: the fastest of each chain first, then the rest by speed."""
    order = sorted(attempts, key=lambda a: -(a.speedup if a.speedup is not None else 1.0))
    first: dict[str, Attempt] = {}
    for attempt in order:
        first.setdefault(chains[attempt.candidate], attempt)
    heads = list(first.values())
    return [*heads, *(a for a in order if a not in heads)][:most]


def _right(attempt: Attempt) -> bool:
    """Whether gate 2 passed it, and nothing but a race stopped it."""
    stopped = [g.gate for g in attempt.gates if not g.passed]
    return stopped in ([], ["race"]) and any(g.gate == "correctness" for g in attempt.gates)
