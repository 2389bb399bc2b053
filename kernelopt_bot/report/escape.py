"""GitHub-flavoured Markdown from text of unknown origin.

The text must come out as the characters that went in: no markup, no HTML, no mention, no issue reference, no link.
"""

from __future__ import annotations

import html
import re

from kernelopt_bot.report.text import one_line, visible

# A zero-width space ends what GitHub would take for a mention, an issue reference or a link; nobody sees it.
BREAK = "&#8203;"
_MARKUP = re.compile(r"([\\`*_\[\]|~])")
# `#12`, `GH-12`, `owner/repo#12`, `@name`, `https://`, `www.`, `name@host` (by its at sign).
_REFERENCE = re.compile(r"([@#]|GH-(?=\d)|www(?=\.)|:(?=//))", re.IGNORECASE)
_LEADING_BLOCK = re.compile(r"^(?:([-+=])|(\d{1,9})([.)]))")


def text(value: str) -> str:
    """`value` on one line, as literal text, also inside a table's cell."""
    out = html.escape(one_line(value), quote=False)
    out = _MARKUP.sub(r"\\\1", out)
    out = _REFERENCE.sub(lambda m: ("\\#" if m[1] == "#" else m[1]) + BREAK, out)
    # Not a backslash: GitHub's own rendering of `$` as mathematics runs apart from Markdown's escapes.
    return out.replace("$", "&#36;")


def leading(rendered: str) -> str:
    """`rendered` (already escaped) so that its first characters start no list, rule or heading."""
    return _LEADING_BLOCK.sub(lambda m: f"\\{m[1]}" if m[1] else f"{m[2]}\\{m[3]}", rendered)


def code_span(value: str, *, in_table: bool = False) -> str:
    """`value` on one line as inline code; '' for nothing."""
    value = one_line(value)
    if not value:
        return ""
    fence = "`" * (_longest_run(value) + 1)
    pad = " " if value.startswith("`") or value.endswith("`") else ""
    # A table's cells are split before its code is found: a bar ends the cell unless a backslash stands before it.
    body = value.replace("|", "\\|") if in_table else value
    return f"{fence}{pad}{body}{pad}{fence}"


def code_block(value: str, language: str) -> str:
    """A fenced block; its fence is longer than any run of backticks inside."""
    body = visible(value.replace("\r\n", "\n"), keep="\n\t").strip("\n")
    fence = "`" * max(3, _longest_run(body) + 1)
    return f"{fence}{language}\n{body}\n{fence}"


def html_text(value: str) -> str:
    """`value` for an HTML element, where Markdown's escapes have no effect."""
    return _REFERENCE.sub(lambda m: m[1] + BREAK, html.escape(one_line(value), quote=False)).replace('"', "&quot;")


def html_attribute(value: str) -> str:
    """`value` between double quotes. Nothing in an attribute is taken for a mention."""
    return html.escape(one_line(value), quote=True)


def _longest_run(value: str) -> int:
    return max((len(run) for run in re.findall(r"`+", value)), default=0)
