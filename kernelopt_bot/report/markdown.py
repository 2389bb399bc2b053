"""The report as GitHub-flavoured Markdown."""

from __future__ import annotations

from collections.abc import Callable
from urllib.parse import quote

from kernelopt_bot.gates.verdict import GATES, Verdict
from kernelopt_bot.report import escape
from kernelopt_bot.report.blocks import (
    Block,
    Bullets,
    Code,
    Column,
    Details,
    Heading,
    Line,
    Mono,
    Notice,
    Paragraph,
    Picture,
    Report,
    Strong,
    Table,
    Verdicts,
)
from kernelopt_bot.report.limit import fit
from kernelopt_bot.report.text import shorten

BODY_LIMIT = 58_000
"""Characters; GitHub takes 65,536 in a comment or a pull request's body, and other bots' cap leaves room for edits."""

_Place = Callable[[str], str | None]


def render(report: Report, *, limit: int = BODY_LIMIT, picture: _Place | None = None) -> str:
    """At most `limit` characters, shortened visibly where it must be.

    `picture` maps a file name of `report.files` to the URL that shows it, or None; without it charts are text.
    """
    return fit(report.blocks, lambda blocks: blocks_to_markdown(blocks, picture), limit)


def beside(name: str) -> str:
    """For `render`'s `picture`: the charts lie in the same folder as the Markdown file."""
    return quote(name)


def blocks_to_markdown(blocks: tuple[Block, ...], picture: _Place | None = None) -> str:
    """The blocks without a limit, with one final newline."""
    return "\n\n".join(part for b in blocks if (part := _block(b, picture))) + "\n"


def inline(line: Line) -> str:
    """One line of spans, for use inside other Markdown."""
    return _line(line)


def _block(block: Block, picture: _Place | None) -> str:
    match block:
        case Heading(level, text):
            return f"{'#' * level} {_line(text)}"
        case Paragraph(text):
            return escape.leading(_line(text))
        case Notice(kind, text):
            return f"> [!{kind.upper()}]\n> {escape.leading(_line(text))}"
        case Bullets(items):
            return "\n".join(f"- {escape.leading(_line(i))}" for i in items)
        case Table():
            return _table(block)
        case Verdicts():
            return _verdicts(block)
        case Code(text, language, cut):
            note = f"\n\n*{cut} more lines not shown.*" if cut else ""
            return escape.code_block(text, language) + note
        case Picture():
            return _picture(block, picture)
        case Details(summary, inner):
            title = "".join(_html_span(s) for s in summary)
            return f"<details>\n<summary>{title}</summary>\n\n{blocks_to_markdown(inner, picture)}\n</details>"


def _line(line: Line, *, in_table: bool = False, whole: bool = False) -> str:
    parts: list[str] = []
    for span in line:
        if isinstance(span, Mono):
            code = escape.code_span(span.text, in_table=in_table)
            # Two runs of backticks that touch would be read as one.
            parts.append(f"{escape.BREAK}{code}" if code and parts and parts[-1].endswith("`") else code)
        elif isinstance(span, Strong):
            parts.append(f"**{escape.text(span.text)}**" if span.text.strip() else "")
        else:
            lead, trail = span[:1].isspace(), span[-1:].isspace() and span.strip()
            said = escape.text(span).replace(" ", "\u00a0") if whole else escape.text(span)
            parts.append(f"{' ' if lead else ''}{said}{' ' if trail else ''}")
    return "".join(parts).strip()


def _html_span(span: str | Mono | Strong) -> str:
    if isinstance(span, Mono):
        return f"<code>{escape.html_text(span.text)}</code>"
    if isinstance(span, Strong):
        return f"<b>{escape.html_text(span.text)}</b>"
    return f"{' ' if span[:1].isspace() else ''}{escape.html_text(span)}{' ' if span[-1:].isspace() else ''}"


def _table(table: Table) -> str:
    rule = "|".join("---:" if c.align == "right" else "---" for c in table.columns)
    lines = [_row(tuple((c.title,) for c in table.columns)), f"|{rule}|", *(_row(r, table.columns) for r in table.rows)]
    note = [f"\n*{table.cut} more rows not shown.*"] if table.cut else []
    return "\n".join(lines + note)


def _row(cells: tuple[Line, ...], columns: tuple[Column, ...] = ()) -> str:
    """Cells to the right hold figures, which no narrow table is to break in two."""
    right = [column.align == "right" for column in columns] or [False] * len(cells)
    return "| " + " | ".join(_line(c, in_table=True, whole=w) for c, w in zip(cells, right, strict=True)) + " |"


def _verdicts(block: Verdicts) -> str:
    """A table of statuses, then every reason and the figures behind it as a folded list."""
    columns = (Column("piece"), *(Column(g) for g in GATES))
    rows, items = [], []
    for label, verdicts in block.rows:
        by_gate = {v.gate: v for v in verdicts}
        rows.append((label, *((by_gate[g].status.value if g in by_gate else "no verdict",) for g in GATES)))
        items += [f"- {_line(label)}, {v.gate}: {_line((explain(v),))}" for v in verdicts if explain(v)]
    table = _table(Table(columns, tuple(rows), block.cut))
    if not items:
        return table
    listing = "\n".join(items)
    return f"{table}\n\n<details>\n<summary>Reasons and figures</summary>\n\n{listing}\n\n</details>"


def explain(v: Verdict) -> str:
    """Reason, plain figures of the evidence and time of one verdict, as one line of text."""
    figures = [f"{k} = {_figure(x)}" for k, x in v.evidence.items() if isinstance(x, str | int | float | bool)]
    spent = f"took {v.seconds:.1f} s" if v.seconds else ""
    said = f"{v.status.value}: {shorten(v.reason, 600)}" if v.reason else ""
    return "; ".join(part for part in (said, shorten(", ".join(figures), 800), spent) if part)


def _figure(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else shorten(str(value), 120)


def _picture(block: Picture, picture: _Place | None) -> str:
    light, dark = (picture(block.light), picture(block.dark)) if picture is not None else (None, None)
    if light is None or dark is None:
        return escape.code_block(block.text, "text")
    return (
        f'<picture>\n<source media="(prefers-color-scheme: dark)" srcset="{escape.html_attribute(dark)}">\n'
        f'<img alt="{escape.html_attribute(block.alternative)}" src="{escape.html_attribute(light)}">\n</picture>'
    )
