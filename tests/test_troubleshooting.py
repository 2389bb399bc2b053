"""The page on errors against every error that the package raises.

The rule: an `InputError` is about something that the reader wrote, and its own `fix` says what to write instead. Every
other one (the machine, a service) has a cause that the reader cannot see in the message, so the page has a row for it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
ROWS = re.findall(r"^\| `([^`]+)` \|", PAGE, re.M)


@dataclass(frozen=True)
class Raised:
    kind: str
    """`input` or `other`."""
    place: str
    what: str
    """`…` stands for what varies."""
    fix: str | None
    """None: it is not given as a keyword."""


@functools.cache
def nodes() -> dict[Path, tuple[list[ast.ClassDef], list[ast.Call]]]:
    """Of each module of the package; not made where tests are only collected."""
    found = {}
    for path in sorted((ROOT / "kernelopt_bot").rglob("*.py")):
        walked = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
        found[path] = [n for n in walked if isinstance(n, ast.ClassDef)], [n for n in walked if isinstance(n, ast.Call)]
    return found


def errors() -> dict[str, str]:
    """Every class that is a `UserError`, and whether it is an `InputError`."""
    found = {"UserError": "other", "InputError": "input"}
    for _ in range(4):  # Deep enough for classes of classes.
        for classes, _calls in nodes().values():
            for node in classes:
                bases = [b.id for b in node.bases if isinstance(b, ast.Name)]
                if node.name not in found and (known := set(bases) & found.keys()):
                    found[node.name] = found[known.pop()]
    return found


def words(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=values):
            return "".join(str(v.value) if isinstance(v, ast.Constant) else "…" for v in values)
        case ast.BinOp(left=left, right=right):
            return words(left) + words(right)
    return "…"


def raised() -> Iterator[Raised]:
    known = errors()
    for path, (_, calls) in nodes().items():
        for node in calls:
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name in known and node.args:
                fixes = [words(k.value) for k in node.keywords if k.arg == "fix"]
                place = f"{path.relative_to(ROOT)}:{node.lineno}"
                yield Raised(known[name], place, words(node.args[0]), fixes[0] if fixes else None)


@pytest.fixture(scope="module")
def found() -> tuple[Raised, ...]:
    return tuple(raised())


def says(row: str, what: str) -> bool:
    """Whether the row is this message: each of its fixed parts is there, in their order, and they are most of it."""
    parts = [p for p in row.split("…") if p]
    at = 0
    for part in parts:
        at = what.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return 2 * sum(map(len, parts)) >= len(what.replace("…", ""))


def test_the_errors_are_found(found: tuple[Raised, ...]) -> None:
    assert len(found) > 100 and {r.kind for r in found} == {"input", "other"}
    assert {"Unavailable", "Denied"} <= errors().keys()


def test_what_the_reader_cannot_see_in_the_message_is_explained(found: tuple[Raised, ...]) -> None:
    others = [r for r in found if r.kind == "other" and r.what.strip("…: .")]
    missing = {r.place: r.what for r in others if not any(says(row, r.what) for row in ROWS)}
    assert others and not missing, "docs/troubleshooting.md has no row for these"


def test_what_the_reader_wrote_is_mended_by_what_the_message_says(found: tuple[Raised, ...]) -> None:
    assert not [r.place for r in found if r.kind == "input" and not r.fix]


def test_a_message_is_explained_once() -> None:
    assert len(ROWS) == len(set(ROWS))
    assert not re.findall(r"^\| `[^`]+` \|[^|]*\|\s*\|$", PAGE, re.M), "a row without advice"
