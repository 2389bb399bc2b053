"""How figures are written. Every gain comes with its interval; every time with its unit."""

from __future__ import annotations

import math

from kernelopt_bot.search.result import Comparison, Noise


def ratio(value: float) -> str:
    """`1.214x`; three digits after the point, as many as a few dozen pairs can support."""
    return f"{value:.3f}x" if math.isfinite(value) else "not finite"


def interval(low: float, high: float) -> str:
    return f"{ratio(low)} to {ratio(high)}"


def gain(c: Comparison | Noise) -> str:
    """`1.214x (95% interval 1.180x to 1.240x)`."""
    return f"{ratio(c.speedup)} (95% interval {interval(c.low, c.high)})"


def milliseconds(value: float) -> str:
    return f"{significant(value)} ms"


def microseconds(value: float | None) -> str:
    """`25.73 µs`; a floor of a few bytes is below anything that a timer sees."""
    if value is None:
        return "not measured"
    return "under 0.01 µs" if 0 < value < 0.01 else f"{significant(value)} µs"


def seconds(value: float) -> str:
    return f"{significant(value, 3)} s"


def percent(value: float) -> str:
    return f"{100 * value:.1f}%" if math.isfinite(value) else "not finite"


def size(count: int) -> str:
    """Bytes in binary units: `12.4 MiB`."""
    value, unit = float(count), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if abs(value) < 1024:
            break
        value, unit = value / 1024, larger
    return f"{count} B" if unit == "B" else f"{value:.1f} {unit}"


def significant(value: float, digits: int = 4) -> str:
    """`digits` significant digits, never in exponent form for what a timer can measure."""
    if not math.isfinite(value):
        return "not finite"
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if not -6 <= magnitude <= 9:
        return f"{value:.{digits - 1}e}"
    return f"{round(value, digits - 1 - magnitude):.{max(0, digits - 1 - magnitude)}f}"


def conditions(c: Comparison) -> str:
    """`latency, cold cache`: the metric and the cache state, always named together."""
    return f"{c.metric}, {c.cache} cache"
