"""The search tree as inline SVG: levers, places, candidates below those that they were made from, and their gates."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from html import escape

from kernelopt_bot.gates.verdict import GATES
from kernelopt_bot.report.text import one_line, shorten
from kernelopt_bot.trace.facts import Node, TargetTrace
from kernelopt_bot.trace.text import step

ROW = 22
INDENT = 22
LEFT = 14
TOP = 84
GATES_AT = 500
GATE_WIDTH = 38
WIDTH = 940
NAME = 52
"""Characters of a name, before its indentation takes some."""


@dataclass(frozen=True)
class _Row:
    depth: int
    parent: int
    """Row of what it hangs under; -1 for the root."""
    text: str
    node: Node | None = None


def tree(target: TargetTrace, anchor: dict[str, str]) -> str:
    """An `<svg>`; `anchor` maps candidates' ids to the page's. Colours are the page's classes."""
    rows = list(_rows(target))
    height = TOP + ROW * len(rows)
    parts = [f'<svg class="tree" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}" role="img" '
             f'aria-label="Search tree of {escape(target.name)}">']
    for column, gate in enumerate(GATES):
        place = f"translate({_gate_x(column) + 4},{TOP - 20}) rotate(-35)"
        parts.append(f'<text class="head" transform="{place}">{gate}</text>')
    parts.append(f'<text class="head" x="{GATES_AT + 4 * GATE_WIDTH + 16}" y="{TOP - 20}">replaced steps alone</text>')
    for number, row in enumerate(rows):
        y = _y(number)
        if row.parent >= 0:
            x = LEFT + INDENT * (row.depth - 1)
            parts.append(f'<path class="edge" d="M{x},{_y(row.parent) + 6} V{y} H{x + INDENT - 7}"/>')
        parts += _drawn(row, y, anchor)
    return "\n".join([*parts, "</svg>"])


def _rows(target: TargetTrace) -> Iterator[_Row]:
    yield _Row(0, -1, target.name)
    number, levers = 1, dict[str, int]()
    for spot in target.spots:
        if spot.lever not in levers:
            levers[spot.lever] = number
            yield _Row(1, 0, spot.lever)
            number += 1
        depth, above = 2, levers[spot.lever]
        if spot.title:
            yield _Row(2, above, spot.title)
            depth, above = 3, number
            number += 1
        at: dict[int, int] = {-1: above}
        for node, below in spot.walk():
            yield _Row(depth + below, at[below - 1], node.trial.candidate.technique or node.trial.candidate.id, node)
            at[below] = number
            number += 1


def _drawn(row: _Row, y: int, anchor: dict[str, str]) -> Iterator[str]:
    x = LEFT + INDENT * row.depth
    room = max(12, NAME - 3 * row.depth)
    label = escape(shorten(one_line(row.text), room))
    if row.node is None:
        yield f'<rect class="group" x="{x - 5}" y="{y - 5}" width="10" height="10" rx="2"/>'
        yield f'<text class="name" x="{x + 10}" y="{y + 4}">{label}</text>'
        return
    node = row.node
    c = node.trial.candidate
    kind = node.kind.replace(" ", "-")
    yield f'<a href="#{anchor[c.id]}"><title>{escape(one_line(c.id))}: {escape(node.fate)}</title>'
    yield f'<circle class="{kind}" cx="{x}" cy="{y}" r="5.5"/>'
    author = f' <tspan class="faint">{escape(one_line(c.author))}</tspan>'
    strong = " strong" if node.adopted else ""
    yield f'<text class="name{strong}" x="{x + 10}" y="{y + 4}">{label}{author}</text></a>'
    for column, (verdict, scope) in enumerate(node.verdicts):
        if scope != "none":
            status = verdict.status.value.replace(" ", "-")
            yield (f'<circle class="gate {status}" cx="{_gate_x(column)}" cy="{y}" r="4.5">'
                   f"<title>{verdict.gate}: {verdict.status.value} ({scope})</title></circle>")
        else:
            yield f'<circle class="gate none" cx="{_gate_x(column)}" cy="{y}" r="1.5"/>'
    if timed := step(node):
        yield f'<text class="figure" x="{GATES_AT + 4 * GATE_WIDTH + 16}" y="{y + 4}">{escape(timed)}</text>'


def _y(number: int) -> int:
    return TOP + ROW * number


def _gate_x(column: int) -> int:
    return GATES_AT + GATE_WIDTH * column
