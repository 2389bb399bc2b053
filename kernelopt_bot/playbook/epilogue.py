"""The kernel after a vendor call, computed on values that are still in registers: its body with the loads of the
vendor's result replaced."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from kernelopt_bot.compiler.run import KernelRun
from kernelopt_bot.contract.body import dotted
from kernelopt_bot.playbook.inline import definitions
from kernelopt_bot.playbook.kernel_source import KernelSource, NotUnderstood, access_of, name_of
from kernelopt_bot.playbook.rewrite import expression, impure, reads, statements, substitute
from kernelopt_bot.playbook.syntax import copied

_HEAD = frozenset({"xnumel", "xoffset", "xindex", "xmask", "rnumel", "RBLOCK", "roffset", "rindex"})
_FLOATS = {"fp32": "tl.float32", "fp16": "tl.float16", "bf16": "tl.bfloat16"}


@dataclass(frozen=True)
class Epilogue:
    """A kernel that takes the result of the vendor call of its run. `pointers`: its pointer parameter -> buffer."""

    source: KernelSource
    pointers: Mapping[str, str]
    out: str
    """The buffer of the vendor's result."""
    row: int
    """Elements of a row for a reduction along it, 0 for a pointwise kernel."""
    numel: int

    @property
    def loads(self) -> frozenset[str]:
        """Buffers that it still loads from."""
        return frozenset(self.pointers[a.pointer] for a in self.source.loads) - {self.out}

    @property
    def stores(self) -> frozenset[str]:
        return frozenset(self.pointers[a.pointer] for a in self.source.stores)


def epilogue_of(run: KernelRun, source: KernelSource) -> Epilogue:
    """Raises NotUnderstood unless each load of the vendor's result is of the lane's own element, in memory order."""
    if run.vendor is None or len(run.calls) != 1:
        raise NotUnderstood("not a vendor call and one kernel")
    call = run.calls[0]
    pointers = {a.name: p for a, p in zip(call.step.arguments, call.arguments, strict=True) if isinstance(p, str)}
    x = source.numel("x")
    if x is None or source.loops or source.grid_type != "Grid1D" or source.helpers or any(
            impure(s) and not _store(s) for s in source.body) or source.calls("tl.device_assert"):
        raise NotUnderstood("a kernel of another shape")
    row = 0
    if source.heuristic == "persistent_reduction" and source.dimensions == ("x", "r0_"):
        row = source.numel("r0_") or 0
        if not row or "R0_BLOCK" not in source.fixed or source.tunable != ("XBLOCK",):
            raise NotUnderstood("a reduction of another shape")
    elif source.heuristic != "pointwise" or source.dimensions != ("x",):
        raise NotUnderstood(f"a {source.heuristic} kernel over {source.dimensions}")
    found = Epilogue(source, pointers, run.vendor.out, row, x * (row or 1))
    touched = [a for a in source.accesses if pointers.get(a.pointer) == found.out]
    if not any(a.kind == "load" for a in touched) or len(source.accesses) != _memory(source):
        raise NotUnderstood("memory that is reached in another way")
    known = _known(source)
    for access in touched:
        if ast.dump(substitute(access.index, known)) not in own_element(row):
            raise NotUnderstood("elements of the result that are not the lane's own")
    head = {name_of(s) for s in source.body if name_of(s) in _HEAD}
    if any(reads(s) & {"xoffset", "roffset"} for s in source.body if name_of(s) not in head):
        raise NotUnderstood("a body that uses its block's offset")
    if found.numel != run.buffer[found.out].tensor.numel:
        raise NotUnderstood("not every element once")
    return found


def own_element(row: int) -> frozenset[str]:
    """How an index may be written, as `ast.dump`."""
    texts = ("r0_index + {n} * xindex", "{n} * xindex + r0_index") if row else ("xindex",)
    return frozenset(ast.dump(expression(t.format(n=row))) for t in texts)


def _known(source: KernelSource) -> dict[str, ast.expr]:
    known = definitions(source)
    for statement in source.body:
        name = name_of(statement)
        if isinstance(statement, ast.Assign) and name and name not in _HEAD and name not in known and (
                reads(statement) and reads(statement) <= {"r0_index", "xindex", *known}):
            known[name] = substitute(statement.value, known)
    return known


def _memory(source: KernelSource) -> int:
    """Loads and stores of the body, understood or not."""
    return sum(isinstance(n, ast.Call) and dotted(n.func).startswith(("tl.load", "tl.store", "tl.atomic"))
               for s in source.body for n in ast.walk(s))


def _store(statement: ast.stmt) -> bool:
    value = statement.value if isinstance(statement, ast.Expr) else None
    return isinstance(value, ast.Call) and (a := access_of(value)) is not None and a.kind == "store"


def body(epilogue: Epilogue, value: str, head: Sequence[ast.stmt], shape: str, index: Mapping[str, str],
         keep: bool) -> list[ast.stmt]:
    """The kernel's statements on `value`, a tile of the vendor's result in float32.

    `head` binds xindex and xmask (for a row also nothing else: its own r0_index stays), `shape` is the tile's as text,
    `index`: an expression over xindex, as text -> what it is here. With `keep` the vendor's result is stored too, at
    the lane's own element, before the kernel's own stores.
    """
    source = epilogue.source
    kind = source.signature[next(a.pointer for a in source.loads if epilogue.pointers[a.pointer] == epilogue.out)]
    rounded = f"{value}.to({_FLOATS[kind.removeprefix('*')]})"
    made = [*head, *statements(f"taken = {rounded}")]
    replacer = _Replacer(epilogue, shape, {ast.dump(expression(k)): v for k, v in index.items()})
    rest = []
    for statement in source.body:
        name = name_of(statement)
        if name in _HEAD and not (epilogue.row and name in ("rnumel", "RBLOCK", "rindex")):
            continue
        rest.append(ast.fix_missing_locations(replacer.visit(copied(statement))))
    if keep:
        at, mask = "xindex", "xmask"
        if epilogue.row:
            at, mask = f"r0_index + {epilogue.row} * xindex", "r0_mask & xmask"
        first = next(i for i, s in enumerate(rest) if _store(s))
        rest[first:first] = statements(f"tl.store({epilogue.out} + ({at}), taken, {mask})")
    return [*made, *rest]


def alone(value: str, head: Sequence[ast.stmt], out: str) -> list[ast.stmt]:
    """No kernel after the vendor call: `value` stored at xindex where xmask holds; `head` binds both."""
    return [*head, *statements(f"tl.store({out} + (xindex), {value}, xmask)")]


class _Replacer(ast.NodeTransformer):
    def __init__(self, epilogue: Epilogue, shape: str, index: Mapping[str, str]) -> None:
        self.epilogue, self.shape, self.index = epilogue, shape, index

    def visit_Call(self, node: ast.Call) -> ast.expr:
        access = access_of(node)
        if access is not None and access.kind == "load" and self.epilogue.pointers[access.pointer] == self.epilogue.out:
            return expression("taken")
        self.generic_visit(node)
        return node

    def visit_BinOp(self, node: ast.BinOp) -> ast.expr:
        known = self.index.get(ast.dump(node))
        if known is not None:
            return expression(known)
        self.generic_visit(node)
        return node

    def visit_List(self, node: ast.List) -> ast.expr:
        if ast.unparse(node) in ("[XBLOCK]", "[XBLOCK, R0_BLOCK]"):
            return expression(self.shape)
        if self.epilogue.row and ast.unparse(node) == "[XBLOCK, 1]":
            return expression("[BM, 1]")
        return node

    def visit_Name(self, node: ast.Name) -> ast.expr:
        name = self.epilogue.pointers.get(node.id)
        return ast.Name(name, node.ctx) if name is not None else node
