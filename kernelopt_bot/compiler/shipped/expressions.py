"""The plan's expression language."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping

from kernelopt_bot.compiler.shipped.errors import PlanError

LARGEST_INTEGER = 2**63 - 1


def _cdiv(a: int, b: int) -> int:
    return -(-a // b)


_FUNCTIONS: dict[str, Callable[..., int]] = {
    "min": min, "max": max, "cdiv": _cdiv, "next_power_of_2": lambda n: 1 << max(n - 1, 0).bit_length()}
_ARITY = {"min": (1, 8), "max": (1, 8), "cdiv": (2, 2), "next_power_of_2": (1, 1)}
_OPERATORS: dict[type[ast.operator], Callable[[int, int], int]] = {
    ast.Add: int.__add__, ast.Sub: int.__sub__, ast.Mult: int.__mul__,
    ast.FloorDiv: int.__floordiv__, ast.Mod: int.__mod__}


def evaluate(expression: str | int, names: Mapping[str, int]) -> int:
    """The value of a plan expression: integers, names, + - * // % min max cdiv next_power_of_2, nothing else.

    Raises PlanError on anything else, on an unknown name, division by zero, and on any value, intermediate ones
    included, that is negative or over 2**63 - 1."""
    if not isinstance(expression, (str, int)) or isinstance(expression, bool):
        raise PlanError(f"an expression is a text or an integer, not {type(expression).__name__}")
    if isinstance(expression, int) and not 0 <= expression <= LARGEST_INTEGER:
        raise PlanError("an integer is negative or over 2**63 - 1")
    text = str(expression)
    if len(text) > 1000:
        raise PlanError("an expression is over 1000 characters long")
    try:
        return _value(ast.parse(text, mode="eval").body, names)
    except (SyntaxError, RecursionError, MemoryError, ZeroDivisionError, ValueError, TypeError) as e:
        raise PlanError(f"expression {text[:80]!r}: {e}") from None


def _value(node: ast.expr, names: Mapping[str, int]) -> int:
    match node:
        case ast.Constant(value=bool()):
            raise PlanError("not an integer")
        case ast.Constant(value=int(result)):
            pass
        case ast.Name(id=name):
            if name not in names:
                raise PlanError(f"unknown name {name!r}")
            result = names[name]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _OPERATORS:
            result = _OPERATORS[type(op)](_value(left, names), _value(right, names))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]) if name in _FUNCTIONS:
            if not _ARITY[name][0] <= len(args) <= _ARITY[name][1]:
                raise PlanError(f"wrong number of arguments of {name}")
            result = _FUNCTIONS[name](*(_value(a, names) for a in args))
        case _:
            raise PlanError(f"{ast.unparse(node)[:40]!r} is not allowed")
    if not 0 <= result <= LARGEST_INTEGER:
        raise PlanError(f"{ast.unparse(node)[:40]!r} is {'negative' if result < 0 else 'over 2**63 - 1'}")
    return result
