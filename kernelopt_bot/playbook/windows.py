"""Recognises a reduction over windows of rows: pooling and sums over small patches, with what is fused to them.

The kernel's flat output index is a row number and a place `x` in the row; its flat reduction index is a tap number
and a place `r` in the window's row. Every element that is read lies at column `stride * x + dilation * r` of its row.
"""

from __future__ import annotations

import ast
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernelopt_bot.playbook.affine import Affine, Digit, affine, digit
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, name_of
from kernelopt_bot.playbook.masks import without
from kernelopt_bot.playbook.rewrite import binds, expression, impure, reads, statements

_FRAME = frozenset({
    "xnumel", "r0_numel", "rnumel", "RBLOCK", "R0_BLOCK", "xoffset", "xindex", "xmask", "r0_base", "rbase", "r0_index",
    "r0_mask", "r0_offset", "roffset", "rindex"})
_NEUTRAL = {"tl.sum": "0.0", "triton_helpers.max2": "float('-inf')", "triton_helpers.min2": "float('inf')"}
COMBINE: Mapping[str, str] = {
    "tl.sum": "{a} + {b}",
    "triton_helpers.max2": "tl.maximum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
    "triton_helpers.min2": "tl.minimum({a}, {b}, propagate_nan=tl.PropagateNan.ALL)",
}
"""Reduction -> combination of two floating-point values; NaN stays NaN as in Inductor's helpers, in one instruction."""
_INTO_ACCUMULATOR = {
    "tl.sum": "{a} + {v}", "triton_helpers.max2": "triton_helpers.maximum({a}, {v})",
    "triton_helpers.min2": "triton_helpers.minimum({a}, {v})"}


@dataclass(frozen=True)
class Window:
    """The first column that the first output reads has the number `shift`."""

    outputs: int
    """Outputs in a row."""
    rows: int
    taps: int
    """Rows of a window."""
    width: int
    """Places in a window's row."""
    stride: int
    dilation: int
    shift: int
    valid: tuple[int, int]
    """First column and the column after the last that can hold anything but the neutral element."""
    function: str
    result: str
    value: str
    inside: tuple[ast.stmt, ...]
    """What is computed for each element, in terms of `window_column`, `row_number` and `tap`."""
    after: tuple[ast.stmt, ...]
    """What is done with a result, in terms of `window_x` and `row_number`."""
    loads: tuple[tuple[str, Affine], ...] = field(default=())
    """Pointer and index of each load of `inside` that depends on the column, column included."""

    @property
    def neutral(self) -> str:
        return _NEUTRAL[self.function]


def window_of(source: KernelSource, shift: int = 0) -> Window:
    """The window that the kernel reduces, its columns counted from `shift`. Raises NotUnderstood."""
    rows_, window = source.constants.get("xnumel"), source.constants.get("r0_numel")
    if source.dimensions != ("x", "r0_") or not rows_ or not window or len(source.loops) > 1:
        raise NotUnderstood("no reduction over static windows")
    flat, reduced = _straight(source)
    digits_x, digits_r = _digits(flat, "xindex"), _digits(flat, "r0_index")
    outputs = _least(digits_x, rows_)
    width = _least(digits_r, window)
    places = _Places(outputs, width, digits_x, digits_r)
    definitions = {name_of(s): s.value for s in flat if isinstance(s, ast.Assign) and name_of(s)}
    inside = _slice(flat, reduced.value, {reduced.result})
    columns = _Columns(places, definitions, shift)
    rewritten = [columns.rewritten(s) for s in _copies(without(inside, {"r0_mask"}))]
    if not columns.stride:
        raise NotUnderstood("nothing is read along a row")
    for statement in rewritten:
        if impure(statement) or reads(statement) & {"xindex", "r0_index", *places.columns}:
            raise NotUnderstood(f"{ast.unparse(statement)} is not a function of row and column")
    stored = [s for s in flat if impure(s)]
    after = _after(flat, reduced, stored)
    span = columns.stride * (outputs - 1) + columns.dilation * (width - 1) + 1
    bounds = _valid(reduced, definitions, columns, _NEUTRAL[reduced.function])
    return Window(
        outputs, rows_ // outputs, window // width, width, columns.stride, columns.dilation,
        shift, (max(shift, bounds[0]), min(span + shift, bounds[1])), reduced.function, reduced.result, reduced.value,
        (*statements(places.inner()), *rewritten), (*statements(places.outer()), *after), tuple(columns.loads))


@dataclass(frozen=True)
class _Reduced:
    result: str
    value: str
    function: str


def _straight(source: KernelSource) -> tuple[list[ast.stmt], _Reduced]:
    """Statements in order, the loop's among them, without frame, accumulators and the reduction itself."""
    flat = [inner for s in source.body for inner in (s.body if isinstance(s, ast.For) else [s])]
    found = [(s, r) for s in flat if (r := _reduction(s)) is not None]
    if len(found) != 1:
        raise NotUnderstood(f"{len(found)} reductions")
    statement, reduced = found[0]
    dropped: set[str] = set()
    if source.loops:
        accumulator = reduced.value
        value = _accumulated(source.loops[0], accumulator, reduced.function)
        dropped = {accumulator, value[0]}
        reduced = _Reduced(reduced.result, value[1], reduced.function)
    barrier = "tl.debug_barrier()"
    kept = [s for s in flat if s is not statement and not (name_of(s) and name_of(s) in _FRAME | dropped)
            and ast.unparse(s) != barrier]
    if any(isinstance(s, ast.For) or reads(s) & dropped for s in kept):
        raise NotUnderstood("the accumulator is used elsewhere")
    return kept, reduced


def _reduction(statement: ast.stmt) -> _Reduced | None:
    """`result = function(value, 1)[:, None]`, with or without a conversion to float32."""
    if not isinstance(statement, ast.Assign) or not name_of(statement):
        return None
    node = statement.value
    match node:
        case ast.Call(func=ast.Attribute(value=inner, attr="to"), args=[kind]) if ast.unparse(kind) == "tl.float32":
            node = inner
    match node:
        case ast.Subscript(value=ast.Call(func=function, args=[ast.Name(id=value), ast.Constant(value=1)], keywords=[])
                           ) if ast.unparse(function) in _NEUTRAL:
            return _Reduced(name_of(statement), value, ast.unparse(function))
    return None


def _accumulated(loop: ast.For, accumulator: str, function: str) -> tuple[str, str]:
    """(name of the updated accumulator, name of the value that goes into it)."""
    values = {name_of(s): s.value for s in loop.body if isinstance(s, ast.Assign) and name_of(s)}
    match values.get(accumulator):
        case ast.Call(func=where, args=[_, ast.Name(id=updated), ast.Name(id=old)]) if (
                ast.unparse(where) == "tl.where" and old == accumulator):
            for node in ast.walk(values[updated]):
                if isinstance(node, ast.Name) and node.id != accumulator:
                    wanted = _INTO_ACCUMULATOR[function].format(a=accumulator, v=node.id)
                    if ast.unparse(values[updated]) == wanted:
                        return updated, node.id
    raise NotUnderstood("an accumulator of another form")


def _digits(flat: Sequence[ast.stmt], index: str) -> dict[str, Digit]:
    pairs = ((name_of(s), digit(s.value, index)) for s in flat if isinstance(s, ast.Assign) and name_of(s))
    return {name: found for name, found in pairs if found is not None}


def _least(digits: Mapping[str, Digit], numel: int) -> int:
    """Extent of the innermost digit."""
    extent = min((d.modulus for d in digits.values() if d.divisor == 1 and d.modulus), default=numel)
    for d in digits.values():
        if d.divisor % extent if d.divisor != 1 else d.modulus % extent:
            raise NotUnderstood("index variables that do not nest")
    if numel % extent:
        raise NotUnderstood("rows of unequal length")
    return extent


class _Places:
    """Index variables in terms of `window_x` and `row_number`, `window_r` and `tap`."""

    def __init__(self, outputs: int, width: int, x: Mapping[str, Digit], r: Mapping[str, Digit]) -> None:
        self._x = self._named(x, outputs, "row_number", "window_x")
        self._r = self._named(r, width, "tap", "window_r")
        self.affine = {n: expression(t) for n, t in {**self._x, **self._r}.items() if n in self._along}
        self.columns = set(self.affine)

    _along: frozenset[str] = frozenset()

    def _named(self, digits: Mapping[str, Digit], extent: int, outer: str, place: str) -> dict[str, str]:
        """Name -> text. Those that hold the place in the row are affine in it; the others are outer digits."""
        found: dict[str, str] = {}
        for name, d in digits.items():
            if d.divisor == 1:
                folds = d.modulus // extent
                over = outer if not d.modulus else f"{outer} % {folds}"
                found[name] = place if folds == 1 else f"{place} + {extent} * {name}_outer"
                if folds != 1:
                    found[f"{name}_outer"] = over
                self._along |= {name}
            else:
                factor = d.divisor // extent
                text = outer if factor == 1 else f"{outer} // {factor}"
                found[name] = f"{text} % {d.modulus}" if d.modulus else text
        return found

    @property
    def variables(self) -> set[str]:
        """What an index may be a sum of."""
        return {"window_x", "window_r"} | {n for n in (*self._x, *self._r) if n not in self._along}

    def inner(self) -> str:
        """Source text that binds the outer digits, of rows and of taps."""
        return "\n".join(f"{n} = {t}" for n, t in {**self._x, **self._r}.items() if n not in self._along)

    def outer(self) -> str:
        """Source text that binds the digits of an output."""
        digits = sorted(self._x.items(), key=lambda pair: pair[0] in self._along)
        return "\n".join(f"{n} = {t}" for n, t in digits)


class _Columns(ast.NodeTransformer):
    """Replaces what depends on the places `x` and `r` by the column, where it does so in the one known proportion."""

    def __init__(self, places: _Places, definitions: Mapping[str, ast.expr], shift: int) -> None:
        self._places, self._shift = places, shift
        self._definitions = {**definitions, **places.affine}
        self.stride = self.dilation = 0
        self.loads: list[tuple[str, Affine]] = []

    def affine(self, node: ast.expr) -> Affine | None:
        """In terms of `window_column` and outer digits; None if it is no sum of indices. Raises NotUnderstood for
        another proportion of the two places."""
        try:
            found = affine(node, self._definitions, self._places.variables)
        except NotUnderstood:
            return None
        x, r = found.terms.get("window_x", 0), found.terms.get("window_r", 0)
        if not x and not r:
            return found
        if not self.stride:
            common = math.gcd(x, r)
            if x <= 0 or r <= 0:
                raise NotUnderstood("one place without the other")
            self.stride, self.dilation = x // common, r // common
        factor, left = divmod(x, self.stride)
        if left or factor <= 0 or r != factor * self.dilation:
            raise NotUnderstood("places in another proportion")
        return Affine({"window_column": factor}, -factor * self._shift) + found.without({"window_x", "window_r"})

    def rewritten(self, statement: ast.stmt) -> ast.stmt:
        """Raises NotUnderstood."""
        result: ast.stmt = self.visit(statement)
        return result

    def visit(self, node: ast.AST) -> Any:
        if isinstance(node, ast.BinOp | ast.Name | ast.UnaryOp | ast.Call) and not isinstance(
                getattr(node, "ctx", None), ast.Store):
            found = self.affine(node)
            if found is not None and "window_column" in found.terms:
                return expression(found.text())
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "tl.load":
            self._load(node)
        return super().generic_visit(node)

    def _load(self, node: ast.Call) -> None:
        match node.args[0] if node.args else None:
            case ast.BinOp(left=ast.Name(id=pointer), op=ast.Add(), right=index):
                found = self.affine(index)
                if found is not None:
                    if found.terms.get("window_column", 1) != 1:
                        raise NotUnderstood("columns that are not next to each other in memory")
                    if "window_column" in found.terms:
                        self.loads.append((pointer, found))
                    return
        raise NotUnderstood(f"{ast.unparse(node)} reads through another index")


def _copies(body: Sequence[ast.stmt]) -> list[ast.stmt]:
    """Without statements that bind digits: those are bound anew."""
    return [s for s in body if not (isinstance(s, ast.Assign) and
                                    (digit(s.value, "xindex") or digit(s.value, "r0_index")))]


def _slice(flat: Sequence[ast.stmt], wanted: str, stop: Collection[str]) -> list[ast.stmt]:
    """The statements that `wanted` depends on, in order."""
    needed, kept = {wanted}, []
    for statement in reversed(flat):
        if binds(statement) & needed:
            if binds(statement) & set(stop):
                raise NotUnderstood("a value that depends on its own reduction")
            kept.append(statement)
            needed |= reads(statement)
    return kept[::-1]


def _after(flat: Sequence[ast.stmt], reduced: _Reduced, stored: Sequence[ast.stmt]) -> list[ast.stmt]:
    """The statements that the stores depend on, up to the result."""
    needed: set[str] = set()
    kept: list[ast.stmt] = []
    for statement in reversed(flat):
        if statement in stored or binds(statement) & needed:
            needed |= reads(statement)
            if not (isinstance(statement, ast.Assign) and digit(statement.value, "xindex")):
                kept.append(statement)
    if any("xindex" in reads(s) for s in kept) or reduced.result not in needed or needed & {"r0_index", "r0_mask"}:
        raise NotUnderstood("a store that is not of the result alone")
    return kept[::-1]


def _valid(reduced: _Reduced, definitions: Mapping[str, ast.expr], columns: _Columns, neutral: str) -> tuple[int, int]:
    """Columns outside of which the value is certainly the neutral element."""
    node: ast.expr | None = definitions.get(reduced.value)
    low, high = -(1 << 62), 1 << 62
    while node is not None:
        match node:
            case ast.Name(id=name):
                node = definitions.get(name)
            case ast.Call(func=ast.Attribute(value=inner, attr="to")):
                node = inner
            case ast.Call(func=function, args=[inner, *_]) if ast.unparse(function) == "tl.broadcast_to":
                node = inner
            case ast.Call(func=function, args=[mask, chosen, other]) if ast.unparse(function) == "tl.where":
                if _constant(other, definitions) != neutral:
                    break
                low, high = _bounds(mask, definitions, columns, (low, high))
                node = chosen
            case ast.Call(func=function, args=[_, mask, *_], keywords=keywords) if ast.unparse(function) == "tl.load":
                fill = next((k.value for k in keywords if k.arg == "other"), None)
                if fill is not None and _constant(fill, definitions) == neutral:
                    low, high = _bounds(mask, definitions, columns, (low, high))
                break
            case _:
                break
    return low, high


def _constant(node: ast.expr, definitions: Mapping[str, ast.expr]) -> str:
    """Text of a constant, through `tl.full`; a number as a float."""
    match node:
        case ast.Name(id=name) if name in definitions:
            return _constant(definitions[name], definitions)
        case ast.Call(func=function, args=[_, value, _]) if ast.unparse(function) == "tl.full":
            return _constant(value, definitions)
        case ast.Constant(value=int() | float() as value):
            return str(float(value))
    return ast.unparse(node)


def _bounds(mask: ast.expr, definitions: Mapping[str, ast.expr], columns: _Columns, known: tuple[int, int],
            ) -> tuple[int, int]:
    """`known` narrowed by the conjuncts of the mask that compare a column with a constant."""
    match mask:
        case ast.Name(id=name) if name in definitions:
            return _bounds(definitions[name], definitions, columns, known)
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _bounds(right, definitions, columns, _bounds(left, definitions, columns, known))
        case ast.Compare(left=left, ops=[op], comparators=[right]):
            place, limit = columns.affine(left), columns.affine(right)
            if (place is not None and limit is not None and not limit.terms
                    and dict(place.terms) == {"window_column": 1}):
                bound = limit.constant - place.constant
                if isinstance(op, ast.GtE):
                    return max(known[0], bound), known[1]
                if isinstance(op, ast.Lt):
                    return known[0], min(known[1], bound)
    return known
