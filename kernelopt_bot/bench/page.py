"""The page of a benchmark, from its result alone. Problems are named by their number; nothing of them is copied."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kernelopt_bot.bench.chart import chart
from kernelopt_bot.bench.record import BEST, SETS, Record
from kernelopt_bot.bench.store import Result
from kernelopt_bot.report import escape
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.report.write import write_whole

ARMS = ("eager", "default", "reduce-overhead", "max-autotune", "candidate")
_TECHNIQUE = 60
_REASON = 220


def write_page(result: Result, page: Path, *, source: str) -> tuple[Path, ...]:
    """The page and its two pictures; `source` is where the page finds the result's file.

    Raises InputError, Unavailable.
    """
    drawn = chart(result)
    pictures = {f"pictures/{drawn.name}-light.svg": drawn.light, f"pictures/{drawn.name}-dark.svg": drawn.dark}
    text = markdown(result, source=source, pictures=tuple(pictures), alternative=drawn.alternative)
    written = [write_whole(page.parent / name, content) for name, content in pictures.items()]
    return (write_whole(page, text.encode()), *written)


def markdown(result: Result, *, source: str, pictures: tuple[str, ...], alternative: str) -> str:
    """Equal results give equal text."""
    known = {r.key: r for r in result.records}
    levels = [{"level": int(level), "found": found, "rows": list(_rows(int(level), result, known)),
               "reasons": list(_reasons(int(level), known))} for level, found in result.summary["levels"].items()]
    return environment("bench").get_template("kernelbench.md.j2").render(
        result=result, levels=levels, sets=SETS, best=BEST, arms=ARMS, source=source, pictures=pictures,
        alternative=alternative, cell=_cell, share=_share, seconds=_seconds,
        date=max((r.date for r in result.records), default="")[:10],
        together=max((r.settings.get("together", 1) for r in result.records), default=1),
        metrics=sorted({f"{r.metric}, {r.cache} cache" for r in result.records if r.metric}),
        levers=sorted({", ".join(r.settings["levers"]) for r in result.records}),
        budgets={level["level"]: sorted({r.settings["search_s"] for r in result.records if r.level == level["level"]})
                 for level in levels})


def _rows(level: int, result: Result, known: dict[tuple[int, int], Record]) -> Iterator[tuple[str, ...]]:
    for key in result.problems:
        if key[0] != level:
            continue
        record = known.get(key)
        if record is None:
            yield (str(key[1]), "not run", *[""] * (len(ARMS) + len(SETS) + 3))
            continue
        times = [n.significant(record.times_us[arm]) if arm in record.times_us else "" for arm in ARMS]
        gains = [_gain(record, name) for name in (*SETS, BEST)]
        pieces = ", ".join(escape.code_span(shorten(str(p["technique"]), _TECHNIQUE), in_table=True)
                           for p in _distinct(record))
        yield (str(key[1]), record.status.replace("_", " "), *times, *gains, pieces, _seconds(record.search_s))


def _gain(record: Record, name: str) -> str:
    found = record.gains.get(name)
    return "" if found is None else f"{found.speedup:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _distinct(record: Record) -> list[Any]:
    return list({p["technique"]: p for p in record.pieces}.values())


def _reasons(level: int, known: dict[tuple[int, int], Record]) -> Iterator[str]:
    for key, record in sorted(known.items()):
        why = record.error or record.note
        if key[0] == level and why:
            yield f"{key[1]}: {escape.text(shorten(one_line(why), _REASON))}"


def _cell(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}x"


def _share(value: float | None) -> str:
    return "" if value is None else f"{value:.0%}"


def _seconds(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"
