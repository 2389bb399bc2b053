"""Sizes and grids of a launch plan: a tiny language over the call's integers and `num_sms`.

`+ - * // %`, `min`, `max`, `cdiv`, `next_power_of_2`, integers and names. Evaluation is `evaluate` of the artifact's
own runtime, so that what is checked is what is launched; here an expression is checked without values.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping

from kernelopt_bot.compiler._runtime import evaluate
from kernelopt_bot.contract.violation import shown

LIMIT = 1000
"""Characters."""

FUNCTIONS: Mapping[str, tuple[int, int]] = {"min": (2, 8), "max": (2, 8), "cdiv": (2, 2), "next_power_of_2": (1, 1)}
"""Name -> fewest and most arguments."""

NUM_SMS = "num_sms"
"""The device's number of multiprocessors."""


def check(expression: object, names: Collection[str]) -> str | None:
    """Why `expression` is not one of the language over `names` (num_sms is always known), or None."""
    if not isinstance(expression, str):
        return f"{shown(expression)} is not a text"
    if len(expression) > LIMIT:
        return f"longer than {LIMIT} characters"
    if not expression.isascii() or not expression.isprintable():
        return "holds a character that is not printable ASCII"
    try:
        tree = ast.parse(expression.strip(), mode="eval")
        return _check(tree.body, names)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return f"{expression[:80]!r} is not an expression"


def _check(node: ast.expr, names: Collection[str]) -> str | None:
    match node:
        case ast.Constant(value=bool()):
            return "a truth value is not an integer"
        case ast.Constant(value=int()):
            return None
        case ast.Name(id=name):
            return None if name in names or name == NUM_SMS else f"unknown name {name!r}"
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult() | ast.FloorDiv() | ast.Mod(), right=right):
            return _check(left, names) or _check(right, names)
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]) if name in FUNCTIONS:
            least, most = FUNCTIONS[name]
            if not least <= len(arguments) <= most:
                return f"{name} takes {least} to {most} arguments"
            return next((r for a in arguments if (r := _check(a, names))), None)
        case _:
            return f"{type(node).__name__} is not allowed in an expression"


def value(expression: str, names: Mapping[str, int]) -> int:
    """Raises ValueError where it is not of the language, divides by zero, or leaves 0 .. 2**63 - 1 on the way."""
    return evaluate(expression, names)
