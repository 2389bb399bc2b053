"""The trials of one target as they come, on disk before anything else happens."""

from __future__ import annotations

from dataclasses import replace

from kernelopt_bot.contract.candidate import Candidate
from kernelopt_bot.gates.verdict import Verdict
from kernelopt_bot.search.archive import Archive
from kernelopt_bot.search.budget import Budget
from kernelopt_bot.search.result import Trial


class Trials:
    """Keeps the latest record of each candidate, in order of first appearance."""

    def __init__(self, archive: Archive, budget: Budget) -> None:
        self._archive, self._budget = archive, budget
        self._trials: dict[str, Trial] = {}

    def record(self, trial: Trial) -> Trial:
        """Raises Unavailable if it cannot be written."""
        if trial.candidate.id not in self._trials:
            self._budget.charge(candidates=1)
        self._archive.append(trial)
        self._trials[trial.candidate.id] = trial
        return trial

    def judged(self, candidate: Candidate, *verdicts: Verdict, note: str = "") -> Trial:
        return self.record(Trial(candidate, verdicts, note=note))

    def update(self, trial: Trial, *verdicts: Verdict, **changes: object) -> Trial:
        """The trial with further verdicts."""
        return self.record(replace(trial, verdicts=trial.verdicts + verdicts, **changes))  # type: ignore[arg-type]

    def all(self) -> tuple[Trial, ...]:
        return tuple(self._trials.values())
