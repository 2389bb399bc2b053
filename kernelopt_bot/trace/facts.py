"""A run as a tree of candidates, and questions about it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kernelopt_bot.agents.brain import ROLES, Exchange
from kernelopt_bot.agents.spend import Spending
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates.verdict import GATES, Status, Verdict
from kernelopt_bot.report.facts import verdicts_by_gate
from kernelopt_bot.search.result import TargetResult, Trial


@dataclass(frozen=True)
class Node:
    """One candidate and those that were made from it."""

    trial: Trial
    adopted: bool
    exchange: str
    """Key of the exchange that it came of; '' where no brain was asked."""
    verdicts: tuple[tuple[Verdict, str], ...]
    """Of all four gates, each with its scope: `piece`, `stitched` or `none`."""
    children: tuple[Node, ...] = ()

    @property
    def fate(self) -> str:
        """`adopted`, the gate that stopped it, or `passed over`: it passed every gate that it met."""
        stop = self.trial.stopped_by
        return "adopted" if self.adopted else stop.gate if stop is not None else "passed over"

    @property
    def kind(self) -> str:
        """How it ended: `adopted`, `fail`, `not measured` or `passed over`."""
        stop = self.trial.stopped_by
        return self.fate if self.adopted or stop is None else (
            "fail" if stop.status is Status.FAIL else "not measured")

    @property
    def seconds(self) -> float:
        return sum(v.seconds for v in self.trial.verdicts)

    def walk(self, depth: int = 0) -> Iterator[tuple[Node, int]]:
        yield self, depth
        for child in self.children:
            yield from child.walk(depth + 1)


@dataclass(frozen=True)
class Spot:
    """What one lever tried at one place."""

    lever: str
    title: str
    """The replaced kernels, or the graph and steps; '' for options of the whole program."""
    nodes: tuple[Node, ...]

    def walk(self) -> Iterator[tuple[Node, int]]:
        for node in self.nodes:
            yield from node.walk()


@dataclass(frozen=True)
class TargetTrace:
    name: str
    spots: tuple[Spot, ...]
    exchanges: tuple[Exchange, ...]
    result: TargetResult | None
    """As reported; None where there is no report of this run."""
    workers: Mapping[str, float]
    """What workers did -> seconds."""
    left_out: int = 0
    """Lines of the records that could not be read."""

    def walk(self) -> Iterator[tuple[Node, int]]:
        for spot in self.spots:
            yield from spot.walk()


@dataclass(frozen=True)
class Trace:
    name: str
    targets: tuple[TargetTrace, ...]
    spending: Spending | None
    """None where no model was asked."""


def spots(trials: Sequence[Trial], exchanges: Iterable[Exchange], result: TargetResult | None,
          names: Mapping[tuple[int, int], str]) -> tuple[Spot, ...]:
    """Trials by lever and place, in order of first appearance; a candidate below the one it was made from.

    `result` says what was adopted, where there is a report; `names`: (graph, step) -> name of the kernel.
    """
    made = {candidate: e.key for e in exchanges for candidate in e.candidates}
    reported = {} if result is None else {t.candidate.id: t for t in result.trials}
    by_id = {t.candidate.id: t for t in trials}
    children: dict[str, list[Trial]] = defaultdict(list)
    places: dict[tuple[str, str], list[Trial]] = defaultdict(list)
    for trial in trials:
        parent = by_id.get(trial.candidate.parent or "")
        # A parent elsewhere (another graph's candidate) is named, not hung under.
        if parent is not None and _place(parent, names) == _place(trial, names) and not _below(parent, trial, by_id):
            children[parent.candidate.id].append(trial)
        else:
            places[_place(trial, names)].append(trial)

    def node(trial: Trial) -> Node:
        key = trial.candidate.id
        final = reported.get(key, trial)
        verdicts = verdicts_by_gate(result, final) if result is not None else tuple(
            next(((v, "piece") for v in trial.verdicts if v.gate == g), (Verdict(g, Status.NOT_MEASURED), "none"))
            for g in GATES)
        return Node(trial, final.adopted, made.get(key, ""), verdicts, tuple(node(c) for c in children[key]))

    return tuple(Spot(lever, title, tuple(node(t) for t in found)) for (lever, title), found in places.items())


def _below(parent: Trial, trial: Trial, by_id: Mapping[str, Trial]) -> bool:
    """Whether `parent` descends from `trial` itself: records are data, and a ring would have no end."""
    seen: set[str] = set()
    at: Trial | None = parent
    while at is not None and at.candidate.id not in seen:
        if at.candidate.id == trial.candidate.id:
            return True
        seen.add(at.candidate.id)
        at = by_id.get(at.candidate.parent or "")
    return at is not None


def _place(trial: Trial, names: Mapping[tuple[int, int], str]) -> tuple[str, str]:
    c = trial.candidate
    if not isinstance(c, KernelCandidate):
        return c.lever, ""
    found = [names.get((c.graph, s), "") for s in c.steps]
    where = f"graph {c.graph}, step{'s' if len(c.steps) != 1 else ''} {', '.join(map(str, c.steps))}"
    return c.lever, f"{', '.join(found)} ({where})" if all(found) else where


class Yield(NamedTuple):
    """Of one role of one brain."""

    role: str
    brain: str
    asked: int
    answered: int
    """Replies that fit the role's schema."""
    candidates: int
    adopted: int
    input_tokens: int
    output_tokens: int
    money_usd: float | None
    """None where some of it has no price."""
    seconds: float


def yields(target: TargetTrace) -> tuple[Yield, ...]:
    """What each role of each brain gave, in the order of the roles."""
    kept = {n.trial.candidate.id for n, _ in target.walk() if n.adopted}
    groups: dict[tuple[int, str], list[Exchange]] = defaultdict(list)
    for e in target.exchanges:
        groups[ROLES.index(e.role), e.brain].append(e)
    found = []
    for (role, brain), es in sorted(groups.items()):
        candidates = {c for e in es for c in e.candidates}
        prices = [e.usage.money_usd for e in es]
        money = None if any(p is None for p in prices) else sum(p for p in prices if p is not None)
        found.append(Yield(
            ROLES[role], brain, len(es), sum(e.outcome == "answered" and not e.faults for e in es), len(candidates),
            len(candidates & kept), sum(e.usage.input_tokens for e in es), sum(e.usage.output_tokens for e in es),
            money, sum(e.seconds for e in es)))
    return tuple(found)
