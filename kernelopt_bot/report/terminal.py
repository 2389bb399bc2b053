"""The report for a terminal or a workflow's log."""

from __future__ import annotations

from collections.abc import Iterator

import rich.box
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.panel import Panel
from rich.rule import Rule
from rich.table import Table as RichTable
from rich.text import Text

from kernelopt_bot.gates.verdict import GATES, Status
from kernelopt_bot.report.blocks import (
    Block,
    Bullets,
    Code,
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
from kernelopt_bot.report.markdown import explain
from kernelopt_bot.report.terminal_table import Fitted
from kernelopt_bot.report.text import one_line, visible

_COLOURS = {Status.PASS: "green", Status.FAIL: "red", Status.NOT_APPLICABLE: "cyan", Status.NOT_MEASURED: "yellow"}


def print_report(report: Report, console: Console) -> None:
    """Everything but the candidates' sources; text of unknown origin can send no escape or workflow command."""
    for block in report.blocks:
        for part in _block(block):
            console.print(part)


def _block(block: Block) -> Iterator[RenderableType]:
    match block:
        case Heading(1, text):
            yield Rule(_text(text, "bold"))
        case Heading(_, text):
            yield Text("\n").append_text(_text(text, "bold underline" if block.level == 2 else "bold"))
        case Paragraph(text):
            yield _text(text)
        case Notice(kind, text):
            yield Panel(_text(text), border_style="yellow" if kind == "warning" else "blue", title=kind)
        case Bullets(items):
            yield from (Padding(Text("• ").append_text(_text(i)), (0, 2)) for i in items)
        case Table():
            yield _table(block)
        case Verdicts():
            yield from _verdicts(block)
        case Code(text):
            yield Padding(Text(_harmless(visible(text, keep="\n\t"))), (0, 4))
        case Picture():
            yield Padding(Text(_harmless(block.text)), (0, 2))
        case Details(summary, inner):
            yield Text("\n").append_text(_text(summary, "italic"))
            shown = [part for b in inner if not (isinstance(b, Code) and b.language == "python") for part in _block(b)]
            yield Padding(Group(*shown), (0, 2))


def _table(table: Table) -> Fitted:
    return Fitted([c.title for c in table.columns], [c.align == "right" for c in table.columns],
                  [[_text(cell) for cell in row] for row in table.rows], table.cut)


def _verdicts(block: Verdicts) -> Iterator[RenderableType]:
    shown = RichTable(box=rich.box.SIMPLE_HEAD, pad_edge=False)
    for title in ("piece", *GATES):
        shown.add_column(title, overflow="fold")
    for label, verdicts in block.rows:
        by_gate = {v.gate: v.status for v in verdicts}
        cells = (Text(by_gate[g].value, _COLOURS[by_gate[g]]) if g in by_gate else Text("no verdict") for g in GATES)
        shown.add_row(_text(label), *cells)
    yield shown
    for label, verdicts in block.rows:
        for v in verdicts:
            if v.reason:
                yield Padding(_text((*label, f", {v.gate}: {explain(v)}")), (0, 2))


def _text(line: Line, style: str = "") -> Text:
    """Rich's own markup is never parsed: the text goes in by pieces."""
    out = Text(style=style)
    for span in line:
        if isinstance(span, Mono | Strong):
            out.append(_harmless(one_line(span.text)), "cyan" if isinstance(span, Mono) else "bold")
        else:
            lead, trail = " " if span[:1].isspace() else "", " " if span[-1:].isspace() and span.strip() else ""
            out.append(_harmless(f"{lead}{one_line(span)}{trail}"))
    return out


def _harmless(text: str) -> str:
    """A line that starts with `::` (or holds `##[`) would be a command to the workflow's runner."""
    return text.replace("::", ":\u2060:").replace("##[", "#\u2060#[")
