"""Syntax trees, copied and walked as fast as Python can: techniques do both many times for each candidate."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Any, TypeVar, cast

T = TypeVar("T", bound="ast.AST | list[Any]")


def copied(tree: T) -> T:
    """A copy of a node, or of a list of nodes, that shares nothing which can change. Several times as fast as
    `copy.deepcopy`, which asks every node how it wants to be pickled."""
    if isinstance(tree, list):
        return cast(T, [copied(item) if isinstance(item, ast.AST | list) else item for item in tree])
    made = tree.__class__()
    made.__dict__.update({name: copied(value) if isinstance(value, ast.AST | list) else value
                          for name, value in tree.__dict__.items()})
    return made


def nodes(tree: ast.AST) -> Iterator[ast.AST]:
    """Those of `ast.walk` in some other order, without the contexts of names."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        yield node
        for name, value in node.__dict__.items():
            if isinstance(value, list):
                waiting += [item for item in value if isinstance(item, ast.AST)]
            elif isinstance(value, ast.AST) and name != "ctx":
                waiting.append(value)
