"""The command in a comment: `/kernelopt optimize encoder --budget 20m`. Grammar: docs/commands.md.

Only the first line counts, and only where it begins with the word itself: what is quoted (`> `), in code (backquotes,
four spaces) or further down never fires. The text is untrusted; nothing of it is ever run or expanded.
"""

from __future__ import annotations

import difflib
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

Verb = Literal["optimize", "verify", "status", "cancel", "help"]
WORD = "/kernelopt"
LEVERS = ("kernel", "dispatch", "launch", "region")
LONGEST = 1000
"""Characters of a command's line."""
MOST_TARGETS = 20
SHORTEST_BUDGET_S, LONGEST_BUDGET_S = 10.0, 86_400.0
MARKER = "<!-- kernelopt"
"""Every comment of ours holds it: such a comment never fires, whoever posted it."""

_FIRST = re.compile(rf"(?i:{WORD})(?=[ \t]|$)", re.ASCII)
_TARGET = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}|[^:]{1,1000}\.py(:[^\W\d]\w{0,99})?")
_BUDGET = re.compile(r"([0-9]{1,6})(s|m|h)", re.ASCII)
_COST = re.compile(r"[0-9]{1,6}(\.[0-9]{1,2})?", re.ASCII)
_SHA = re.compile(r"[0-9a-f]{7,40}|[0-9a-f]{64}", re.ASCII)
_SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0}


@dataclass(frozen=True)
class Command:
    """Empty and None: not given, the configuration decides."""

    verb: Verb
    targets: tuple[str, ...] = ()
    """Names of targets, or `path/to/file.py`, or `path/to/file.py:Class`."""
    levers: tuple[str, ...] = ()
    budget_s: float | None = None
    """Wall time of the search, in seconds."""
    max_cost: float | None = None
    """Money for a language model, in US dollars."""
    sha: str = ""
    """The commit that is meant: 7 to 40 or 64 hexadecimal digits, lower case."""


@dataclass(frozen=True)
class Mistake:
    """The comment is a command that cannot be understood. `text` is one line of Markdown for its author; what it
    repeats of the comment stands in backquotes."""

    text: str


class _Wrong(Exception):
    pass


def parse(body: str) -> Command | Mistake | None:
    """The command in a comment's body; None if the comment holds none. Never raises."""
    line = re.split(r"\r\n|\r|\n", body, maxsplit=1)[0].rstrip(" \t")
    start = _FIRST.match(line)
    if start is None or MARKER in body:
        return None
    return parse_line(line[start.end():])


def parse_line(line: str) -> Command | Mistake:
    """The command in `line`, which has no `/kernelopt` in front: `optimize encoder --budget 20m`. Never raises."""
    try:
        return _command(line)
    except _Wrong as wrong:
        return Mistake(str(wrong))


def usage() -> str:
    """The commands and their options, as Markdown."""
    rows = [f"| `{WORD} {form.syntax}` | {form.meaning} |" for form in _FORMS.values()]
    return "\n".join(["| command | what it does |", "|---|---|", *rows])


def _command(line: str) -> Command:
    if len(line) > LONGEST:
        raise _Wrong(f"The command is longer than {LONGEST} characters.")
    if not line.replace("\t", " ").isprintable():
        raise _Wrong("The command holds characters that cannot be seen. Type it by hand.")
    try:
        words = shlex.split(line)
    except ValueError:
        raise _Wrong("A quote or a backslash in the command is not closed.") from None
    if not words:
        return Command("help")
    verb = next((v for v in get_args(Verb) if v == words[0]), None)
    if verb is None:
        raise _Wrong(f"There is no command {_quoted(words[0])}. {_meant(words[0], _FORMS)}")
    form = _FORMS[verb]
    values: dict[str, Any] = {}
    targets: list[str] = []
    rest = iter(words[1:])
    for word in rest:
        if not word.startswith("-"):
            targets.append(_target(word, verb))
            continue
        flag, equals, value = word.partition("=")
        if flag not in form.flags:
            raise _Wrong(f"`{verb}` has no option {_quoted(flag)}. {_meant(flag, form.flags)}")
        name, read = _FLAGS[flag]
        if name in values:
            raise _Wrong(f"`{flag}` is given twice.")
        value = value if equals else next(rest, "")
        if not value or value.startswith("-"):
            raise _Wrong(f"`{flag}` needs a value.")
        values[name] = read(value)
    if len(targets) > MOST_TARGETS:
        raise _Wrong(f"At most {MOST_TARGETS} targets at once.")
    return Command(verb, tuple(dict.fromkeys(targets)), **values)


def _target(word: str, verb: str) -> str:
    if not _FORMS[verb].targets:
        raise _Wrong(f"`{verb}` takes no target.")
    path = word.partition(":")[0]
    if not _TARGET.fullmatch(word) or "\\" in word or path.startswith("/") or ".." in path.split("/"):
        raise _Wrong(f"{_quoted(word)} is no target: give its name, or `path/to/file.py:Class`.")
    return word


def _levers(value: str) -> tuple[str, ...]:
    names = [name.strip() for name in value.split(",")]
    for name in names:
        if name not in LEVERS:
            raise _Wrong(f"There is no lever {_quoted(name)}. {_meant(name, LEVERS)}")
    if len(set(names)) != len(names):
        raise _Wrong("Each lever at most once.")
    return tuple(names)


def _budget(value: str) -> float:
    found = _BUDGET.fullmatch(value)
    if found is None:
        raise _Wrong(f"{_quoted(value)} is no time: write `90s`, `20m` or `1h`.")
    seconds = int(found[1]) * _SECONDS[found[2]]
    if not SHORTEST_BUDGET_S <= seconds <= LONGEST_BUDGET_S:
        raise _Wrong("`--budget` must be between `10s` and `24h`.")
    return seconds


def _cost(value: str) -> float:
    if not _COST.fullmatch(value):
        raise _Wrong(f"{_quoted(value)} is no amount: write US dollars as `2.00`.")
    return float(value)


def _sha(value: str) -> str:
    if not _SHA.fullmatch(value.lower()):
        raise _Wrong(f"{_quoted(value)} is no commit: give 7 to 40 hexadecimal digits of the head commit.")
    return value.lower()


def _meant(word: str, valid: Iterable[str]) -> str:
    choices = list(valid)
    near = difflib.get_close_matches(word.lower(), choices, n=1, cutoff=0.5)
    if near:
        return f"Did you mean `{near[0]}`?"
    return f"Valid: {', '.join(f'`{c}`' for c in choices)}." if choices else "It has none."


def _quoted(word: str) -> str:
    """`word` as a code span, in which nothing is a mention, a link or HTML."""
    shown = word.replace("`", "'")
    return f"`{shown[:57] + '...' if len(shown) > 60 else shown or ' '}`"


@dataclass(frozen=True)
class _Form:
    syntax: str
    meaning: str
    flags: tuple[str, ...] = ()
    targets: bool = False


_FLAGS: Mapping[str, tuple[str, Callable[[str], Any]]] = {
    "--levers": ("levers", _levers), "--budget": ("budget_s", _budget),
    "--max-cost": ("max_cost", _cost), "--sha": ("sha", _sha)}

_FORMS: Mapping[str, _Form] = {
    "optimize": _Form("optimize [TARGET...] [--levers LEVER,...] [--budget 20m] [--max-cost 2.00] [--sha SHA]",
                      "search for faster kernels; without a target, for all that the pull request affects",
                      tuple(_FLAGS), targets=True),
    "verify": _Form("verify [TARGET...] [--sha SHA]", "put the committed kernels through the gates again",
                    ("--sha",), targets=True),
    "status": _Form("status", "say what runs, and what came of the last run"),
    "cancel": _Form("cancel", "stop what runs for this pull request"),
    "help": _Form("help", "show this"),
}
