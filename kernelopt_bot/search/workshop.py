"""Where agents' proposals become candidates and go through the gates: `agents.strategy.Workshop` for both lanes."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

from kernelopt_bot.agents import scrub, strategy
from kernelopt_bot.agents.brain import Attempt, DeviceFacts, Experience, GateAnswer, Proposal, SlotFacts, SpotFacts
from kernelopt_bot.agents.builtin import Builtin
from kernelopt_bot.agents.council import Council
from kernelopt_bot.agents.party import Party
from kernelopt_bot.contract.candidate import KernelCandidate, Parameter, Plan
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.errors import KerneloptError
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.search import facts, memory, runs, sites
from kernelopt_bot.search.proposing import Compiler
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.sites import Place
from kernelopt_bot.search.spots import Spot, ideas_for
from kernelopt_bot.search.trials import Trials

IDEAS_EACH, IDEAS = 12, 40
"""Of the built-in brain for one spot: of a technique, and together. The search's own pass takes fewer."""
NOTES = 8
"""What a report repeats of the brains' failures; `agents.json` has them all."""
Judge = Callable[[Spot, Sequence[KernelCandidate]], Sequence[Trial]]
"""Candidates of one spot through the gates, each recorded, in order."""


@dataclass
class Workshop:
    """`found`: the spots that agents work on, most savings first."""

    session: Session
    party: Party
    trials: Trials
    device: DeviceFacts
    judge: Judge
    spots: tuple[SpotFacts, ...] = ()
    _known: dict[str, Spot] = field(default_factory=dict)
    _answers: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)

    @classmethod
    def of(cls, session: Session, party: Party, trials: Trials, compiler: Compiler, found: Sequence[Spot],
           roofs: Roofs, judge: Judge, *, measured: bool) -> Workshop:
        """With the facts of as many spots as agents are shown. `measured`: candidates are timed."""
        shop = cls(session, party, trials, facts.device(roofs, compiler.arch, measured), judge)
        # A run with a vendor call is the lever `region`'s.
        shown = [s for s in found if s.place is not None and (s.run is None or s.run.vendor is None)]
        shown = shown[:party.settings.spots]
        baselines = compiler.baselines(k.source for s in shown for k in s.kernels)
        told = []
        for spot in shown:
            answers = [a for k in spot.kernels if not isinstance(a := baselines[k.source], KerneloptError)]
            if len(answers) < len(spot.kernels) or spot.place is None:
                continue
            try:
                fact = facts.spot(spot.place, answers, shop.device, send_source=party.send_source,
                                  near_optimal=party.settings.near_optimal)
            except scrub.Private as e:
                session.progress.note(f"agents: a step is not shown to brains, agents.send_source is false: {e}")
                continue
            except (KeyError, ValueError, TypeError):
                continue  # a kernel that is not understood: the search has said so
            told.append(fact)
            shop._known[fact.key], shop._answers[fact.key] = spot, answers
        shop.spots = tuple(told)
        return shop

    def exhausted(self) -> str:
        return self.session.budget.exhausted()

    def try_all(self, proposals: Sequence[Proposal]) -> list[Attempt]:
        made = [(p, self.candidate(p)) for p in proposals]
        known = {t.candidate.id: t for t in self.trials.all()}
        for key in dict.fromkeys(p.spot for p, _ in made):
            fresh = {c.id: c for p, c in made if p.spot == key and c.id not in known}
            self.session.progress.update(f"agents: {len(fresh)} candidates of {self._known[key].name}")
            known |= {t.candidate.id: t for t in (self.judge(self._known[key], list(fresh.values())) if fresh else ())}
        return [self.attempt(known[c.id], p.spot, p.direction) for p, c in made]

    def candidate(self, proposal: Proposal) -> KernelCandidate:
        """Its id is a digest of what it is. The run's own buffers are as the run has them, whatever the plan says."""
        spot = self._known[proposal.spot]
        slots = next(s.slots for s in self.spots if s.key == proposal.spot)
        plan = bound(proposal.plan, slots)
        content = json.dumps([proposal.spot, proposal.source, plan.to_json()], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode(errors="backslashreplace")).hexdigest()[:10]
        place = spot.place
        assert place is not None
        graph, steps = ((place.site.step.graph, (place.site.step.index,)) if isinstance(place, Place) else
                        (place.site.run.graph.index, place.site.run.steps))
        return KernelCandidate(
            f"{proposal.author}-{digest}", proposal.spot, graph, steps, proposal.source, plan,
            proposal.direction, proposal.author, proposal.why, proposal.parent)

    def attempt(self, trial: Trial, spot: str, direction: str = "") -> Attempt:
        """A trial in the words that brains get."""
        candidate = trial.candidate
        assert isinstance(candidate, KernelCandidate)
        words = (lambda text: text) if self.party.send_source else scrub.message
        gates = [GateAnswer(v.gate, v.lets_on, words(v.reason), _figures(v.gate, v.evidence),
                            v.status is not Status.NOT_MEASURED) for v in trial.verdicts if v.gate != "performance"]
        if trial.after_us is not None and trial.before_us is not None and trial.step_speedup is not None:
            said = f"{trial.before_us:.2f} us before, {trial.after_us:.2f} us after: {trial.step_speedup:.3f}x"
            gates.insert(1, GateAnswer("race", trial.won, said))
        elif trial.note and trial.stopped_by is None:
            gates.append(GateAnswer("run", False, words(trial.note)))
        source, plan = candidate.source, candidate.plan.to_json()
        if candidate.author == "builtin" and not self.party.send_source:
            source, plan = scrub.candidate(source, plan)
        return Attempt(candidate.id, spot, direction or candidate.technique, candidate.author, tuple(gates),
                       trial.step_speedup, source, plan, candidate.rationale)

    def before(self) -> list[Attempt]:
        """What the search tried for these spots by itself."""
        return [self.attempt(t, t.candidate.run_hash) for t in self.trials.all()
                if isinstance(t.candidate, KernelCandidate) and t.candidate.run_hash in self._known]

    def structures(self) -> dict[str, str]:
        """Key of a spot -> what lessons about its kernels are kept by."""
        return {s.key: memory.structure(self._known[s.key]) for s in self.spots}

    def ideas(self, key: str) -> Iterator[KernelCandidate]:
        """The playbook's candidates for a spot that were not tried yet."""
        tried = {t.candidate.id for t in self.trials.all()}
        place, answers = self._known[key].place, self._answers[key]
        if isinstance(place, Place):
            found: Iterator[KernelCandidate] = iter(
                ideas_for(sites.configured(place, answers[0]), each=IDEAS_EACH, most=IDEAS))
        elif place is not None:
            found = islice(place.proposals(runs.configured(place, answers)), IDEAS)
        else:
            found = iter(())
        return (c for c in found if c.id not in tried)


def search(shop: Workshop) -> strategy.Outcome:
    """The agents' search over the workshop's spots; what a report says of it goes into `session.said`, figures into
    `agents.json` of the run's folder."""
    session, settings = shop.session, shop.party.settings
    # Where nothing is timed, the playbook's first ideas are as good as its further ones, and were tried before.
    own = (Builtin(shop.ideas, settings.near_optimal),) if shop.device.measured else ()
    council = Council([*shop.party.brains, *own], shop.party.record)
    kept = session.memory
    structures = shop.structures()
    known = kept.lessons(structures.values(), settings.memory) if kept else []
    outcome = strategy.run(council, shop, settings, shop.before(), known)
    if kept is not None and shop.party.teaches:
        kept.learn([(structures[spot], neutral(experience)) for spot, experience in outcome.learnt])
    names = ", ".join(b.name for b in shop.party.brains)
    tried = {a.candidate: a for a in outcome.attempts}
    passed = sum(a.passed for a in tried.values())
    session.said.append(f"agents ({names}): {len(tried)} candidates in {outcome.rounds} rounds, {passed} "
                        f"passed the gates of the search; {outcome.ended}")
    session.said.extend(council.notes[:NOTES])
    for line in session.said:
        session.progress.note(line)
    data = {"schema": 1, "rounds": outcome.rounds, "ended": outcome.ended, "notes": council.notes,
            "waiting": council.waiting, "yields": council.yields.to_json(),
            "experiences": [vars(e) for e in outcome.experiences]}
    session.folder.mkdir(parents=True, exist_ok=True)
    (session.folder / "agents.json").write_text(json.dumps(data, indent=1), encoding="utf-8")
    return outcome


def neutral(lesson: Experience) -> Experience:
    """As it may be kept, and shown to brains of runs that send no source, whatever this run sent."""
    return replace(lesson, lesson=scrub.message(lesson.lesson), direction=scrub.message(lesson.direction),
                   source=scrub.remembered(lesson.source))


def bound(plan: Plan, slots: Sequence[SlotFacts]) -> Plan:
    """The plan with the run's slots as they are, and with those that it uses or has to write and does not list."""
    known = {s.name: s for s in slots}
    listed = {p.name: p for p in plan.parameters}
    texts = [t for launch in plan.launches for t in (*launch.arguments, *launch.grid)] + [
        s.elements for s in plan.scratch]
    used = {name for text in texts if isinstance(text, str) for name in re.findall(r"[A-Za-z_]\w*", text)}
    names = [*listed, *(s.name for s in slots if s.name not in listed and (s.written or s.name in used))]
    return replace(plan, parameters=tuple(
        Parameter(n, known[n].type, known[n].written, known[n].read, known[n].divisible) if n in known else listed[n]
        for n in names))


def _figures(gate: str, evidence: Mapping[str, Any]) -> dict[str, Any]:
    """The numbers of a verdict that help to mend a candidate."""
    if gate == "static":
        launches = evidence.get("candidate")
        return {"launches": [{k: f.get(k) for k in ("registers", "spills", "shared")} for f in launches or ()
                             if isinstance(f, Mapping)], "flags": list(evidence.get("flags") or ())}
    return {}
