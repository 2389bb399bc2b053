"""Rewrites of straight-line kernel code that keep its meaning: substitution, merging of equal values, dead code."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

from kernelopt_bot.playbook.kernel_source import Access, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.syntax import copied, nodes

_IMPURE = ("tl.atomic_", "tl.rand", "tl.debug_barrier", "tl.device_assert", "triton_helpers.x_grid_barrier")
_Node = TypeVar("_Node", bound=ast.AST)


def expression(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def statements(text: str) -> list[ast.stmt]:
    return ast.parse(text).body


class _Substitute(ast.NodeTransformer):
    def __init__(self, names: Mapping[str, ast.expr]) -> None:
        self.names = names

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if isinstance(node.ctx, ast.Load) and node.id in self.names:
            return copied(self.names[node.id])
        return node


def substitute(node: _Node, names: Mapping[str, ast.expr]) -> _Node:
    """A copy with every read of the names replaced."""
    result: _Node = _Substitute(names).visit(copied(node))
    return result


def reads(node: ast.AST) -> set[str]:
    """Names that a statement or expression reads; of a loop, those of its body too."""
    return {n.id for n in nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}


def binds(node: ast.AST) -> set[str]:
    return {n.id for n in nodes(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}


def impure(node: ast.AST) -> bool:
    """True if leaving the statement out, or doing it once instead of twice, could change what the kernel does."""
    return any(isinstance(n, ast.Call) and (ast.unparse(n.func) == "tl.store" or
                                            ast.unparse(n.func).startswith(_IMPURE)) for n in ast.walk(node))


def drop_dead(body: Iterable[ast.stmt], keep: Iterable[str] = ()) -> list[ast.stmt]:
    """Without the assignments whose names nothing reads, repeated until nothing changes."""
    body = [copied(s) for s in body]
    while True:
        live = set(keep).union(*(reads(s) for s in body)) if body else set(keep)
        kept = _live_only(body, live)
        if sum(1 for s in kept for _ in nodes(s)) == sum(1 for s in body for _ in nodes(s)):
            return kept
        body = kept


def _live_only(body: list[ast.stmt], live: set[str]) -> list[ast.stmt]:
    kept: list[ast.stmt] = []
    for statement in body:
        if isinstance(statement, ast.For):
            statement.body = _live_only(statement.body, live)
            if statement.body:
                kept.append(statement)
        elif isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
            continue
        elif not isinstance(statement, ast.Assign | ast.AnnAssign) or binds(statement) & live or impure(statement):
            kept.append(statement)
    return kept


def merge_equal(body: Iterable[ast.stmt], distinct: Callable[[str, str], bool]) -> list[ast.stmt]:
    """Value numbering over straight-line code: each value, loads included, is computed once; names become unique.

    `distinct(p, q)` says that two pointer parameters never overlap: a store through one then leaves what was
    loaded through the other valid. Raises NotUnderstood on loops.
    """
    current: dict[str, str] = {}
    known: dict[str, str] = {}
    sources: dict[str, str] = {}
    used: set[str] = set()
    result: list[ast.stmt] = []

    def fresh(name: str) -> str:
        candidate, n = name, 1
        while candidate in used:
            candidate, n = f"{name}_v{n}", n + 1
        used.add(candidate)
        return candidate

    for statement in body:
        if isinstance(statement, ast.For):
            raise NotUnderstood("a loop where straight-line code is wanted")
        statement = substitute(statement, {k: ast.Name(v, ast.Load()) for k, v in current.items()})
        name = name_of(statement)
        value = getattr(statement, "value", None)
        if isinstance(statement, ast.Assign) and name and value is not None and not impure(statement):
            key = _key(value)
            if isinstance(value, ast.Name):
                current[name] = value.id
                continue
            if key in known:
                current[name] = known[key]
                continue
            current[name] = known[key] = fresh(name)
            access = access_of(value) if isinstance(value, ast.Call) else None
            if access is not None:
                sources[key] = access.pointer
            statement.targets = [ast.Name(current[name], ast.Store())]
        elif isinstance(statement, ast.Assign):
            for target in ast.walk(statement):
                if isinstance(target, ast.Name) and isinstance(target.ctx, ast.Store):
                    current[target.id] = fresh(target.id)
                    target.id = current[target.id]
        elif isinstance(statement, ast.AnnAssign):
            used.add(name)
        for stored in _stored(statement):
            for key in [k for k, pointer in sources.items() if not distinct(pointer, stored)]:
                known.pop(key, None)
                del sources[key]
        result.append(ast.fix_missing_locations(statement))
    return result


def _key(value: ast.expr) -> str:
    """Text of a value; a load's eviction policy is a hint and no part of what it yields."""
    value = copied(value)
    for node in ast.walk(value):
        if isinstance(node, ast.Call):
            node.keywords = [k for k in node.keywords if k.arg != "eviction_policy"]
    return ast.unparse(value)


def _stored(statement: ast.stmt) -> list[str]:
    calls = [n for n in ast.walk(statement) if isinstance(n, ast.Call)]
    found: list[Access] = [a for c in calls if (a := access_of(c)) is not None and a.kind == "store"]
    other = [c for c in calls if ast.unparse(c.func).startswith("tl.atomic_")]
    return [a.pointer for a in found] + [n for c in other for n in reads(c.args[0])]
