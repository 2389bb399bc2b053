"""Where a target's steps lie below the device's roofs, and where the best candidates moved them.

The roofline model: S. Williams, A. Waterman, D. Patterson, Roofline: an insightful visual performance model for
multicore architectures, CACM 52(4), 2009. Steps whose operations are counted (vendor calls) lie at their arithmetic
intensity; for generated kernels only bytes are known, so they lie at the bandwidth that they achieve, over the bytes
that they move.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Roofs, StepProfile
from kernelopt_bot.report.svg import DARK, LIGHT, SETTINGS, as_svg
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.trace.facts import TargetTrace

LABELS = 6
"""Steps that are named, those that take longest."""


@dataclass(frozen=True)
class Mark:
    """Steps of one size: `x` in megabytes or in operations a byte, `y` in GB/s or Gflop/s by their median time; `after`
    what the best candidate reached; `time_us` of all of them in one call of the program."""

    label: str
    x: float
    y: float
    time_us: float
    after: float | None = None


def bandwidths(target: TargetTrace) -> tuple[Mark, ...]:
    """Of steps whose operations are not counted, in GB/s over megabytes; those of one size in one mark."""
    best = _best(target)
    groups: dict[int, list[StepProfile]] = defaultdict(list)
    for s in _measured(target):
        if not s.flops and s.bytes:
            groups[s.bytes].append(s)
    marks = []
    for size, steps in groups.items():
        reached = [best[s.graph, s.step] for s in steps if (s.graph, s.step) in best]
        marks.append(_mark(steps, size / 1e6, size, _rate(size, min(reached)) if reached else None))
    return tuple(marks)


def intensities(target: TargetTrace) -> tuple[Mark, ...]:
    """Of steps whose operations are counted, in Gflop/s over operations a byte; those of one size in one mark."""
    groups: dict[tuple[int, int], list[StepProfile]] = defaultdict(list)
    for s in _measured(target):
        if s.flops and s.bytes:
            groups[s.bytes, s.flops].append(s)
    return tuple(_mark(steps, flops / size, flops) for (size, flops), steps in groups.items())


def _mark(steps: Sequence[StepProfile], x: float, count: int, after: float | None = None) -> Mark:
    times = [s.time_us or 0.0 for s in steps]
    calls = sum(s.calls for s in steps)
    label = shorten(one_line(steps[0].name), 30) + (f" ({calls}x)" if calls > 1 else "")
    total = sum((s.time_us or 0.0) * s.calls for s in steps)
    return Mark(label, x, _rate(count, median(times)), total, after)


def draw(target: TargetTrace, *, dark: bool) -> bytes | None:
    """SVG of one or two panels; None where no step was timed."""
    if target.result is None or target.result.profile is None:
        return None
    kernels, vendor = bandwidths(target), intensities(target)
    roofs = target.result.profile.roofs
    panels = [p for p in (kernels, vendor) if p]
    if not panels:
        return None
    colours = DARK if dark else LIGHT
    with rc_context(SETTINGS):
        figure = Figure(figsize=(5.4 * len(panels), 3.9), facecolor=colours["paper"])
        axes = figure.subplots(1, len(panels), squeeze=False)[0]
        for axis, marks in zip(axes, panels, strict=True):
            _frame(axis, colours)
            if marks is kernels:
                _bandwidth_panel(axis, marks, roofs, colours)
            else:
                _intensity_panel(axis, marks, roofs, colours)
        figure.tight_layout(w_pad=3.0)
        return as_svg(figure)


def _bandwidth_panel(axis: Axes, marks: Sequence[Mark], roofs: Roofs, colours: dict[str, str]) -> None:
    axis.set_title("Generated kernels", color=colours["ink"], loc="left", fontsize=11)
    axis.set_xlabel("megabytes, each read and written once", color=colours["ink"])
    axis.set_ylabel("GB/s", color=colours["ink"])
    roof = roofs.copy_bytes_per_s / 1e9
    axis.axhline(roof, color=colours["floor"], linewidth=1.2)
    _roof_label(axis, roof, f"copies, {roofs.source}: {roof:.4g} GB/s", colours)
    if roofs.peak_bytes_per_s:
        axis.axhline(roofs.peak_bytes_per_s / 1e9, color=colours["floor"], linewidth=0.8, linestyle=":")
    _marks(axis, marks, colours, roof)


def _intensity_panel(axis: Axes, marks: Sequence[Mark], roofs: Roofs, colours: dict[str, str]) -> None:
    axis.set_title("Vendor calls", color=colours["ink"], loc="left", fontsize=11)
    axis.set_xlabel("operations a byte", color=colours["ink"])
    axis.set_ylabel("Gflop/s", color=colours["ink"])
    bandwidth = roofs.copy_bytes_per_s / 1e9
    top = max(roofs.matrix_flops_per_s.values(), default=0.0) / 1e9
    low = min(m.x for m in marks) / 4
    high = max(max(m.x for m in marks), top / bandwidth if bandwidth else 1.0) * 4
    for dtype, rate in sorted(roofs.matrix_flops_per_s.items()):
        ridge = rate / roofs.copy_bytes_per_s
        axis.plot([low, ridge, high], [low * bandwidth, rate / 1e9, rate / 1e9], color=colours["floor"], linewidth=1.2)
        _roof_label(axis, rate / 1e9, f"{dtype}, {roofs.source}", colours)
    _marks(axis, marks, colours, top or max(m.y for m in marks))
    axis.set_xlim(low, high)


def _marks(axis: Axes, marks: Sequence[Mark], colours: dict[str, str], roof: float) -> None:
    axis.set_xscale("log")
    axis.set_yscale("log")
    values = [y for m in marks for y in (m.y, m.after or m.y)]
    decades = math.log10(max(*values, roof) / min(values))
    for side, digits in ((axis.yaxis, (1.0, 2.0, 5.0) if decades < 3 else (1.0,)), (axis.xaxis, (1.0,))):
        side.set_major_locator(LogLocator(subs=digits))
        side.set_minor_locator(NullLocator())
        side.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.15g}"))
    for m in marks:
        size = 20 + 140 * m.time_us / max(x.time_us for x in marks)
        axis.scatter([m.x], [m.y], s=size, color=colours["before"], alpha=0.85, linewidths=0, zorder=3)
        if m.after is not None:
            axis.annotate("", (m.x, m.after), (m.x, m.y), zorder=4,
                          arrowprops={"arrowstyle": "->", "color": colours["after"], "linewidth": 1.6})
            axis.scatter([m.x], [m.after], s=size, color=colours["after"], linewidths=0, zorder=5)
    named: list[Mark] = []
    for m in sorted(marks, key=lambda m: -m.time_us):
        # Names that would lie on each other are left to the report's table.
        if len(named) < LABELS and not any(_near(m, other) for other in named):
            named.append(m)
            axis.annotate(m.label, (m.x, m.y), xytext=(8, -10), textcoords="offset points", fontsize=7,
                          color=colours["ink"], parse_math=False)
    axis.set_ylim(min(values) / 3, max(*values, roof) * 2.5)
    # Room for the names on the right.
    axis.set_xlim(min(m.x for m in marks) / 3, max(m.x for m in marks) * 30)


def _near(one: Mark, other: Mark) -> bool:
    return abs(math.log10(one.y / other.y)) < 0.12 and abs(math.log10(one.x / other.x)) < 1.2


def _roof_label(axis: Axes, y: float, text: str, colours: dict[str, str]) -> None:
    axis.annotate(text, (0.99, y), xycoords=("axes fraction", "data"), xytext=(0, 3), textcoords="offset points",
                  ha="right", fontsize=7, color=colours["floor"], parse_math=False)


def _frame(axis: Axes, colours: dict[str, str]) -> None:
    axis.set_facecolor(colours["paper"])
    axis.tick_params(colors=colours["ink"], which="both", labelsize=8)
    axis.grid(color=colours["faint"], linewidth=0.6)
    axis.set_axisbelow(True)
    axis.spines["bottom"].set_color(colours["faint"])


def _measured(target: TargetTrace) -> Sequence[StepProfile]:
    result = target.result
    return [] if result is None or result.profile is None else [s for s in result.profile.steps if s.time_us]


def _best(target: TargetTrace) -> dict[tuple[int, int], float]:
    """(graph, step) -> least time in microseconds of a candidate for that step alone that no gate stopped."""
    if target.result is None or target.result.environment.get("lane") == "cpu":
        return {}
    best: dict[tuple[int, int], float] = {}
    for node, _ in target.walk():
        c, after = node.trial.candidate, node.trial.after_us
        if isinstance(c, KernelCandidate) and len(c.steps) == 1 and after and node.fate in ("adopted", "passed over"):
            place = (c.graph, c.steps[0])
            best[place] = min(best.get(place, after), after)
    return best


def _rate(count: float, time_us: float | None) -> float:
    """Billions a second."""
    return count / (time_us or 1.0) / 1e3
