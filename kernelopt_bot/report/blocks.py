"""What a report is made of: frozen blocks without any output format.

A plain `str` inside a `Line` is text of unknown origin: every renderer escapes it. Formatting is only ever a span type.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from kernelopt_bot.gates.verdict import Verdict


@dataclass(frozen=True)
class Mono:
    """Inline code."""

    text: str


@dataclass(frozen=True)
class Strong:
    text: str


Span = str | Mono | Strong
Line = tuple[Span, ...]


@dataclass(frozen=True)
class Heading:
    level: Literal[1, 2, 3]
    text: Line


@dataclass(frozen=True)
class Paragraph:
    text: Line


@dataclass(frozen=True)
class Notice:
    """A paragraph that must not be overlooked."""

    kind: Literal["note", "warning"]
    text: Line


@dataclass(frozen=True)
class Bullets:
    items: tuple[Line, ...]


@dataclass(frozen=True)
class Column:
    title: str
    align: Literal["left", "right"] = "left"


@dataclass(frozen=True)
class Table:
    """Every row has as many cells as there are columns. `cut` counts rows that a length limit took away."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Line, ...], ...]
    cut: int = 0


@dataclass(frozen=True)
class Verdicts:
    """One row per piece, one column per gate, in gate order; a gate without an answer is shown as such."""

    rows: tuple[tuple[Line, tuple[Verdict, ...]], ...]
    cut: int = 0


@dataclass(frozen=True)
class Code:
    """`language` is one of ours, never user text. `cut` counts lines that a length limit took away."""

    text: str
    language: Literal["", "diff", "python", "shell", "text"] = ""
    cut: int = 0


@dataclass(frozen=True)
class Picture:
    """A chart in a light and a dark variant, by file name in `Report.files`; `text` says the same without pictures."""

    light: str
    dark: str
    alternative: str
    text: str


@dataclass(frozen=True)
class Details:
    """Folded away where the format can fold."""

    summary: Line
    blocks: tuple[Block, ...]


Block = Heading | Paragraph | Notice | Bullets | Table | Verdicts | Code | Picture | Details


@dataclass(frozen=True)
class Report:
    """`data` is the machine contract, `report.json` (`docs/report.schema.json`); `files` holds the charts, by name."""

    title: str
    blocks: tuple[Block, ...]
    data: Mapping[str, Any]
    files: Mapping[str, bytes] = field(default_factory=dict)
