"""The call site's change: two lines where `wire:` says that the model is built, by syntax position, or why not.

What is understood: in the named function, exactly one statement `NAME = Class(...)` or `self.NAME = Class(...)`, a
plain assignment in the function's own flow. The model is wrapped right after it. Everything else of the file stays as
it is, to the byte.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from kernelopt_bot.targets.git import Repository
from kernelopt_bot.targets.source import LIMIT
from kernelopt_bot.targets.symbols import dotted
from kernelopt_bot.targets.target import Target

MARK = "  # KernelOPT"


@dataclass(frozen=True)
class Wired:
    """`text` is the new file; `lines` the added ones as (number in the new file counted from 1, line), in order.
    `already`: it was wired before, and nothing is changed."""

    text: str
    lines: tuple[tuple[int, str], ...]
    already: bool = False


class Declined(Exception):
    """The place is not understood; the words say why. Then the pull request shows the lines instead."""


def wired(text: str, function: str, entry: str, package: str) -> Wired:
    """Insert `from PACKAGE import optimize as optimize_X` and the call of it.

    `function` is `name` or `Class.method`; `entry` the model's class; `package` the artifact's dotted import path.
    Raises Declined.
    """
    if not all(part.isidentifier() for part in package.split(".")):
        raise Declined(f"{package} cannot be imported")
    tree = _parsed(text, "the file does not parse")
    if "\r" in text.replace("\r\n", "") or "\f" in text:
        raise Declined("the file has unusual line ends")
    body = _function(tree, function)
    alias = f"optimize_{package.rpartition('.')[2]}"
    if any(isinstance(n, ast.ImportFrom) and n.module == package for n in ast.walk(tree)):
        return Wired(text, (), already=True)
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name)} | {a.asname or a.name.partition(".")[0]
                                                                        for n in ast.walk(tree)
                                                                        if isinstance(n, ast.Import | ast.ImportFrom)
                                                                        for a in n.names}
    if alias in names:
        raise Declined(f"the name {alias} is taken")
    statement, goal = _only(body, entry, function)
    # Not splitlines: it also splits at characters that are no line ends to Python.
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    end = "\r\n" if "\r\n" in text else "\n"
    last = statement.end_lineno or statement.lineno
    # Columns are bytes. What stands before or behind it on its lines is another statement, or a comment that may stay.
    before = lines[statement.lineno - 1].encode()[:statement.col_offset].decode()
    behind = lines[last - 1].encode()[statement.end_col_offset:].decode().strip()
    if before.strip() or (behind and not behind.startswith("#")):
        raise Declined(f"line {statement.lineno} holds more than one statement")
    if statement.lineno > 1 and lines[statement.lineno - 2].rstrip("\r\n").endswith("\\"):
        raise Declined(f"line {statement.lineno} goes on from the one before")
    added = {last: f"{before}{goal} = {alias}({goal}){MARK}",
             _after_imports(tree): f"from {package} import optimize as {alias}"}
    if not lines[last - 1].endswith(("\n", "\r")):
        lines[last - 1] += end
    shown: list[tuple[int, str]] = []
    made: list[str] = []
    for number in range(len(lines) + 1):
        if number:
            made.append(lines[number - 1])
        if number in added:
            made.append(added[number] + end)
            shown.append((len(made), added[number]))
    new = "".join(made)
    _same_but_for(tree, new, shown)
    return Wired(new, tuple(shown))


def unwired(text: str, package: str) -> Wired:
    """The file without what `wired` once inserted for `package`; `lines` are those that go, by their old numbers.

    Raises Declined where it is called in another way too, or what stays would be another program.
    """
    alias = f"optimize_{package.rpartition('.')[2]}"
    call = re.compile(rf"\s*([\w.]+) = {re.escape(alias)}\(\1\){re.escape(MARK)}")
    lines = re.findall(r"[^\n]*\n|[^\n]+", text)
    gone = [(number, line.rstrip("\r\n")) for number, line in enumerate(lines, 1)
            if line.rstrip("\r\n") == f"from {package} import optimize as {alias}"
            or call.fullmatch(line.rstrip("\r\n"))]
    new = "".join(line for number, line in enumerate(lines, 1) if number not in {n for n, _ in gone})
    tree = _parsed(new, "without it the file does not parse")
    if any((isinstance(n, ast.Name) and n.id == alias) or (isinstance(n, ast.ImportFrom) and n.module == package)
           or (isinstance(n, ast.Import) and any(a.name == package for a in n.names)) for n in ast.walk(tree)):
        raise Declined(f"it calls {package} in another way too")
    if gone:
        _same_but_for(tree, text, gone)
    return Wired(new, tuple(gone), already=not gone)


def _parsed(text: str, otherwise: str) -> ast.Module:
    """Raises Declined, beginning with `otherwise`; the parser's own limits are errors of three kinds."""
    try:
        return ast.parse(text)
    except SyntaxError as error:
        raise Declined(f"{otherwise}: line {error.lineno}: {error.msg}") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise Declined(f"{otherwise}: {str(error) or 'nested too deeply'}") from None


def _function(tree: ast.Module, name: str) -> ast.FunctionDef | ast.AsyncFunctionDef:
    scope: list[ast.stmt] = tree.body
    found: ast.stmt | None = None
    for part in name.split("."):
        fitting = [n for n in scope if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
                   and n.name == part]
        if len(fitting) != 1:
            raise Declined(f"there is no {name}" if not fitting else f"{part} is defined {len(fitting)} times")
        found, scope = fitting[0], fitting[0].body
    if not isinstance(found, ast.FunctionDef | ast.AsyncFunctionDef):
        raise Declined(f"{name} is no function")
    return found


def _only(function: ast.FunctionDef | ast.AsyncFunctionDef, entry: str, name: str) -> tuple[ast.Assign | ast.AnnAssign,
                                                                                            str]:
    """The statement that builds the model, and what it is assigned to."""
    calls = [n for n in ast.walk(function) if isinstance(n, ast.Call) and dotted(n.func)[-1:] == (entry,)]
    if len(calls) != 1:
        raise Declined(f"{name} builds {entry} {len(calls)} times, not once")
    for statement in _statements(function.body):
        if isinstance(statement, ast.Assign | ast.AnnAssign) and statement.value is calls[0]:
            goals = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            parts = dotted(goals[0]) if len(goals) == 1 else ()
            if not parts:
                break
            return statement, ".".join(parts)
    raise Declined(f"{entry}(...) in {name} is not simply assigned to a name")


def _statements(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Of a function's own flow: not of functions and classes inside it."""
    for node in body:
        yield node
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        for part in ("body", "orelse", "finalbody"):
            yield from _statements(getattr(node, part, []))
        for other in (*getattr(node, "handlers", []), *getattr(node, "cases", [])):
            yield from _statements(other.body)


def _after_imports(tree: ast.Module) -> int:
    """The line after which the import goes: the last plain import before any other statement; the docstring counts as
    one of them."""
    last = 0
    for index, node in enumerate(tree.body):
        docstring = index == 0 and isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if not (docstring or isinstance(node, ast.Import | ast.ImportFrom)):
            break
        last = node.end_lineno or node.lineno
    following = [n for n in tree.body if last and n.lineno == last and n.end_lineno == last]
    if len(following) > 1:
        raise Declined(f"line {last} holds more than one statement")
    if not last and tree.body and tree.body[0].lineno == 1 and isinstance(tree.body[0], ast.Expr):
        raise Declined("the file begins with an expression")
    return last


def _same_but_for(tree: ast.Module, new: str, added: list[tuple[int, str]]) -> None:
    """The new file without the added statements is the old program. Raises Declined."""
    lines = {number for number, _ in added}

    class Drop(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> ast.AST | None:
            if isinstance(node, ast.stmt) and node.lineno in lines and node.end_lineno == node.lineno:
                return None
            self.generic_visit(node)
            return node

    changed = _parsed(new, "the change would not parse")
    try:
        without = Drop().visit(changed)
        same = without is not None and ast.dump(without) == ast.dump(tree)
    except RecursionError:
        # What the parser takes may be nested deeper than what walks it: a chain of 900 additions.
        raise Declined("the file is nested too deeply to be changed safely") from None
    if not same:
        raise Declined("the change would alter more than the call site")


@dataclass(frozen=True)
class Wiring:
    """What `wire:` came to for some targets."""

    files: Mapping[str, bytes]
    """Changed files by POSIX path, whole."""
    said: tuple[tuple[str, str], ...]
    """(target, one sentence) for each target that asked for it."""
    wired: tuple[str, ...] = ()
    """The targets whose call site calls `optimize`, now or already; of artifacts that go: does not call it any more."""


def reader_of(repository: Repository, commit: str) -> Callable[[str], bytes | None]:
    """Plain files of a commit that are not executable: what is published keeps no such mode."""
    entries = {e.path: e for e in repository.entries(commit) if e.mode == "100644" and e.size <= LIMIT}

    def read(path: str) -> bytes | None:
        found = [entries[path]] if path in entries else []
        return next((content for _, content in repository.blobs(found)), None)

    return read


def wire(adopted: Iterable[tuple[Target, str]], read: Callable[[str], bytes | None]) -> Wiring:
    """The changes for (target, artifact folder). `read` gives a file of the head commit; None if it is not there."""
    def change(text: str | None, path: str, function: str, target: Target, package: str) -> tuple[str | None, str]:
        if text is None:
            raise Declined(f"there is no file {path}")
        made = wired(text, function, target.entry, package)
        if made.already:
            return None, f"{path} calls optimize already"
        return made.text, f"{path} calls optimize now: lines {' and '.join(str(number) for number, _ in made.lines)}"

    return _each(adopted, read, change)


def unwire(removed: Iterable[tuple[Target, str]], read: Callable[[str], bytes | None]) -> Wiring:
    """`wire` undone, for (target, artifact folder) of artifacts that go away."""
    def change(text: str | None, path: str, function: str, target: Target, package: str) -> tuple[str | None, str]:
        made = unwired(text, package) if text is not None else None
        if made is None or made.already:
            return None, ""
        return made.text, f"{path} calls it no more: {len(made.lines)} lines go"

    return _each(removed, read, change)


def _each(artifacts: Iterable[tuple[Target, str]], read: Callable[[str], bytes | None],
          change: Callable[[str | None, str, str, Target, str], tuple[str | None, str]]) -> Wiring:
    """`change(text, path, function, target, package)` of each call site: the new text, None where it stays, and what to
    say of it. It raises Declined."""
    files: dict[str, bytes] = {}
    said: list[tuple[str, str]] = []
    done: list[str] = []
    for target, artifact in artifacts:
        if not target.wire:
            continue
        path, _, function = target.wire.rpartition(":")
        content = files.get(path) or read(path)
        try:
            text = content.decode() if content is not None else None
            new, words = change(text, path, function, target, artifact.replace("/", "."))
        except UnicodeDecodeError:
            said.append((target.name, f"{path} is not changed: it is not UTF-8"))
        except Declined as why:
            said.append((target.name, f"{path} is not changed: {why}"))
        else:
            done.append(target.name)
            if new is not None:
                files[path] = new.encode()
            if words:
                said.append((target.name, words))
    return Wiring(files, tuple(said), tuple(done))
