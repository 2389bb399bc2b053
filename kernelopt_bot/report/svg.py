"""Drawing: the same input gives the same bytes, so that a report's charts change only when its figures do.

Drawing takes a tenth of a second; the last pictures are kept, since a run renders its report more than once.
matplotlib, which takes half a second to import, is imported by the first picture.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Blue, orange and grey of one lightness step each: told apart with every common colour deficiency, and in grey.
LIGHT = {
    "ink": "#1f2328",
    "faint": "#d1d9e0",
    "paper": "#ffffff",
    "before": "#8c959f",
    "after": "#0969da",
    "floor": "#bc4c00",
}
DARK = {
    "ink": "#e6edf3",
    "faint": "#3d444d",
    "paper": "#0d1117",
    "before": "#6e7681",
    "after": "#58a6ff",
    "floor": "#ffa657",
}
_LEGEND_INCHES = 0.45
"""From the axes down to the legend: room for the ticks and the unit."""
SETTINGS: Any = {
    "svg.hashsalt": "kernelopt",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 10.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.spines.left": False,
}


@dataclass(frozen=True)
class Point:
    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Bar:
    """One step's times in microseconds; `after` is None where the step stayed as it was."""

    label: str
    before: float
    after: float | None
    floor: float


@functools.lru_cache(maxsize=64)
def draw_intervals(title: str, unit: str, points: tuple[Point, ...], *, dark: bool) -> bytes:
    """A row a point with its interval, and a line where nothing changes (1.0)."""
    colours = DARK if dark else LIGHT
    with _figure(title, unit, len(points) * 0.42, colours) as (figure, axes):
        axes.axvline(1.0, color=colours["ink"], linewidth=1.0)
        for row, p in enumerate(points):
            noise = p.label.startswith("A/A")
            colour = colours["before" if noise else "after"]
            axes.plot([p.low, p.high], [row, row], color=colour, linewidth=3, solid_capstyle="butt")
            axes.plot([p.value], [row], marker="o", color=colour, markersize=7)
            axes.annotate(
                f"{p.value:.3f}x  [{p.low:.3f}, {p.high:.3f}]",
                (p.high, row),
                xytext=(8, 0),
                textcoords="offset points",
                va="center",
                color=colours["ink"],
                parse_math=False,
            )
        _rows(axes, [p.label for p in points], colours)
        low, high = min(1.0, *(p.low for p in points)), max(1.0, *(p.high for p in points))
        space = max(high - low, 0.02)
        axes.set_xlim(low - 0.06 * space, high + 0.36 * space)
        return as_svg(figure)


@functools.lru_cache(maxsize=64)
def draw_bars(title: str, unit: str, bars: tuple[Bar, ...], *, dark: bool) -> bytes:
    """Three thin bars a step: before, after (where it changed) and the floor."""
    from matplotlib.patches import Patch

    colours = DARK if dark else LIGHT
    with _figure(title, unit, len(bars) * 0.72, colours) as (figure, axes):
        for row, b in enumerate(bars):
            for offset, kind, value in ((-0.25, "before", b.before), (0.0, "after", b.after), (0.25, "floor", b.floor)):
                if value is not None:
                    axes.barh(row + offset, value, height=0.22, color=colours[kind], label=kind if row == 0 else None)
                    axes.annotate(
                        f"{value:.4g}",
                        (value, row + offset),
                        xytext=(4, 0),
                        textcoords="offset points",
                        va="center",
                        fontsize=8,
                        color=colours["ink"],
                    )
        _rows(axes, [b.label for b in bars], colours)
        axes.set_xlim(0, 1.12 * max([max(b.before, b.after or 0.0, b.floor) for b in bars]) or 1.0)
        kinds = [k for k in ("before", "after", "floor") if k != "after" or any(b.after is not None for b in bars)]
        handles = [Patch(color=colours[k], label=k) for k in kinds]
        axes.legend(
            handles=handles,
            loc="upper center",
            bbox_to_anchor=(0.5, -_LEGEND_INCHES / (figure.get_figheight() * axes.get_position().height)),
            ncols=len(kinds),
            frameon=False,
            labelcolor=colours["ink"],
        )
        return as_svg(figure)


@contextmanager
def _figure(title: str, unit: str, height: float, colours: dict[str, str]) -> Iterator[tuple[Figure, Axes]]:
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context(SETTINGS):
        figure = Figure(figsize=(8.0, 1.2 + height), facecolor=colours["paper"])
        axes = figure.add_subplot()
        axes.set_facecolor(colours["paper"])
        axes.set_title(title, color=colours["ink"], loc="left", fontsize=11, parse_math=False)
        axes.set_xlabel(unit, color=colours["ink"])
        axes.tick_params(axis="x", colors=colours["ink"])
        axes.grid(axis="x", color=colours["faint"], linewidth=0.6)
        axes.set_axisbelow(True)
        axes.spines["bottom"].set_color(colours["faint"])
        yield figure, axes


def _rows(axes: Axes, labels: Sequence[str], colours: dict[str, str]) -> None:
    axes.set_yticks(range(len(labels)), labels, parse_math=False)
    axes.tick_params(axis="y", colors=colours["ink"], length=0)
    axes.set_ylim(len(labels) - 0.4, -0.6)


def as_svg(figure: Figure) -> bytes:
    """Without date and version, so that equal figures have equal bytes. To be called within `SETTINGS`."""
    out = io.BytesIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None, "Creator": None})
    return out.getvalue()
