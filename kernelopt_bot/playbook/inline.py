"""A kernel's value computed where another kernel would load it: the producer's body, moved into its consumer.

Element by element: the producer is pointwise, its index becomes the index of the load. By row: all lanes of a program
load the same element, so that the producer, pointwise or a short reduction, runs once for the program, in a tile of one
row. A value keeps the rounding of the buffer that it no longer passes through.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kernelopt_bot.playbook.kernel_source import Access, KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.rewrite import binds, expression, impure, reads, statements, substitute
from kernelopt_bot.playbook.syntax import copied

LONGEST_ROW = 4096
"""Elements of a reduction that each program of the consumer repeats."""
_TYPES = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32",
          "i16": "int16", "i8": "int8", "u8": "uint8", "i1": "int1"}
_HEAD = frozenset({"xnumel", "xoffset", "xindex", "xmask", "ynumel", "yoffset", "yindex", "ymask", "rnumel", "r0_numel",
                   "roffset", "r0_offset"})
_GRIDS = ("Grid1D", "Grid2D", "Grid2DWithYZOverflow")
_BOUNDS = frozenset({"xmask", "ymask"})

Expand = Callable[[Access, "Site"], list[ast.stmt] | None]
"""Statements that bind `Site.target` to what a load of the moved body yields, None where it stays a load."""


@dataclass(frozen=True)
class Site:
    """Where a load stands: the index as the surrounding code computes it, `mask` None where all lanes count, `shape`
    of a whole tile there, and the variable that is to hold the value."""

    index: ast.expr
    mask: ast.expr | None
    shape: tuple[str, ...]
    target: str
    once: bool
    """True in code that runs in a tile of one row."""


def definitions(source: KernelSource) -> dict[str, ast.expr]:
    """Index variables (x0, y1, ...) of the straight part of a body in terms of `xindex` and `yindex`."""
    known: dict[str, ast.expr] = {}
    for statement in source.body:
        name = name_of(statement)
        of_index = reads(statement) <= {"xindex", "yindex", *known}
        if isinstance(statement, ast.Assign) and name and name not in _HEAD and of_index:
            known[name] = substitute(statement.value, known)
    return known


def stored_value(source: KernelSource, pointer: str) -> ast.expr:
    """What a producer stores through `pointer`, at the element that `indices` finds again. Raises NotUnderstood for
    anything but one store of something computed, in such an order."""
    return _store(source, pointer)[1]


def _store(source: KernelSource, pointer: str) -> tuple[str, ast.expr]:
    """(index in terms of `xindex` and `yindex`, value)."""
    stores = [n for s in source.body for n in ast.walk(s) if isinstance(n, ast.Call)
              and (a := access_of(n)) is not None and a.kind == "store" and a.pointer == pointer]
    if len(stores) != 1:
        raise NotUnderstood(f"{len(stores)} stores through {pointer}")
    access, value = access_of(stores[0]), stores[0].args[1]
    assert access is not None
    index = ast.unparse(substitute(access.index, definitions(source)))
    if source.numel("x") == 1 and "y" not in source.dimensions and index.startswith(("tl.full([1", "0")):
        index = "xindex"
    if not indices(source, index, "e"):
        raise NotUnderstood(f"{pointer} is written at {index}")
    if not reads(value):
        raise NotUnderstood(f"{pointer} takes a constant")
    return index, value


def indices(source: KernelSource, written: str, element: str) -> dict[str, str]:
    """`xindex` (and `yindex`) of the program lane that wrote an element, from the index that it wrote at; {} where
    that is not known."""
    if "y" not in source.dimensions:
        return {"xindex": element} if written == "xindex" else {}
    x, y = source.numel("x"), source.numel("y")
    if written in (f"xindex + {x} * yindex", f"{x} * yindex + xindex"):
        return {"xindex": f"({element}) % {x}", "yindex": f"({element}) // {x}"}
    if written in (f"yindex + {y} * xindex", f"{y} * xindex + yindex"):
        return {"yindex": f"({element}) % {y}", "xindex": f"({element}) // {y}"}
    return {}


def movable(source: KernelSource) -> bool:
    """Whether a producer is of a kind whose body can be moved: by element if pointwise, by row if a short reduction."""
    numel = (source.numel("x") or 0) * (1 if "y" not in source.dimensions else source.numel("y") or 0)
    if source.grid_type not in _GRIDS or source.loops or not 0 < numel < 1 << 31:
        return False
    if any(impure(s) and not _plain_store(s) for s in source.body) or source.calls("tl.device_assert"):
        return False
    if source.heuristic == "pointwise":
        return source.dimensions in (("x",), ("x", "y"))
    return (source.heuristic == "persistent_reduction" and source.dimensions == ("x", "r0_")
            and source.tunable == ("XBLOCK",) and source.fixed.get("R0_BLOCK", LONGEST_ROW + 1) <= LONGEST_ROW)


def _plain_store(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    access = access_of(value) if isinstance(value, ast.Call) else None
    return access is not None and access.kind == "store"


def moved(source: KernelSource, outputs: Mapping[str, str], at: Site, prefix: str, expand: Expand,
          rename: Callable[[str], str]) -> list[ast.stmt]:
    """The producer's body at a load: binds `<prefix><pointer>` to the element that a load of that output would read.

    `outputs`: pointers that it stores through, with their types; `prefix` keeps its variables apart, `rename` gives
    its pointers the consumer's names, `expand` moves further producers into it. Raises NotUnderstood.
    """
    row = source.heuristic != "pointwise"
    if row and not at.once:
        raise NotUnderstood("a reduction would be repeated for each element")
    r0 = source.fixed.get("R0_BLOCK", 1)
    shape = ("1", str(r0)) if row else at.shape
    constants = {"XBLOCK": "1" if row else shape[0], "R0_BLOCK": str(r0), "RBLOCK": str(r0)}
    constants |= {n: str(size) for n, size in source.constants.items()}
    constants |= {"rnumel": constants["r0_numel"]} if row else {}
    written = {_store(source, pointer)[0] for pointer in outputs}
    if len(written) != 1:
        raise NotUnderstood("outputs in different orders")
    index = ast.unparse(at.index)
    index = f"tl.full([1, 1], 0, tl.int32) + ({index})" if row else index
    result = statements(f"{prefix}element = {index}")
    for name, text in indices(source, written.pop(), f"{prefix}element").items():
        result += statements(f"{prefix}{name} = {text}")
    mask = None if row else at.mask
    if row:
        result += statements(f"{prefix}xmask = tl.full([1, 1], True, tl.int1)")
    body = [copied(s) for s in source.body
            if not (name_of(s) in _HEAD or isinstance(s, ast.AnnAssign) or _plain_store(s)
                    or (isinstance(s, ast.Assign) and name_of(s) in ("RBLOCK", "R0_BLOCK")))]
    for number, pointer in enumerate(outputs):
        body += statements(f"value{number} = {ast.unparse(stored_value(source, pointer))}")
    local = {n for s in body for n in binds(s)} | {"xindex", "yindex"}
    names: dict[str, ast.expr] = {n: expression(prefix + n) for n in local}
    names |= {n: expression(text) for n, text in constants.items()}
    names |= {"r0_offset": expression("0"), "roffset": expression("0")}
    if row:
        names["xmask"] = expression(f"{prefix}xmask")
    depends = _lanewise(source)
    for number, statement in enumerate(body):
        changer = _Loads(depends, mask, row, replace(at, shape=shape), f"{prefix}l{number}", expand, names, rename)
        statement = changer.visit(statement)
        if not row:
            statement = _Tiles(shape, "y" in source.dimensions).visit(statement)
        for node in ast.walk(statement):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                node.id = prefix + node.id
        result += changer.before
        result.append(ast.fix_missing_locations(_Renamed(names, rename).visit(statement)))
    for number, (pointer, type_) in enumerate(outputs.items()):
        dtype = _TYPES.get(type_.lstrip("*"))
        if dtype is None:
            raise NotUnderstood(f"a buffer of {type_}")
        value = f"{prefix}value{number}"
        value = f"tl.reshape({value}, [1])" if row else value
        result += statements(f"{prefix}{pointer} = {value}.to(tl.{dtype})")
    return result


def lanes_masked(source: KernelSource) -> list[ast.stmt]:
    """A body in which every unmasked access whose element differs from lane to lane has the mask `xmask`."""
    lanes = _lanewise(source)
    body = [copied(s) for s in source.body]
    for call in (n for s in body for n in ast.walk(s) if isinstance(n, ast.Call)):
        access = access_of(call)
        if access is not None and access.mask is None and reads(access.index) & lanes:
            position = 1 if access.kind == "load" else 2
            call.args[position:] = [expression("xmask"), *call.args[position + 1:]]
            call.keywords = [k for k in call.keywords if k.arg != "mask"]
    return body


def _lanewise(source: KernelSource) -> set[str]:
    """Variables that differ from lane to lane."""
    found = {"xindex", "yindex"}
    for statement in source.body:
        if reads(statement) & found:
            found |= binds(statement)
    return found


class _Renamed(ast.NodeTransformer):
    def __init__(self, names: dict[str, ast.expr], rename: Callable[[str], str]) -> None:
        self.names, self.rename = names, rename

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if getattr(node, "done", False) or not isinstance(node.ctx, ast.Load):
            return node
        if node.id in self.names:
            return copied(self.names[node.id])
        return ast.Name(self.rename(node.id), ast.Load())


class _Tiles(ast.NodeTransformer):
    """A pointwise producer's tile becomes the consumer's, and `[1, 1]`, what fits a tile of any rank."""

    def __init__(self, shape: Sequence[str], two: bool) -> None:
        self.shape, self.two = shape, two

    def visit_List(self, node: ast.List) -> ast.expr:
        sizes = [ast.unparse(e) for e in node.elts]
        if sizes == (["YBLOCK", "XBLOCK"] if self.two else ["XBLOCK"]):
            return _finished(expression(f"[{', '.join(self.shape)}]"))
        if self.two and sizes == ["1", "1"]:
            return expression("[1]")
        return node


def _finished(node: ast.expr) -> ast.expr:
    """Marks names that belong to the consumer already."""
    for inner in ast.walk(node):
        if isinstance(inner, ast.Name):
            inner.done = True  # type: ignore[attr-defined]
    return node


class _Loads(ast.NodeTransformer):
    """Gives the loads of a moved body the mask of the place, and moves further producers in."""

    def __init__(self, depends: set[str], mask: ast.expr | None, row: bool, at: Site, stem: str, expand: Expand,
                 names: dict[str, ast.expr], rename: Callable[[str], str]) -> None:
        self.depends, self.mask, self.row, self.at, self.stem = depends, mask, row, at, stem
        self.expand, self.names, self.rename = expand, names, rename
        self.before: list[ast.stmt] = []

    def visit_Name(self, node: ast.Name) -> ast.expr:
        if node.id in _BOUNDS and isinstance(node.ctx, ast.Load) and not self.row:
            return _finished(copied(self.mask)) if self.mask is not None else expression("True")
        return node

    def visit_Call(self, node: ast.Call) -> ast.expr:
        access = access_of(node)
        if access is None or access.kind != "load":
            self.generic_visit(node)
            return node
        own = None if access.mask is None or _names(access.mask) <= _BOUNDS else access.mask
        if own is not None:
            own = self.visit(copied(own))
        lanes = bool(reads(access.index) & self.depends)
        outer = _finished(copied(self.mask)) if self.mask is not None and lanes else None
        mask = outer if own is None else own if outer is None else ast.BinOp(outer, ast.BitAnd(), own)
        index = _Renamed(self.names, self.rename).visit(copied(access.index))
        shown = None if mask is None else _Renamed(self.names, self.rename).visit(copied(mask))
        target = f"{self.stem}_{len(self.before)}"
        more = self.expand(access, Site(index, shown, self.at.shape if lanes or self.row else ("1",), target,
                                        self.at.once and not (self.row and _along(access.index, self.depends))))
        if more is not None:
            self.before += more
            other = next((k.value for k in node.keywords if k.arg == "other"), None)
            if shown is None or other is None:
                return _finished(expression(target))
            return _finished(expression(f"tl.where({ast.unparse(shown)}, {target}, {ast.unparse(other)})"))
        keywords = [k for k in node.keywords if k.arg != "mask" and (k.arg != "other" or mask is not None)]
        return ast.Call(node.func, [node.args[0], mask or ast.Constant(None)], keywords)


def _names(node: ast.expr) -> set[str]:
    return {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}


def _along(index: ast.expr, depends: set[str]) -> bool:
    """Whether an index of a row's code runs along the row."""
    return any(n.startswith("r0_") or n in ("rindex", "r0_index") for n in reads(index))
