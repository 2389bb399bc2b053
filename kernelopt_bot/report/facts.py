"""Questions about a result that several parts of the report ask."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median

from kernelopt_bot.contract.candidate import KernelCandidate, Lever
from kernelopt_bot.device.profile import StepProfile
from kernelopt_bot.gates.model import Precision, precision_of
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


def precision(result: TargetResult) -> Precision | None:
    """Of the whole with all adopted pieces in it, as gate 3 measured it at confirmation."""
    found = (precision_of(v) for v in result.stitched if v.gate == "model")
    return next(found, None)


def replaced_names(result: TargetResult, trial: Trial) -> tuple[str, ...]:
    """Names of the kernels that a kernel candidate replaces; empty for options or without their program.

    On a CPU candidates are for the kernels of a pretended GPU: the result's own program has other steps.
    """
    candidate = trial.candidate
    if not isinstance(candidate, KernelCandidate) or result.program is None or result.program.lane == "cpu":
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


@dataclass(frozen=True)
class StepGroup:
    """Steps of one program that are the same call on the same sizes. Times are medians of one call alone."""

    name: str
    calls: int
    before_us: float | None
    after_us: float | None
    floor_us: float
    share: float | None
    """Of the sum of all steps' times; None where this one was not measured."""
    trial: Trial | None
    """What replaces them, if anything."""


def step_groups(result: TargetResult) -> tuple[StepGroup, ...]:
    """Those replaced first, so that what changed is never hidden by what didn't; then by what they can still save."""
    if result.profile is None:
        return ()
    by_step = dict(_replacements(result))
    total = sum((s.time_us or 0.0) * s.calls for s in result.profile.steps)
    found: dict[tuple[object, ...], list[StepProfile]] = {}
    for s in result.profile.steps:
        if s.kind in ("kernel", "vendor") or s.time_us is not None:
            trial = by_step.get((s.graph, s.step))
            key = (s.name, s.kind, s.bytes, s.flops, s.time_us is None, trial.candidate.id if trial else "")
            found.setdefault(key, []).append(s)
    groups = []
    for steps in found.values():
        trial = by_step.get((steps[0].graph, steps[0].step))
        times = [s.time_us for s in steps if s.time_us is not None]
        alone = median(times) if times else None
        before = alone if trial is None or trial.before_us is None else trial.before_us
        share = sum((s.time_us or 0.0) * s.calls for s in steps) / total if times and total > 0 else None
        group = StepGroup(
            steps[0].name,
            sum(s.calls for s in steps),
            before,
            trial.after_us if trial else None,
            median(s.floor_us for s in steps),
            share,
            trial,
        )
        groups.append((trial is None, -sum(s.savings_us * s.calls for s in steps), group))
    return tuple(g for *_, g in sorted(groups, key=lambda x: x[:2]))


def _replacements(result: TargetResult) -> Iterator[tuple[tuple[int, int], Trial]]:
    """(graph, step) -> the adopted trial that replaces it, equal runs of one step included."""
    for t in adopted(result):
        c = t.candidate
        if not isinstance(c, KernelCandidate):
            continue
        yield from (((c.graph, s), t) for s in c.steps)
        if result.program is not None and len(c.steps) == 1:
            yield from (((g.index, s.index), t) for g in result.program.graphs for s in g.steps if s.hash == c.run_hash)


def _passed(trial: Trial) -> int:
    return sum(v.lets_on for v in trial.verdicts)
