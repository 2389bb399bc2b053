"""What is seen of a run, as Markdown within GitHub's limits. Everything here is pure."""

from __future__ import annotations

from collections.abc import Callable

from kernelopt_bot import __version__
from kernelopt_bot.publish.seen import Seen
from kernelopt_bot.publish.words import Markdown, link, pull_link, render
from kernelopt_bot.report import escape
from kernelopt_bot.report import numbers as n
from kernelopt_bot.report.markdown import BODY_LIMIT
from kernelopt_bot.report.summary import TargetSummary

CHECK_LIMIT = 65_535
"""Bytes that we send as a check's summary or text; GitHub counts 65,535 characters."""
SUMMARY_LIMIT = 256 * 1024
"""Bytes of our part of a step's summary, which holds 1 MiB."""
COMMENT_MARKER = Markdown("<!-- kernelopt:comment -->")
_MOST_ROWS = 100
_CUT = "\n\n*The rest did not fit here. `report.json` and `report.md` of the run hold all of it.*\n"


def comment(seen: Seen) -> str:
    """The sticky comment, marker first."""
    return fitting(lambda rows: _rendered("comment.md.j2", seen, rows, marker=COMMENT_MARKER), BODY_LIMIT)


def check(seen: Seen) -> tuple[str, str]:
    """Summary and text of the check run; the text is '' where there is nothing more to say."""
    return (
        fitting(lambda rows: _rendered("check.md.j2", seen, rows), CHECK_LIMIT),
        fitting(lambda rows: _rendered("check_text.md.j2", seen, rows), CHECK_LIMIT).lstrip("\n"),
    )


def summary(seen: Seen, limit: int = SUMMARY_LIMIT) -> str:
    """The job's summary, in every state; at most `limit` bytes."""
    return fitting(lambda rows: _rendered("summary.md.j2", seen, rows), limit)


def fitting(made: Callable[[int], str], limit: int) -> str:
    """`made(rows)` with as many rows of each table as fit into `limit` bytes of UTF-8; if none do, it is cut off.

    The reader is told. A cut inside a fence or a folded part would swallow the words that say so: both are closed.
    """
    rows = _MOST_ROWS
    text = made(rows)
    while len(text.encode()) > limit and rows > 1:
        rows //= 2
        text = made(rows)
    if len(text.encode()) <= limit:
        return text
    kept = text.encode()[: limit - len(_CUT.encode()) - 32].decode(errors="ignore").rpartition("\n")[0]
    open_fence = ""
    for line in kept.splitlines():
        run = line[: len(line) - len(line.lstrip("`"))]
        if len(run) >= 3 and (not open_fence or line == open_fence):
            open_fence = "" if open_fence else run
    kept += f"\n{open_fence}" if len(open_fence) <= 16 else ""
    kept += "\n\n</details>" * (kept.count("\n<details>\n") > kept.count("\n</details>\n"))
    return kept + _CUT


def stops(t: TargetSummary) -> str:
    """`1 adopted, 3 stopped by the static gate, 10 outdone ...`: how the candidates that were recorded ended."""
    parts = [f"{t.adopted} adopted"] * bool(t.adopted)
    parts += [f"{count} stopped by the {gate} gate" for gate, count in t.stopped.items()]
    return ", ".join(parts + [f"{t.passed_over} gained too little, or less than another"] * bool(t.passed_over))


def _rendered(template: str, seen: Seen, rows: int, **more: object) -> str:
    return render(
        template,
        seen=seen,
        rows=rows,
        footer=_footer(seen),
        ratio=n.ratio,
        interval=interval,
        milliseconds=lambda x: unbroken(n.milliseconds(x)),
        conditions=n.conditions,
        stops=stops,
        pull_link=pull_link,
        **more,
    )


def unbroken(figure: str) -> Markdown:
    """A figure of ours that no narrow table breaks in two."""
    return Markdown(figure.replace(" ", "\u00a0"))


def interval(low: float, high: float) -> Markdown:
    return unbroken(n.interval(low, high))


def _footer(seen: Seen) -> Markdown:
    environments = sorted({t.environment for t in seen.run.targets if t.environment}) if seen.run else []
    parts = [
        f"Commit {escape.code_span(seen.head_sha[:12])}" if seen.head_sha else "",
        *map(escape.text, environments[:2]),
        f"{n.seconds(seen.run.wall_s)} of search" if seen.run and seen.run.wall_s else "",
        link("workflow run", seen.run_url) if seen.run_url else "",
        f"KernelOPT {__version__}",
        "`/kernelopt help`",
    ]
    return Markdown(" · ".join(p for p in parts if p))
