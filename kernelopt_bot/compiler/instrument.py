"""Rewrites a wrapper's text so that every call of a kernel or vendor function goes through a hook.

Standard library only. The rewriting keeps every line where it is, so that line numbers of the instrumented text
are those of the wrapper.

    extern_kernels.mm(a, b, out=c)    ->    _kernelopt_hook(3, extern_kernels.mm, a, b, out=c)
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

HOOK = "_kernelopt_hook"
"""Global that the instrumented text calls as `hook(site, callee, *arguments, **keywords)`; it must return what the
callee returns."""

SiteKind = Literal["kernel", "vendor"]

_NOT_VENDOR = {"torch.ops.inductor._alloc_from_pool", "torch.ops.inductor._reinterpret_tensor"}


@dataclass(frozen=True)
class Site:
    """One call that was rewritten. `index` is what the hook receives first."""

    index: int
    line: int
    """First line of the innermost statement that holds the call, from 1."""
    callee: str
    """The called expression's text, without `.run` for kernels: `triton_poi_fused_0`, `extern_kernels.mm`."""
    kind: SiteKind
    function: str
    """Name of the enclosing function."""


@dataclass(frozen=True)
class Instrumented:
    text: str
    sites: tuple[Site, ...]


def instrument(source: str) -> Instrumented:
    """Rewrite the calls in all functions of a wrapper. Raises SyntaxError if it is not Python."""
    tree = ast.parse(source)
    names = _Names(tree)
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    found: list[tuple[ast.Call, ast.stmt, str, SiteKind, str]] = []
    for function, statement, call in _calls(tree):
        classified = names.classify(call.func)
        if classified is not None:
            found.append((call, statement, *classified, function))
    found.sort(key=lambda f: (f[0].lineno, f[0].col_offset))
    sites = tuple(Site(i, s.lineno, callee, kind, function) for i, (_, s, callee, kind, function) in enumerate(found))
    edits: list[tuple[int, int, int, bytes]] = []
    for site, (call, *_) in zip(sites, found, strict=True):
        func = call.func
        assert func.end_lineno is not None and func.end_col_offset is not None
        edits.append((func.lineno, func.col_offset, 0, f"{HOOK}({site.index}, ".encode()))
        bracket = _open_bracket(lines, func.end_lineno, func.end_col_offset)
        edits.append((*bracket, 1, b", " if call.args or call.keywords else b""))
    for line, column, removed, text in sorted(edits, reverse=True):
        old = lines[line - 1]
        lines[line - 1] = old[:column] + text + old[column + removed:]
    return Instrumented(b"".join(lines).decode(), sites)


def _open_bracket(lines: list[bytes], line: int, column: int) -> tuple[int, int]:
    while True:
        at = lines[line - 1].find(b"(", column)
        if at >= 0:
            return line, at
        line, column = line + 1, 0


def _calls(tree: ast.Module) -> Iterator[tuple[str, ast.stmt, ast.Call]]:
    """(function, innermost statement, call) of every call inside a function, methods included."""

    def walk(node: ast.AST, function: str, statement: ast.stmt | None) -> Iterator[tuple[str, ast.stmt, ast.Call]]:
        for child in ast.iter_child_nodes(node):
            inner = child.name if isinstance(child, ast.FunctionDef) and not function else function
            if isinstance(child, ast.Call) and function and statement is not None:
                yield function, statement, child
            yield from walk(child, inner, child if isinstance(child, ast.stmt) else statement)

    yield from walk(tree, "", None)


def dotted(node: ast.expr) -> str:
    """`a.b.c` of a chain of attributes on a name, '' for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return ""
    return ".".join([node.id, *reversed(parts)])


class _Names:
    """What the wrapper's globals stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self.kernels: set[str] = set()
        self.aliases: dict[str, str] = {}
        for node in tree.body:
            if not (isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name)):
                continue
            name, value = node.targets[0].id, node.value
            if isinstance(value, ast.Call) and dotted(value.func).startswith("async_compile."):
                self.kernels.add(name)
            elif full := self.full(dotted(value)):
                self.aliases[name] = full

    def full(self, name: str) -> str:
        head, _, rest = name.partition(".")
        head = self.aliases.get(head, head)
        return f"{head}.{rest}" if rest else head

    def classify(self, func: ast.expr) -> tuple[str, SiteKind] | None:
        """(callee, kind), or None for what is neither a kernel nor a vendor function."""
        name = dotted(func)
        head, _, rest = name.partition(".")
        if head in self.kernels and rest in ("", "run"):
            return head, "kernel"
        full = self.full(name)
        if full in _NOT_VENDOR:
            return None
        if full.startswith(("extern_kernels.", "torch.ops.")):
            return name, "vendor"
        return None
