"""Integer expressions of a kernel as sums of multiples of its index variables."""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kernelopt_bot.playbook.kernel_source import NotUnderstood


@dataclass(frozen=True)
class Affine:
    """`constant + sum(coefficient * variable)`; no coefficient is zero."""

    terms: Mapping[str, int]
    constant: int = 0

    def __add__(self, other: Affine) -> Affine:
        terms = dict(self.terms)
        for name, coefficient in other.terms.items():
            terms[name] = terms.get(name, 0) + coefficient
        return Affine({n: c for n, c in terms.items() if c}, self.constant + other.constant)

    def times(self, factor: int) -> Affine:
        return Affine({n: c * factor for n, c in self.terms.items() if c * factor}, self.constant * factor)

    def without(self, names: Collection[str]) -> Affine:
        return Affine({n: c for n, c in self.terms.items() if n not in names}, self.constant)

    def text(self) -> str:
        """Source text of the expression, variables in their order."""
        parts = [name if c == 1 else f"{c} * {name}" for name, c in self.terms.items()]
        return " + ".join([*parts, *([str(self.constant)] if self.constant or not parts else [])])


def affine(node: ast.expr, definitions: Mapping[str, ast.expr], variables: Collection[str]) -> Affine:
    """The expression in terms of `variables`; other names are followed through `definitions` (each bound once).

    Conversions between integer types are taken as exact, which they are for indices. Raises NotUnderstood for
    anything else than sums, differences and multiples.
    """
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return Affine({}, value)
        case ast.Name(id=name) if name in variables:
            return Affine({name: 1})
        case ast.Name(id=name) if name in definitions:
            return affine(definitions[name], definitions, variables)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return affine(operand, definitions, variables).times(-1)
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = 1 if isinstance(op, ast.Add) else -1
            return affine(left, definitions, variables) + affine(right, definitions, variables).times(sign)
        case ast.BinOp(left=left, op=ast.Mult(), right=right):
            one, other = affine(left, definitions, variables), affine(right, definitions, variables)
            if not one.terms:
                return other.times(one.constant)
            if not other.terms:
                return one.times(other.constant)
        case ast.Call(func=ast.Attribute(value=value, attr="to"), args=[kind]) if _integer(kind):
            return affine(value, definitions, variables)
        case ast.Call(args=[_, ast.Constant(value=int() as value), kind]) if (
                ast.unparse(node.func) == "tl.full" and _integer(kind)):
            return Affine({}, value)
    raise NotUnderstood(f"{ast.unparse(node)} is no sum of multiples of indices")


def _integer(node: ast.expr) -> bool:
    return ast.unparse(node) in ("tl.int32", "tl.int64")


@dataclass(frozen=True)
class Digit:
    """An index variable cut out of a flat index: `flat // divisor % modulus`, without the modulus where it is 0."""

    divisor: int
    modulus: int = 0


def digit(node: ast.expr, flat: str) -> Digit | None:
    """The expression as a digit of the flat index; None if it is something else."""
    match node:
        case ast.Name(id=name) if name == flat:
            return Digit(1)
        case ast.BinOp(left=ast.Name(id=name), op=ast.FloorDiv(), right=ast.Constant(value=int() as d)) if name == flat:
            return Digit(d)
        case ast.BinOp(left=left, op=ast.Mod(), right=ast.Constant(value=int() as m)):
            inner = digit(left, flat)
            if inner is not None and not inner.modulus:
                return Digit(inner.divisor, m)
    return None
