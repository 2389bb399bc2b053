"""Charts of one result, as SVG in a light and a dark variant and as text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.facts import BASELINES, step_groups
from kernelopt_bot.report.svg import Bar, Point, draw_bars, draw_intervals
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.search.result import Comparison, Noise, TargetResult

_STEPS = 8
_WIDTH = 44
_INTERVAL_WIDTH = 24
"""With the labels and the figures beside it, the whole fits a terminal of 80 columns."""


@dataclass(frozen=True)
class Chart:
    name: str
    light: bytes
    dark: bytes
    alternative: str
    text: str


def charts(result: TargetResult) -> tuple[Chart, ...]:
    """Those for which there are figures: gain against each baseline, and the steps before, after and at their floor."""
    return tuple(c for c in (_gain(result), _kernels(result)) if c is not None)


def gain_chart(against: Sequence[Comparison], headline: Comparison, noise: Noise | None) -> Chart | None:
    """A row a baseline, of those compared in the headline's way, and a row for the noise; None if there are none."""
    how = (headline.metric, headline.cache)
    shown = sorted((c for c in against if (c.metric, c.cache) == how), key=lambda c: _rank(c.baseline))
    points = [Point(f"against {one_line(c.baseline)}", c.speedup, c.low, c.high) for c in shown]
    if not points:
        return None
    if noise is not None:
        points.append(Point("A/A (noise)", noise.speedup, noise.low, noise.high))
    title = f"Gain with 95% interval ({n.conditions(headline)})"
    said = "; ".join(f"{p.label}: {n.ratio(p.value)} ({n.interval(p.low, p.high)})" for p in points)
    light, dark = (
        draw_intervals(title, "baseline time / optimised time", tuple(points), dark=d) for d in (False, True)
    )
    return Chart("gain", light, dark, f"{title}. {said}", _intervals_as_text(title, points))


def _gain(r: TargetResult) -> Chart | None:
    return None if r.headline is None else gain_chart(r.against, r.headline, r.noise)


def _kernels(r: TargetResult) -> Chart | None:
    bars = list(_bars(r))
    if not bars:
        return None
    title = "Device time of each step alone, µs (median)"
    said = "; ".join(f"{b.label}: {_values(b)}" for b in bars)
    light, dark = (draw_bars(title, "µs", tuple(bars), dark=d) for d in (False, True))
    return Chart("kernels", light, dark, f"{title}. {said}", _bars_as_text(title, bars))


def _bars(r: TargetResult) -> Iterator[Bar]:
    measured = [g for g in step_groups(r) if g.before_us is not None]
    for g in measured[:_STEPS]:
        times = f" ({g.calls}x)" if g.calls > 1 else ""
        yield Bar(f"{shorten(one_line(g.name), 40)}{times}", g.before_us or 0.0, g.after_us, g.floor_us)


def _values(b: Bar) -> str:
    after = f", after {n.microseconds(b.after)}" if b.after is not None else ""
    return f"before {n.microseconds(b.before)}{after}, floor {n.microseconds(b.floor)}"


def _intervals_as_text(title: str, points: list[Point]) -> str:
    low, high = min(1.0, *(p.low for p in points)), max(1.0, *(p.high for p in points))
    span = (high - low) or 1.0

    def at(value: float) -> int:
        return min(_INTERVAL_WIDTH - 1, max(0, round((value - low) / span * (_INTERVAL_WIDTH - 1))))

    label = max(len(p.label) for p in points)
    lines = [title]
    for p in points:
        row = [" "] * _INTERVAL_WIDTH
        row[at(1.0)] = "│"
        row[at(p.low) : at(p.high) + 1] = "─" * (at(p.high) - at(p.low) + 1)
        row[at(p.value)] = "●"
        lines.append(f"{p.label:<{label}}  {''.join(row)}  {n.ratio(p.value)} ({n.interval(p.low, p.high)})")
    lines.append(f"{'':<{label}}  {' ' * at(1.0)}│ 1.000x: no change")
    return "\n".join(lines)


def _bars_as_text(title: str, bars: list[Bar]) -> str:
    longest = max([max(b.before, b.after or 0.0, b.floor) for b in bars]) or 1.0
    lines = [title]
    for b in bars:
        lines.append(b.label)
        for name, value in (("before", b.before), ("after", b.after), ("floor", b.floor)):
            if value is not None:
                lines.append(f"  {name:<6} {'█' * max(1, round(value / longest * _WIDTH))} {n.microseconds(value)}")
    return "\n".join(lines)


def _rank(name: str) -> int:
    return BASELINES.index(name) if name in BASELINES else len(BASELINES)
