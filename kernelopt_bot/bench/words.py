"""A benchmark on the terminal: a line a record, a table at the end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kernelopt_bot.bench.record import BEST, SETS, Record
from kernelopt_bot.process import redact


def line(record: Record) -> str:
    """`level 1, 19: measured, +launch 1.204x [1.180, 1.221], 74 s`."""
    gain = record.gains.get("+launch")
    figures = "nothing adopted" if gain is None else f"{gain.speedup:.3f}x [{gain.low:.3f}, {gain.high:.3f}]"
    what = figures if record.status == "measured" else record.error
    spent = f", {record.total_s:.0f} s" if record.total_s is not None else ""
    return redact(f"level {record.level}, {record.number}: {record.status}, {what}{spent}")


def table(summary: Mapping[str, Any]) -> str:
    """Geometric means and counts, a line a level."""
    lines = [f"{'level':<6}" + "".join(f"{name:>17}" for name in (*SETS, BEST)) + "  improved  coverage  captured"]
    for level, found in summary["levels"].items():
        means = "".join(f"{found['geomean'][name]:>16.3f}x" for name in (*SETS, BEST))
        share = "" if found["captured"] is None else f"{found['captured']:.0%}"
        lines.append(f"{level:<6}{means}  {found['improved']:>3} of {found['problems']:<3}"
                     f"{found['coverage']:>7.0%}{share:>10}")
    return "\n".join(lines)
