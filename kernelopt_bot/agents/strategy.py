"""The search of the agents: rounds of plans, carried out by executors and fusers, mended by the gates' evidence.

KernelOPT's loop (arXiv:2609.30059, section 4.3, as reported): T rounds of N plans, each with up to K retries in which
the error goes back to the executor; a beam of B candidates chosen for diversity; upper confidence bounds; a meltdown
detector; a memory of gains and losses. Every number is in `Strategy`. All brains propose into the same search; a
round's plans are divided among them by what each one's candidates gained so far.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from kernelopt_bot.agents.answers import CandidateAnswer, DirectionAnswer, PlannerAnswer, ProfilerAnswer, SummaryAnswer
from kernelopt_bot.agents.brain import (
    Attempt,
    Brain,
    DeviceFacts,
    DirectionFacts,
    Experience,
    Proposal,
    Question,
    Role,
    SpotFacts,
)
from kernelopt_bot.agents.builtin import FREE
from kernelopt_bot.agents.council import Council, Told
from kernelopt_bot.agents.memory import FIRST, Memory
from kernelopt_bot.agents.strategy_settings import Strategy

_NUMBERS = re.compile(r"[0-9][0-9.e+-]*")


class Workshop(Protocol):
    """The search, as far as agents see it."""

    @property
    def device(self) -> DeviceFacts: ...

    @property
    def spots(self) -> Sequence[SpotFacts]:
        """Most savings first."""

    def try_all(self, proposals: Sequence[Proposal]) -> list[Attempt]:
        """Through the gates, one attempt each, in order. A candidate that was tried before gets its earlier answer."""

    def exhausted(self) -> str:
        """Which limit of the search is reached, '' if none."""


@dataclass
class _Chain:
    """One plan on its way: the question that is next, and the errors so far."""

    brain: Brain
    question: Question
    errors: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Outcome:
    """`ended`: why the loop stopped, in words."""

    rounds: int
    attempts: tuple[Attempt, ...]
    experiences: tuple[Experience, ...]
    ended: str
    learnt: tuple[tuple[str, Experience], ...] = ()
    """Experiences of this search, each with the key of its spot."""


def run(council: Council, workshop: Workshop, settings: Strategy, before: Sequence[Attempt] = (),
        known: Sequence[Experience] = ()) -> Outcome:
    """Asks and tries until a limit is reached or nobody has a further idea. `before`: what the search tried by
    itself; `known`: experiences of earlier searches."""
    return _Search(council, workshop, settings, before, known).run()


class _Search:
    def __init__(self, council: Council, workshop: Workshop, settings: Strategy, before: Sequence[Attempt],
                 known: Sequence[Experience]) -> None:
        self.council, self.workshop, self.settings = council, workshop, settings
        self.memory = Memory(settings, before)
        self.memory.experiences = list(known)[-settings.memory:] if settings.memory else []
        self.learnt: list[tuple[str, Experience]] = []
        for attempt in before:
            council.yields.tried(attempt, 0)
        self.spots: dict[str, SpotFacts] = {s.key: s for s in list(workshop.spots)[:settings.spots]}
        self.made: list[Attempt] = []
        self.resting: list[Brain] = []
        """Brains that owe an answer which their next questions depend on."""

    def run(self) -> Outcome:
        if not self.spots:
            return self.outcome(0, "no step is worth a plan")
        if self.settings.rounds:
            self.profile()
        for number in range(self.settings.rounds):
            if reason := self.workshop.exhausted():
                return self.outcome(number, reason)
            chains = self.plan(number)
            if not chains:
                return self.outcome(number, self.owed() or "no brain has a further idea")
            tried = self.carry_out(chains)
            self.council.brains = [b for b in self.council.brains if b not in self.resting]
            if not tried:
                return self.outcome(number + 1, self.owed() or "no brain gave a further candidate")
            self.sum_up(number, tried)
        return self.outcome(self.settings.rounds, self.owed() or f"{self.settings.rounds} rounds were searched")

    def owed(self) -> str:
        waiting = self.council.waiting
        return f"{waiting} questions wait for their answers" if waiting else ""

    def outcome(self, rounds: int, ended: str) -> Outcome:
        return Outcome(rounds, tuple(self.made), tuple(self.memory.experiences), ended, tuple(self.learnt))

    def profile(self) -> None:
        """What limits each spot: by arithmetic where times are known, else in a brain's words."""
        question = Question("profiler", 0, self.workshop.device, tuple(self.spots.values()))
        for brain in list(self.council.brains):
            for told in self.council.ask(brain, [question]):
                if not isinstance(told.answer, ProfilerAnswer):
                    continue
                for found in told.answer.bottlenecks:
                    spot = self.spot(found.spot)
                    if spot is not None and spot.bound == "unknown":
                        self.spots[spot.key] = replace(spot, bound=found.bound, remark=found.evidence)
                self.council.became(told, "bottlenecks")
        kept = {k: s for k, s in self.spots.items() if s.bound != "near-optimal" or not s.steps[0].time_us}
        self.spots = kept or self.spots

    def spot(self, said: str) -> SpotFacts | None:
        """The spot that an answer means: by its key, the beginning of it, or its signature."""
        exact = self.spots.get(said)
        near = [s for s in self.spots.values() if (len(said) >= 6 and s.key.startswith(said)) or s.signature == said]
        return exact or (near[0] if len(near) == 1 else None)

    def plan(self, number: int) -> list[_Chain]:
        """A round's plans as chains to carry out: each brain as many as its yield earns, of different directions."""
        avoid, melted = self.memory.avoided(), self.memory.melted()
        stale = set(self.memory.plans[-self.settings.meltdown_window:]) if melted else set()
        proposed: dict[str, list[DirectionAnswer]] = {}
        asked = Question(
            "planner", number, self.workshop.device, tuple(self.spots.values()), wanted=self.settings.plans,
            history=tuple(self.memory.attempts[-self.settings.history:]) if self.settings.history else (),
            experiences=tuple(self.memory.experiences), avoid=avoid, diversify=melted)
        for brain in list(self.council.brains):
            for told in self.council.ask(brain, [asked]):
                wanted = told.answer.directions if isinstance(told.answer, PlannerAnswer) else []
                known = [d for d in wanted if self.spot(d.spot) is not None and d.name not in avoid]
                fresh = [d for d in known if d.name not in stale] or known
                if told.answer is not None:
                    self.council.became(told, f"{len(fresh)} of {len(wanted)} plans taken")
                if not fresh and brain.name != "builtin":
                    # Without a plan it may still have a candidate: its own choice, where most can be saved.
                    fresh = [DirectionAnswer(spot=key, name=FREE, idea="Choose what you think best for this spot.")
                             for key in self.spots]
                proposed[brain.name] = fresh
        alive = [b for b in self.council.brains if proposed.get(b.name)]
        shares = self.council.yields.shares(
            [b.name for b in alive], self.settings.plans, self.settings.exploration)
        chains, seen, starts = [], set[tuple[str, str]](), list[str]()
        for brain in alive:
            left = shares[brain.name]
            for direction in proposed[brain.name]:
                spot = self.spot(direction.spot)
                if left == 0 or spot is None or (brain.name, spot.key + direction.name) in seen:
                    continue
                seen.add((brain.name, spot.key + direction.name))
                left -= 1
                parent = self.memory.parent(spot.key, starts)
                starts.append(parent.candidate if parent else FIRST)
                chains.append(_Chain(brain, self.order(number, spot, direction, parent)))
                if direction.name != FREE:
                    self.memory.plans.append(direction.name)
        return chains

    def order(self, number: int, spot: SpotFacts, direction: DirectionAnswer, parent: Attempt | None) -> Question:
        role: Role = "fuser" if len(spot.steps) > 1 else "executor"
        facts = DirectionFacts(spot.key, direction.name, direction.idea, direction.expected_gain)
        return Question(
            role, number, self.workshop.device, (spot,), direction=facts, parent=parent,
            history=self.memory.of([spot.key]), experiences=tuple(self.memory.experiences),
            avoid=self.memory.avoided())

    def carry_out(self, chains: list[_Chain]) -> list[Attempt]:
        """All chains side by side: what failed goes back with the evidence, K times at most; the same error twice ends
        a chain."""
        tried: list[Attempt] = []
        for number in range(self.settings.retries + 1):
            answers = [(c, t) for c, t in self.asked(chains) if isinstance(t.answer, CandidateAnswer)]
            attempts = self.workshop.try_all([_proposal(c, t) for c, t in answers]) if answers else []
            chains = []
            for (chain, told), attempt in zip(answers, attempts, strict=True):
                parent = chain.question.parent
                # A candidate that was there before is no new one, but an answer all the same.
                if attempt.candidate not in {a.candidate for a in self.memory.attempts}:
                    self.memory.tried(attempt, parent.candidate if parent else None)
                    self.council.yields.tried(attempt, number)
                tried.append(attempt)
                failure = next((g for g in attempt.gates if not g.passed), None)
                unfinished = "passed" if attempt.passed else "not judged"
                self.council.became(told, failure.gate if failure else unfinished, [attempt.candidate])
                # A race lost is no error: it is the planner's to think of something else. Nor is what nobody measured.
                if failure is None or failure.gate == "race" or not failure.measured:
                    continue
                error = _NUMBERS.sub("#", f"{failure.gate}: {failure.reason}")
                if error not in chain.errors:
                    again = replace(chain.question, attempt=number + 1,
                                    history=(*chain.question.history, attempt))
                    chains.append(_Chain(chain.brain, again, [*chain.errors, error]))
            if not chains or self.workshop.exhausted():
                break
        self.made += tried
        return tried

    def asked(self, chains: Sequence[_Chain]) -> list[tuple[_Chain, Told]]:
        """Each brain's questions together, so that it can work on several at once."""
        found: list[tuple[_Chain, Told]] = []
        for brain in {id(c.brain): c.brain for c in chains}.values():
            own = [c for c in chains if c.brain is brain]
            if brain not in self.council.brains:
                continue
            told = self.council.ask(brain, [c.question for c in own])
            found += zip(own, told, strict=True)
            if any(t.exchange.outcome == "pending" for t in told):
                self.resting.append(brain)
        return found

    def sum_up(self, number: int, tried: Sequence[Attempt]) -> None:
        """Lessons of the round's largest gain and loss, in the words of the brain that made the candidate."""
        worth = sorted((a for a in tried if self.memory.noteworthy(a)), key=lambda a: a.speedup or 1.0)
        for attempt in {a.candidate: a for a in (*worth[:1], *worth[-1:])}.values():
            spot = self.spots.get(attempt.spot)
            brains = sorted(self.council.brains, key=lambda b: (b.name != attempt.author, b.name != "builtin"))
            if spot is None or not brains:
                continue
            question = Question(
                "summarizer", number, self.workshop.device, (spot,), parent=attempt,
                direction=DirectionFacts(spot.key, attempt.direction, attempt.why),
                experiences=tuple(self.memory.experiences))
            for told in self.council.ask(brains[0], [question]):
                if isinstance(told.answer, SummaryAnswer):
                    made = self.memory.sum_up(attempt, told.answer, spot.bound)
                    if made is not None:
                        self.learnt.append((spot.key, made))
                    self.council.became(told, "remembered" if made else "skipped", [attempt.candidate])


def _proposal(chain: _Chain, told: Told) -> Proposal:
    answer, question = told.answer, chain.question
    assert isinstance(answer, CandidateAnswer) and question.direction is not None
    return Proposal(
        question.direction.spot, answer.source, answer.plan.plan(), question.direction.name, chain.brain.name,
        answer.why, question.parent.candidate if question.parent else None)
