"""Asks brains, reads what they say, asks once more where it does not fit, and keeps a record of all of it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from kernelopt_bot.agents.answers import Answer, Malformed, read
from kernelopt_bot.agents.brain import Brain, Exchange, Question, Repair, Reply
from kernelopt_bot.agents.yields import Yields


@dataclass(frozen=True)
class Told:
    """A question and what came of it; `answer` None where there is none that fits."""

    question: Question
    exchange: Exchange
    answer: Answer | None


class Council:
    """All brains of one target's search. `record` is called for each exchange, and again when it is known what became
    of it; the last record of a key counts."""

    def __init__(self, brains: Sequence[Brain], record: Callable[[Exchange], None] = lambda exchange: None) -> None:
        self.brains = list(brains)
        self.yields = Yields()
        self.notes: list[str] = []
        """What a report has to say of them."""
        self.waiting = 0
        """Questions that were written out and not answered yet."""
        self._record = record

    def ask(self, brain: Brain, questions: Sequence[Question]) -> list[Told]:
        """In the order of the questions. A brain that says it is of no more use is not asked again in this run."""
        told = self._told(brain, questions)
        again = {n: replace(t.question, repair=Repair(t.exchange.text, t.exchange.faults))
                 for n, t in enumerate(told) if t.exchange.faults}
        if again and brain in self.brains:
            for n, mended in zip(again, self._told(brain, list(again.values())), strict=True):
                # An answer that waits for its repair is still the answer that did not fit.
                told[n] = mended if mended.exchange.outcome == "answered" else told[n]
        return told

    def became(self, told: Told, what: str, candidates: Sequence[str] = ()) -> None:
        """Records what came of an answer."""
        self._record(replace(told.exchange, became=what, candidates=tuple(candidates)))

    def note(self, text: str) -> None:
        if text not in self.notes:
            self.notes.append(text)

    def _told(self, brain: Brain, questions: Sequence[Question]) -> list[Told]:
        told = []
        for question, reply in zip(questions, brain.ask(questions) if questions else [], strict=True):
            answer: Answer | None = None
            faults: tuple[str, ...] = ()
            if reply.outcome == "answered":
                try:
                    answer = read(question.role, reply.text)
                except Malformed as e:
                    faults = e.faults
            exchange = Exchange.of(brain.name, question, reply, faults)
            self._record(exchange)
            self.yields.exchanged(exchange)
            self._notice(brain, reply)
            told.append(Told(question, exchange, answer))
        return told

    def _notice(self, brain: Brain, reply: Reply) -> None:
        if reply.outcome == "pending":
            self.waiting += 1
        elif reply.outcome == "spent":
            self.note(f"{brain.name}: the budget is spent ({reply.reason or 'no figures'}); the search went on without")
        elif reply.outcome not in ("answered", "unknown"):
            self.note(f"{brain.name}: {reply.outcome}: {reply.reason or 'no reason given'}")
        if reply.lasting and brain in self.brains:
            self.brains.remove(brain)
