"""What holds in part of an index variable's range: comparisons that are decided there go out of the code."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import pairwise

from kernelopt_bot.playbook.affine import Affine, affine
from kernelopt_bot.playbook.kernel_source import NotUnderstood, name_of
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import drop_dead, substitute
from kernelopt_bot.playbook.syntax import copied

_MIRRORED: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.GtE: ast.LtE, ast.LtE: ast.GtE, ast.Gt: ast.Lt, ast.Lt: ast.Gt}


def comparisons(body: Sequence[ast.stmt], variables: Collection[str]) -> dict[str, tuple[str, int, bool]]:
    """Name of a boolean -> (variable, threshold, whether it is true from the threshold on; else before it).

    Only booleans that compare one of the index `variables`, with coefficient one, with a constant; two constants
    compared have the variable '' and are decided everywhere.
    """
    definitions = {name_of(s): s.value for s in body if isinstance(s, ast.Assign) and name_of(s)}
    definitions = {n: v for n, v in definitions.items() if n not in variables}
    found = {}
    for name, value in definitions.items():
        match value:
            case ast.Compare(left=left, ops=[op], comparators=[right]) if type(op) in _MIRRORED:
                try:
                    one, other = (affine(n, definitions, variables) for n in (left, right))
                except NotUnderstood:
                    continue
                if not one.terms and other.terms:
                    one, other, op = other, one, _MIRRORED[type(op)]()
                decided = _threshold(one + other.times(-1), op)
                if decided is not None:
                    found[name] = decided
    return found


def _threshold(difference: Affine, op: ast.cmpop) -> tuple[str, int, bool] | None:
    """`difference op 0` as a threshold on its one variable."""
    match list(difference.terms.items()):
        case []:
            return "", 0, {ast.GtE: difference.constant >= 0, ast.Gt: difference.constant > 0,
                           ast.Lt: difference.constant < 0, ast.LtE: difference.constant <= 0}[type(op)]
        case [(variable, 1)]:
            bound = -difference.constant
            match op:
                case ast.GtE():
                    return variable, bound, True
                case ast.Gt():
                    return variable, bound + 1, True
                case ast.Lt():
                    return variable, bound, False
                case ast.LtE():
                    return variable, bound + 1, False
    return None


def regions(found: Mapping[str, tuple[str, int, bool]], variable: str, extent: int) -> list[tuple[int, int]]:
    """The parts of [0, extent) in which every comparison of the variable is decided, longest first."""
    cuts = sorted({0, extent, *(t for v, t, _ in found.values() if v == variable and 0 < t < extent)})
    return sorted(pairwise(cuts), key=lambda p: p[0] - p[1])


def within_region(body: Sequence[ast.stmt], found: Mapping[str, tuple[str, int, bool]], variable: str,
                  region: tuple[int, int]) -> list[ast.stmt]:
    """The body as it is where `region[0] <= variable < region[1]`: decided comparisons folded, dead code gone.

    A load under a mask that is false there stays as it was, unless nothing uses it. `body` is straight-line code that
    binds each name once.
    """
    true: set[str] = set()
    false: set[str] = set()
    for name, (v, threshold, above) in found.items():
        if v in (variable, "") and threshold <= region[0]:
            (true if above else false).add(name)
        elif v == variable and threshold >= region[1]:
            (false if above else true).add(name)
    result: list[ast.stmt] = []
    same: dict[str, ast.expr] = {}
    for statement in body:
        value = statement.value if isinstance(statement, ast.Assign) else None
        if value is not None and (truth := _truth(value, true, false)) is not None:
            (true if truth else false).add(name_of(statement))
        folded = substitute(statement, same)
        chosen = _chosen(folded.value, false) if isinstance(folded, ast.Assign) else None
        if chosen is not None and name_of(folded):
            assert isinstance(folded, ast.Assign)
            folded.value = chosen
        folded = without([folded], true)[0]
        if isinstance(folded, ast.Assign) and isinstance(folded.value, ast.Name) and name_of(folded):
            same[name_of(folded)] = folded.value
        result.append(folded)
    return drop_dead(result)


def _truth(value: ast.expr, true: Collection[str], false: Collection[str]) -> bool | None:
    """Truth of a conjunction of names; None where it is open or of another form."""
    match value:
        case ast.Name(id=name):
            return True if name in true else False if name in false else None
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            parts = (_truth(left, true, false), _truth(right, true, false))
            return False if False in parts else True if parts == (True, True) else None
    return None


def _chosen(value: ast.expr, false: Collection[str]) -> ast.expr | None:
    """The second branch of a selection whose condition is false."""
    match value:
        case ast.Call(args=[ast.Name(id=name), _, other], keywords=[]) if (
                ast.unparse(value.func) == "tl.where" and name in false):
            return copied(other)
    return None


def indented(body: Sequence[ast.stmt]) -> Iterator[str]:
    """Source lines of a block."""
    for statement in body:
        yield from (f"    {line}" for line in ast.unparse(ast.fix_missing_locations(statement)).splitlines())
