"""Questions about a result that several parts of the report ask."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kernelopt_bot.contract.candidate import KernelCandidate, Lever
from kernelopt_bot.gates.verdict import GATES, Status, Verdict
from kernelopt_bot.search.result import RunResult, TargetResult, Trial

BASELINES = ("eager", "default", "reduce-overhead", "max-autotune")


def tried(result: TargetResult) -> int:
    """Candidates tried: what the search counted, or what it recorded where that is more."""
    return max(int(result.spent.get("candidates", 0)), len(result.trials))


def adopted(result: TargetResult) -> tuple[Trial, ...]:
    return tuple(t for t in result.trials if t.adopted)


def is_faster(result: TargetResult) -> bool:
    """Adopted, with a confirmed figure whose whole interval is a gain."""
    return result.headline is not None and bool(adopted(result)) and result.headline.low > 1.0


def faster(run: RunResult) -> tuple[TargetResult, ...]:
    return tuple(r for r in run.results if is_faster(r))


def replaced_names(result: TargetResult, trial: Trial) -> tuple[str, ...]:
    """Names of the kernels that a kernel candidate replaces; empty for options or without a program."""
    candidate = trial.candidate
    if not isinstance(candidate, KernelCandidate) or result.program is None:
        return ()
    wanted = set(candidate.steps)
    return tuple(
        s.name for g in result.program.graphs if g.index == candidate.graph for s in g.steps if s.index in wanted
    )


def verdicts_by_gate(result: TargetResult, trial: Trial) -> tuple[tuple[Verdict, str], ...]:
    """All four gates in order, each with its scope.

    A gate that a piece didn't go through by itself is answered by the stitched whole's verdict (scope `stitched`);
    where there is none either, the answer is "not measured", never a pass.
    """
    own = {v.gate: v for v in trial.verdicts}
    whole = {v.gate: v for v in result.stitched} if trial.adopted else {}
    answers = []
    for gate in GATES:
        if gate in own:
            answers.append((own[gate], "piece"))
        elif gate in whole:
            answers.append((whole[gate], "stitched"))
        else:
            stop = trial.stopped_by
            reason = f"stopped at the {stop.gate} gate" if stop is not None else "no verdict was recorded"
            answers.append((Verdict(gate, Status.NOT_MEASURED, reason), "none"))
    return tuple(answers)


def furthest(trials: tuple[Trial, ...]) -> tuple[Trial, ...]:
    """Those not adopted, the furthest first; ties by the replaced run's own speedup, then by id."""
    rest = [t for t in trials if not t.adopted]
    return tuple(sorted(rest, key=lambda t: (-_passed(t), -(t.step_speedup or 0.0), t.candidate.id)))


@dataclass(frozen=True)
class Tally:
    """How many candidates of one lever ended where. `stopped` maps a gate to the number that it stopped."""

    lever: Lever
    tried: int
    stopped: dict[str, int]
    passed_over: int
    """Passed every gate it met, and was still not adopted (a better one was, or it fell out of the whole)."""
    adopted: int


def tallies(result: TargetResult) -> tuple[Tally, ...]:
    """One for each lever that had a candidate, in the order in which levers are applied."""
    found = []
    levers: tuple[Lever, ...] = ("kernel", "region", "dispatch", "launch")
    for lever in levers:
        trials = [t for t in result.trials if t.candidate.lever == lever]
        if not trials:
            continue
        stops = Counter(t.stopped_by.gate for t in trials if not t.adopted and t.stopped_by is not None)
        chosen = sum(t.adopted for t in trials)
        found.append(
            Tally(lever, len(trials), {g: stops[g] for g in GATES}, len(trials) - chosen - stops.total(), chosen)
        )
    return tuple(found)


def _passed(trial: Trial) -> int:
    return sum(v.lets_on for v in trial.verdicts)
