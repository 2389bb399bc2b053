"""The report's tables, each from one result. A table without rows is left out by whoever asks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from kernelopt_bot.gates.verdict import GATES
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.blocks import Column, Line, Mono, Strong, Table
from kernelopt_bot.report.facts import BASELINES, adopted, furthest, replaced_names, step_groups, tallies, tried
from kernelopt_bot.report.text import shorten
from kernelopt_bot.search.result import Comparison, FirstCall, RunResult, TargetResult
from kernelopt_bot.targets.triton_kernels import TritonTarget

_REASON_LIMIT = 300
_KERNEL_ROWS = 15
_REJECTED_ROWS = 20


def right(*titles: str) -> tuple[Column, ...]:
    return tuple(Column(t, "right") for t in titles)


def overview(run: RunResult) -> Table:
    """One row a target: gain, interval and against what, or why there is none."""
    columns = (
        Column("target"),
        *right("gain", "95% interval"),
        Column("against"),
        Column("note"),
        *right("before", "after", "tried"),
    )
    rows: list[tuple[Line, ...]] = []
    for r in run.results:
        c = r.headline if adopted(r) else None
        name: Line = (Mono(r.target.name),)
        if c is None:
            why = shorten(r.error.splitlines()[0], 120) if r.error else "nothing adopted"
            rows.append((name, (), (), (), (why,), (), (), (str(tried(r)),)))
        else:
            rows.append(
                (
                    name,
                    (Strong(n.ratio(c.speedup)),),
                    (n.interval(c.low, c.high),),
                    (Mono(c.baseline),),
                    (n.conditions(c),),
                    (n.milliseconds(c.baseline_ms),),
                    (n.milliseconds(c.candidate_ms),),
                    (str(tried(r)),),
                )
            )
    return Table(columns, tuple(rows))


def baselines(result: TargetResult) -> Table:
    """Against each baseline, in the fixed order first; those not measured with their reason; A/A last."""
    columns = (
        Column("baseline"),
        *right("gain", "95% interval", "baseline", "optimised", "pairs"),
        Column("measured as"),
    )
    known = sorted(result.against, key=lambda c: (_rank(c.baseline), c.baseline, c.metric, c.cache))
    rows: list[tuple[Line, ...]] = [
        (
            (Mono(c.baseline),),
            (n.ratio(c.speedup),),
            (n.interval(c.low, c.high),),
            (n.milliseconds(c.baseline_ms),),
            (n.milliseconds(c.candidate_ms),),
            (str(c.pairs),),
            (n.conditions(c),),
        )
        for c in known
    ]
    for name, reason in sorted(result.not_applicable.items(), key=lambda item: (_rank(item[0]), item[0])):
        why = f"not measured: {shorten(reason, _REASON_LIMIT)}"
        rows.append(((Mono(name),), (), (), (), (), (), (why,)))
    if rows and result.noise is not None:
        a = result.noise
        rows.append(
            (
                ("A/A (baseline against itself)",),
                (n.ratio(a.speedup),),
                (n.interval(a.low, a.high),),
                (),
                (),
                (str(a.pairs),),
                ("noise of this machine",),
            )
        )
    return Table(columns, tuple(rows))


def levers(result: TargetResult) -> Table:
    columns = (
        Column("lever"),
        *right("adopted", "gain", "95% interval", "before", "after"),
        Column("note"),
    )
    return Table(
        columns,
        tuple(
            ((Mono(g.lever),), (str(g.adopted),), *_gain_cells(g.comparison), (_measured(g.comparison, g.reason),))
            for g in result.levers
        ),
    )


def kernels(result: TargetResult) -> Table:
    """Equal steps in one row, by what they could save: before, after, floor and share of the steps' time."""
    columns = (
        Column("step"),
        *right("calls", "before", "after", "floor", "before / floor", "share"),
        Column("replaced by"),
    )
    groups = step_groups(result)
    rows: list[tuple[Line, ...]] = [
        (
            (Mono(shorten(g.name, 80)),),
            (str(g.calls),),
            (n.microseconds(g.before_us),),
            (n.microseconds(g.after_us) if g.trial is not None else "unchanged",),
            (n.microseconds(g.floor_us),),
            (f"{g.before_us / g.floor_us:.2f}" if g.before_us is not None and g.floor_us > 0 else "",),
            (n.percent(g.share) if g.share is not None else "not measured",),
            (Mono(g.trial.candidate.technique),) if g.trial is not None else (),
        )
        for g in groups[:_KERNEL_ROWS]
    ]
    return Table(columns, tuple(rows), cut=max(0, len(groups) - _KERNEL_ROWS))


def tried_by_gate(result: TargetResult) -> Table:
    columns = (Column("lever"), *right("tried", *(f"stopped by {g}" for g in GATES), "passed, not used", "adopted"))
    return Table(
        columns,
        tuple(
            (
                (Mono(t.lever),),
                (str(t.tried),),
                *((str(t.stopped[g]),) for g in GATES),
                (str(t.passed_over),),
                (str(t.adopted),),
            )
            for t in tallies(result)
        ),
    )


def rejected(result: TargetResult) -> Table:
    """Those that came furthest and were not adopted, with the gate's own words."""
    columns = (
        Column("candidate"),
        Column("lever"),
        Column("technique"),
        Column("replaces"),
        Column("stopped by"),
        Column("why"),
    )
    trials = furthest(result.trials)
    rows: list[tuple[Line, ...]] = []
    configured = isinstance(result.target, TritonTarget)
    for t in trials[:_REJECTED_ROWS]:
        stop = t.stopped_by
        why = (stop.reason if stop is not None else "") or t.note or "passed, not used"
        ended = f"{stop.gate} ({stop.status.value})" if stop is not None else "no gate"
        names = ", ".join(replaced_names(result, t))
        rows.append(
            (
                (Mono(t.candidate.id),),
                (Mono(t.candidate.lever),),
                (Mono(t.candidate.technique), f": {t.candidate.rationale}" if configured else ""),
                (Mono(shorten(names, 100)),) if names else (),
                (ended,),
                (shorten(why, _REASON_LIMIT),),
            )
        )
    return Table(columns, tuple(rows), cut=max(0, len(trials) - _REJECTED_ROWS))


def first_call(f: FirstCall) -> Table:
    return Table(
        (Column("caches"), *right("optimised", "default torch.compile")),
        (
            (("cold",), (n.seconds(f.cold_s),), (n.seconds(f.baseline_cold_s),)),
            (("warm",), (n.seconds(f.warm_s),), (n.seconds(f.baseline_warm_s),)),
        ),
    )


def memory(result: TargetResult) -> Table:
    return Table(
        (Column("arm"), *right("peak memory")),
        tuple(((Mono(arm),), (n.size(b),)) for arm, b in sorted(result.peak_memory.items())),
    )


def pairs(items: Iterable[tuple[str, object]], *titles: str) -> Table:
    """A table of two columns; the values are shown as code."""
    return Table(tuple(Column(t) for t in titles), tuple(((k,), (Mono(shorten(str(v), 400)),)) for k, v in items))


def flat(values: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, object]]:
    """Nested mappings as one list, `gpu.name`; what is empty is left out."""
    for key, value in sorted(values.items(), key=lambda item: str(item[0])):
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        elif value is not None and value != "":
            yield f"{prefix}{key}", value


def _rank(name: str) -> int:
    return BASELINES.index(name) if name in BASELINES else len(BASELINES)


def _gain_cells(c: Comparison | None) -> tuple[Line, Line, Line, Line]:
    if c is None:
        return (), (), (), ()
    return (
        (n.ratio(c.speedup),),
        (n.interval(c.low, c.high),),
        (n.milliseconds(c.baseline_ms),),
        (n.milliseconds(c.candidate_ms),),
    )


def _measured(c: Comparison | None, reason: str) -> str:
    how = f"{n.conditions(c)}, {c.pairs} pairs" if c is not None else ""
    return "; ".join(part for part in (how, shorten(reason, _REASON_LIMIT)) if part) or "nothing adopted"
