"""The agents' search of the lever `kernel` on a GPU: gate 1, a race of a round's candidates, gate 2, the best kept."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kernelopt_bot.agents.party import Party
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.gates.static import Group
from kernelopt_bot.search import workshop
from kernelopt_bot.search.proposing import Compiler
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.spots import Spot
from kernelopt_bot.search.workshop import Workshop

if TYPE_CHECKING:
    from kernelopt_bot.search.kernel_lever import Kept, KernelSearch


def search(work: KernelSearch, party: Party, compiler: Compiler, found: Sequence[Spot]) -> list[Kept]:
    """What agents found that passed gates 1 and 2 and won its race; of one spot there may be several."""
    kept: list[Kept] = []
    known = compiler.baselines(k.source for s in found[:party.settings.spots] for k in s.kernels)

    def judge(spot: Spot, candidates: Sequence[KernelCandidate]) -> list[Trial]:
        (verdicts,) = compiler.judge([Group(candidates, spot.kernel_or_run, spot.integers)], known)
        trials = {c.id: work.trials.judged(c, v) for c, v in zip(candidates, verdicts, strict=True)}
        passed = [t for t in trials.values() if t.stopped_by is None]
        arguments = work.arguments(spot) if passed else []
        for trial in work.raced(spot, passed, arguments) if passed else ():
            # Slower ones too, down to a limit: a later candidate may start from what is right.
            if (trial.step_speedup or 0.0) >= party.settings.check_above:
                trial = work.checked(spot, trial, arguments)
                if trial.stopped_by is None and trial.won:
                    kept.append(work.kept(spot, trial))
        # Races and checks record: what is there now is the last word.
        last = {t.candidate.id: t for t in work.trials.all()}
        return [last[c.id] for c in candidates]

    place = next((s.place for s in found if s.place is not None), None)
    if place is None:
        return kept
    shop = Workshop.of(work.session, party, work.trials, compiler, found, place.site.roofs, judge, measured=True)
    workshop.search(shop)
    return best_of_each(kept)


def best_of_each(kept: Sequence[Kept]) -> list[Kept]:
    """Of each spot the one that saves most."""
    best: dict[str, Kept] = {}
    for one in kept:
        if one.spot.name not in best or one.saved_us > best[one.spot.name].saved_us:
            best[one.spot.name] = one
    return list(best.values())
