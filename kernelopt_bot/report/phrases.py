"""Sentences of the report, from `templates/report/phrases.j2`, as lines of spans.

Each sentence is a Jinja2 block. The filters `mono` and `strong` mark spans with characters that `visible()` never lets
through, so a value can't forge them: values are made visible before they reach the template's output.
"""

from __future__ import annotations

import functools
import re
from typing import Any

import jinja2

from kernelopt_bot.report.blocks import Line, Mono, Span, Strong
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import one_line

_MARKED = re.compile("\x01([ms])([^\x02]*)\x02")


def phrase(name: str, /, **values: Any) -> Line:
    """The sentence `name`. Raises KeyError for an unknown one, jinja2.UndefinedError for a missing value."""
    template = _template()
    text = "".join(template.blocks[name](template.new_context(values)))
    spans: list[Span] = []
    at = 0
    # Only the markers survive `finalize` as control characters; layout white space of the template is folded here.
    text = re.sub(r"\s+", " ", text).strip()
    for match in _MARKED.finditer(text):
        if match.start() > at:
            spans.append(text[at : match.start()])
        spans.append(Mono(match[2]) if match[1] == "m" else Strong(match[2]))
        at = match.end()
    if at < len(text):
        spans.append(text[at:])
    return tuple(spans)


class _Marked(str):
    """Text that already carries our markers."""


def _mark(kind: str, value: object) -> _Marked:
    return _Marked(f"\x01{kind}{one_line(str(value))}\x02")


def _finalize(value: object) -> object:
    return value if isinstance(value, _Marked | jinja2.Undefined) else one_line(str(value))


@functools.cache
def _template() -> jinja2.Template:
    env = environment("report", finalize=_finalize)
    env.filters["mono"] = functools.partial(_mark, "m")
    env.filters["strong"] = functools.partial(_mark, "s")
    return env.get_template("phrases.j2")
