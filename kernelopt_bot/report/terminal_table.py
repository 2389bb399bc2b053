"""A table for a terminal of any width: figures stay in columns, and words that find no room go below their row."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderResult
from rich.padding import Padding
from rich.text import Text

_LEAST = 4
"""Cells that the first column needs; with less, everything goes below it."""
_TITLE = 8
"""Titles of figures break at words down to this many cells, to leave the names room."""


@dataclass(frozen=True)
class Fitted:
    """A rich renderable. `figures[i]` says whether column i holds figures, which are never broken over lines.

    Columns in which no row has anything are left out.
    """

    titles: Sequence[str]
    figures: Sequence[bool]
    rows: Sequence[Sequence[Text]]
    cut: int = 0

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width - 1
        shown = [i for i in range(len(self.titles)) if i == 0 or any(row[i].cell_len for row in self.rows)]
        heads = {i: self._title(i) for i in shown}
        widths = {i: max(self._widest(i), *(len(line) for line in heads[i])) for i in shown}
        first, gap, below = 0, 3, []
        if sum(widths.values()) + gap * (len(shown) - 1) > width:
            gap, below = 2, [i for i in shown[1:] if not self.figures[i]]
        beside = [i for i in shown if i not in below]
        room = width - sum(widths[i] + gap for i in beside[1:])
        if room < _LEAST:
            beside, below, room = [first], shown[1:], width
        widths[first] = min(widths[first], room)
        yield Text()
        tall = max(len(heads[i]) for i in beside)
        for words in zip(*([""] * (tall - len(heads[i])) + heads[i] for i in beside), strict=True):
            yield self._line([Text(w) for w in words], beside, widths, gap)
        yield Text(" " + "─" * (sum(widths[i] + gap for i in beside) - gap), no_wrap=True)
        for row in self.rows:
            cells = [row[i] for i in beside]
            if len(beside) > 1 and cells[0].cell_len > widths[first]:
                yield Padding(cells[0], (0, 0, 0, 1))
                cells[0] = Text()
            if len(beside) == 1:
                yield Padding(cells[0], (0, 0, 0, 1))
            elif any(c.cell_len for c in cells):
                yield self._line(cells, beside, widths, gap)
            said = [Text(f"{self.titles[i]}: ").append_text(row[i]) for i in below if row[i].cell_len]
            if said:
                yield Padding(Text("; ").join(said), (0, 0, 0, 5))
        if self.cut:
            yield Text(f" {self.cut} more rows not shown", "italic")
        yield Text()

    def _widest(self, i: int) -> int:
        return max((row[i].cell_len for row in self.rows), default=0)

    def _title(self, i: int) -> list[str]:
        if not self.figures[i]:
            return [self.titles[i]]
        return textwrap.wrap(self.titles[i], max(self._widest(i), _TITLE), break_long_words=False) or [""]

    def _line(self, cells: Sequence[Text], columns: Sequence[int], widths: Mapping[int, int],
              gap: int) -> Text:
        line = Text(" ", no_wrap=True)
        for n, (cell, i) in enumerate(zip(cells, columns, strict=True)):
            space = " " * max(0, widths[i] - cell.cell_len)
            line.append(" " * gap if n else "")
            if self.figures[i]:
                line.append(space).append_text(cell)
            else:
                line.append_text(cell).append(space)
        line.rstrip()
        return line
