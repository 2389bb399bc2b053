"""Masks: taken out where they are known to be true, put in where a rewrite makes them necessary."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterable

from kernelopt_bot.playbook.rewrite import expression
from kernelopt_bot.playbook.syntax import copied


class _Without(ast.NodeTransformer):
    def __init__(self, names: Collection[str]) -> None:
        self.names = names

    def _true(self, node: ast.expr) -> bool:
        return isinstance(node, ast.Name) and node.id in self.names

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        self.generic_visit(node)
        if isinstance(node.op, ast.BitAnd):
            if self._true(node.left):
                return node.right
            if self._true(node.right):
                return node.left
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        function = ast.unparse(node.func)
        if function == "tl.where" and self._true(node.args[0]):
            return node.args[1]
        position = {"tl.load": 1, "tl.store": 2}.get(function)
        if position is not None and len(node.args) > position and self._true(node.args[position]):
            node.args[position] = ast.Constant(None)
            node.keywords = [k for k in node.keywords if k.arg != "other"]
        return node


def without(body: Iterable[ast.stmt], names: Collection[str]) -> list[ast.stmt]:
    """A copy in which the named masks count as true: out of conjunctions, selections, loads and stores."""
    transformer = _Without(names)
    return [ast.fix_missing_locations(transformer.visit(copied(s))) for s in body]


class _With(ast.NodeTransformer):
    def __init__(self, mask: str) -> None:
        self.mask = mask

    def visit_Call(self, node: ast.Call) -> ast.expr:
        self.generic_visit(node)
        position = {"tl.load": 1, "tl.store": 2}.get(ast.unparse(node.func))
        if position is None:
            return node
        current = node.args[position] if len(node.args) > position else None
        names = {n.id for n in ast.walk(current) if isinstance(n, ast.Name)} if current is not None else set()
        if self.mask in names:
            return node
        absent = current is None or (isinstance(current, ast.Constant) and current.value is None)
        text = self.mask if absent or current is None else f"{self.mask} & ({ast.unparse(current)})"
        node.args[position:] = [expression(text), *node.args[position + 1:]]
        return node


def within(body: Iterable[ast.stmt], mask: str) -> list[ast.stmt]:
    """A copy in which every load and store also holds only where `mask` does."""
    transformer = _With(mask)
    return [ast.fix_missing_locations(transformer.visit(copied(s))) for s in body]
