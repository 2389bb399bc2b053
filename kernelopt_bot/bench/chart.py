"""The chart of a benchmark: every problem's gain, sorted, a panel a level."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from kernelopt_bot.bench.record import SETS, Record
from kernelopt_bot.bench.store import Result
from kernelopt_bot.report.charts import Chart
from kernelopt_bot.report.svg import DARK, LIGHT, SETTINGS, as_svg

_SHOWN = (SETS[1], SETS[0])
"""In the order of drawing: where the two are one, the hollow marker lies around the full one."""
_TICKS = (0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0)
_WIDE_TICKS = (0.1, 0.2, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 10.0, 20.0, 50.0)
_WIDE = 4.0
"""Largest over smallest value from which on close ticks would touch."""
_COLOURS = {SETS[0]: "floor", SETS[1]: "after"}
_MARKERS = {SETS[0]: "D", SETS[1]: "o"}
_INCHES = (9.0, 3.6)


def chart(result: Result) -> Chart:
    """In light, dark and as text."""
    levels = [int(level) for level in result.summary["levels"]]
    title = "Gain over default torch.compile, each problem, sorted"
    said = "; ".join(
        f"level {level}: geometric mean {found['geomean'][SETS[1]]:.3f}x, {found['improved']} of {found['problems']} "
        "improved" for level, found in result.summary["levels"].items())
    light, dark = (_draw(result, levels, title, colours) for colours in (LIGHT, DARK))
    return Chart("kernelbench", light, dark, f"{title}. {said}", said)


def _draw(result: Result, levels: Sequence[int], title: str, colours: dict[str, str]) -> bytes:
    known = {r.key: r for r in result.records}
    with rc_context(SETTINGS):
        figure = Figure(figsize=_INCHES, facecolor=colours["paper"], layout="constrained")
        figure.suptitle(title, color=colours["ink"], x=0.01, ha="left", fontsize=11)
        panels = figure.subplots(1, len(levels), sharey=True, squeeze=False)[0]
        for level, axes in zip(levels, panels, strict=True):
            _panel(axes, level, [known.get(key) for key in result.problems if key[0] == level], colours)
        low, high = panels[0].get_ylim()
        ticks = _WIDE_TICKS if high / low > _WIDE else _TICKS
        panels[0].yaxis.set_major_locator(FixedLocator([t for t in ticks if low <= t <= high]))
        panels[0].yaxis.set_minor_locator(NullLocator())
        panels[0].yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}x"))
        panels[0].set_ylabel("baseline time / optimised time", color=colours["ink"])
        panels[-1].legend(loc="upper left", frameon=False, labelcolor=colours["ink"])
        return as_svg(figure)


def _panel(axes: Axes, level: int, found: Sequence[Record | None], colours: dict[str, str]) -> None:
    axes.set_facecolor(colours["paper"])
    axes.set_title(f"level {level}", color=colours["ink"], fontsize=10)
    axes.set_yscale("log")
    axes.axhline(1.0, color=colours["ink"], linewidth=1.0)
    for name in _SHOWN:
        gains = sorted(r.gain(name) if r is not None else 1.0 for r in found)
        hollow = name == SETS[0]
        axes.plot(range(1, len(gains) + 1), gains, label=name, linestyle="none", marker=_MARKERS[name],
                  color=colours[_COLOURS[name]], markersize=6 if hollow else 4,
                  markerfacecolor="none" if hollow else None)
    axes.tick_params(axis="both", which="both", colors=colours["ink"])
    axes.grid(axis="y", color=colours["faint"], linewidth=0.6)
    axes.set_xlabel("problems", color=colours["ink"])
    axes.set_axisbelow(True)
    axes.spines["bottom"].set_color(colours["faint"])
