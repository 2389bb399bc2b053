"""Templates of `templates/publish` -> Markdown, with every value escaped unless it is Markdown of ours."""

from __future__ import annotations

import functools
import re
from typing import Any

import jinja2

from kernelopt_bot.report import escape
from kernelopt_bot.report.templates import environment
from kernelopt_bot.report.text import shorten

_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(?:/[A-Za-z0-9._~%/?=&+,@:#-]*)?")
_COMMAND = re.compile(r"^(?=\s*(?:::|##\[))", re.MULTILINE)


class Markdown(str):
    """Text that is Markdown already, with all foreign text in it escaped."""


def render(template: str, **values: Any) -> str:
    """The template's text, blank lines folded. Raises jinja2.UndefinedError for a missing value."""
    text = _environment().get_template(template).render(**values)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"


def link(label: str, url: str) -> Markdown:
    """A link to a page of the forge; the plain label where the address is not one."""
    said = escape.text(label)
    return Markdown(f"[{said}]({url})" if _URL.fullmatch(url) else said)


def pull_link(number: int | None, url: str) -> Markdown:
    """`#8` as a link; `the pull request` where there is no number."""
    if number is None or not _URL.fullmatch(url):
        return link("the pull request", url)
    return Markdown(f"[#{number:d}]({url})")


def _mono(value: object) -> Markdown:
    return Markdown(escape.code_span(str(value)))


def _cell(value: object) -> Markdown:
    return Markdown(escape.code_span(str(value), in_table=True))


def _words(value: object, limit: int = 1000) -> Markdown:
    return Markdown(escape.text(shorten(str(value), limit)))


def _block(value: object, language: str = "", limit: int = 100_000) -> Markdown:
    # Elsewhere a runner would take such a line for a command, should the text ever get into a log.
    return Markdown(escape.code_block(_COMMAND.sub(" ", shorten(str(value), limit)), language))


def _finalize(value: object) -> object:
    return value if isinstance(value, Markdown | jinja2.Undefined) else escape.text(str(value))


@functools.cache
def _environment() -> jinja2.Environment:
    env = environment("publish", finalize=_finalize)
    env.filters |= {"mono": _mono, "cell": _cell, "words": _words, "block": _block}
    env.globals["link"] = link
    return env
