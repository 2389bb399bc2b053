"""Which pointer parameters a kernel loads from and stores to, through arithmetic, locals and own functions.

Every value carries the set of pointer parameters it may be derived from (its origins). Arithmetic with integers,
shape operations and selections keep origins; a load answers data, which has none. A pointer that is turned into
data (compared, cast, stored, reduced, or its type taken) or an access through something without origins is
"unknown flow" and a violation. The analysis ignores the order of statements and unites both sides of a branch,
so it can only report too many stores, never too few. It does not bound addresses: an index beyond a buffer is
for gate 2's guard bands.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field

from kernelopt_bot.contract.body import dotted
from kernelopt_bot.contract.names import MEMORY, METHODS, words
from kernelopt_bot.contract.violation import Violation

Origins = frozenset[str]
NONE: Origins = frozenset()

STEPS = 500_000
"""Expressions and statements that one analysis looks at before it gives up. Inductor's largest kernels (combo kernels
of some 100 KiB) take about 100,000: each pass over a body follows a pointer through one more reversed assignment."""

_KEEP = words("tl", """
    advance broadcast broadcast_to expand_dims make_block_ptr max_constancy max_contiguous multiple_of permute ravel
    reshape trans view""")
"""Functions whose result points where their arguments point."""

_KEEP_METHODS = frozenset({"broadcast_to", "expand_dims", "permute", "reshape", "trans"})

_POINTER_ARGUMENTS: Mapping[str, tuple[tuple[int, str, bool], ...]] = {
    "triton_helpers.bucketize_binary_search": ((1, "boundaries_ptr", False), (8, "sorter_ptr", False)),
    "triton_helpers.exclusive_scan_decoupled_lookback": ((0, "scratch_base", True),),
    "triton_helpers.exclusive_scan_decoupled_lookback_64": ((0, "scratch_base", True),),
}
"""Helpers that access memory: position, keyword and whether they store there (signatures of torch 2.11 and 2.13)."""


@dataclass
class Effects:
    """What one kernel does to its pointer parameters, by name."""

    loaded: set[str] = field(default_factory=set)
    stored: set[str] = field(default_factory=set)
    atomics: set[str] = field(default_factory=set)
    unknown: set[Violation] = field(default_factory=set)


def analyse(functions: Mapping[str, ast.FunctionDef], name: str, pointers: frozenset[str]) -> Effects:
    """Effects of `functions[name]` when its parameters in `pointers` are pointers and all others are not.

    `functions` are those of a source that `contract.source.check` passed.
    """
    flow = _Flow(functions)
    try:
        flow.run(name, {p: frozenset({p}) for p in pointers})
    except (RecursionError, _TooLong) as e:
        reason = "too deeply nested" if isinstance(e, RecursionError) else "too tangled"
        flow.unknown(functions[name], f"{name} is {reason} for its pointers to be followed")
    return flow.effects


class _TooLong(Exception):
    """The analysis takes more than `STEPS`."""


class _Flow:
    def __init__(self, functions: Mapping[str, ast.FunctionDef]) -> None:
        self.functions = functions
        self.effects = Effects()
        self.done: dict[tuple[str, tuple[tuple[str, Origins], ...]], Origins] = {}
        self.active: list[str] = []
        self.left = STEPS

    def step(self) -> None:
        """Raises _TooLong."""
        self.left -= 1
        if self.left < 0:
            raise _TooLong

    def unknown(self, node: ast.AST, message: str) -> None:
        self.effects.unknown.add(Violation(getattr(node, "lineno", 0), "flow", message))

    def run(self, name: str, bound: Mapping[str, Origins]) -> Origins:
        key = (name, tuple(sorted(bound.items())))
        if name in self.active:
            self.unknown(self.functions[name], f"{name} calls itself")
            return NONE
        if key not in self.done:
            self.active.append(name)
            self.done[key] = _Body(self, self.functions[name], bound).run()
            self.active.pop()
        return self.done[key]


class _Body:
    """One function under one binding of its parameters."""

    def __init__(self, flow: _Flow, node: ast.FunctionDef, bound: Mapping[str, Origins]) -> None:
        self.flow, self.node = flow, node
        self.env: dict[str, Origins] = dict(bound)
        self.returned: Origins = NONE

    def run(self) -> Origins:
        before: object = None
        while before != (before := (dict(self.env), self.returned)):
            for statement in self.node.body:
                self.statement(statement)
        return self.returned

    def bind(self, target: ast.expr, origins: Origins) -> None:
        for node in ast.walk(target):
            if isinstance(node, ast.Name):
                self.env[node.id] = self.env.get(node.id, NONE) | origins

    def statement(self, node: ast.stmt) -> None:
        self.flow.step()
        match node:
            case ast.Assign(targets=targets, value=value):
                origins = self.value(value)
                for target in targets:
                    self.bind(target, origins)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, self.value(value))
            case ast.AugAssign(target=ast.Name() as target, op=op, value=value):
                read = ast.copy_location(ast.Name(target.id, ast.Load()), target)
                self.bind(target, self.value(ast.copy_location(ast.BinOp(read, op, value), node)))
            case ast.Expr(value=value):
                self.value(value)
            case ast.Return(value=ast.expr() as value):
                self.returned |= self.value(value)
            case ast.If(test=test) | ast.While(test=test):
                self.data(test)
                self.block([*node.body, *node.orelse])
            case ast.For(iter=iterator):
                self.data(iterator)
                self.block([*node.body, *node.orelse])

    def block(self, statements: list[ast.stmt]) -> None:
        for statement in statements:
            self.statement(statement)

    def data(self, node: ast.expr) -> Origins:
        """Evaluates something that must not be a pointer."""
        if origins := self.value(node):
            self.flow.unknown(node, f"a pointer into {', '.join(sorted(origins))} is used as data")
        return NONE

    def value(self, node: ast.expr) -> Origins:
        self.flow.step()
        match node:
            case ast.Name(id=name):
                if name in self.flow.functions:
                    self.flow.run(name, {})
                return self.env.get(name, NONE)
            case ast.Constant():
                return NONE
            case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
                base, offset = self.value(left), self.value(right)
                if offset and (base or isinstance(op, ast.Sub)):
                    self.flow.unknown(node, "arithmetic on two pointers")
                return base | offset
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.data(test)
                return self.value(body) | self.value(orelse)
            case ast.Compare(left=left, ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
                self.value(left)
                return NONE
            case ast.Subscript(value=value, slice=index):
                self.data(index)
                return self.value(value)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                return NONE.union(*(self.value(e) for e in elements))
            case ast.Attribute():
                return self.attribute(node)
            case ast.Call():
                return self.call(node)
            case _:
                for child in ast.iter_child_nodes(node):
                    if isinstance(child, ast.expr):
                        self.data(child)
                return NONE

    def attribute(self, node: ast.Attribute) -> Origins:
        match node:
            case ast.Attribute(attr="element_ty", value=ast.Attribute(attr="dtype", value=base)):
                self.value(base)
            case ast.Attribute(attr="shape", value=base):
                self.value(base)
            case ast.Attribute(attr="dtype" | "element_ty", value=base):
                self.data(base)
        return NONE

    def call(self, node: ast.Call) -> Origins:
        arguments = [*node.args, *(k.value for k in node.keywords)]
        name = dotted(node.func)
        if isinstance(node.func, ast.Name) and name in self.flow.functions:
            return self.own(node, name)
        if isinstance(node.func, ast.Attribute) and node.func.attr in METHODS and self.is_method(node.func.value):
            base = self.value(node.func.value) if node.func.attr in _KEEP_METHODS else self.data(node.func.value)
            for argument in arguments:
                self.data(argument)
            return base
        if name in MEMORY:
            self.access(node, name)
            return NONE
        if name in _KEEP:
            return NONE.union(*(self.value(a) for a in arguments))
        if name == "tl.where" and len(arguments) == 3 and not node.keywords:
            self.data(arguments[0])
            return self.value(arguments[1]) | self.value(arguments[2])
        self.helper(node, name)
        return NONE

    def is_method(self, base: ast.expr) -> bool:
        root = dotted(base).split(".")[0]
        return not root or root in self.env or root in {a.arg for a in self.node.args.args}

    def own(self, node: ast.Call, name: str) -> Origins:
        parameters = [a.arg for a in self.flow.functions[name].args.args]
        bound = dict(zip(parameters, (self.value(a) for a in node.args), strict=False))
        bound |= {k.arg: self.value(k.value) for k in node.keywords if k.arg}
        return self.flow.run(name, {k: v for k, v in bound.items() if v})

    def access(self, node: ast.Call, name: str) -> None:
        pointer = node.args[0] if node.args else next((k.value for k in node.keywords if k.arg == "pointer"), None)
        if pointer is None:
            self.flow.unknown(node, f"{name} without a pointer")
            return
        origins = self.value(pointer)
        if not origins:
            self.flow.unknown(node, f"{name} through something that comes from no pointer parameter")
        for argument in [*node.args, *(k.value for k in node.keywords)]:
            if argument is not pointer:
                self.data(argument)
        effects = self.flow.effects
        if name != "tl.store":
            effects.loaded |= origins
        if name != "tl.load":
            effects.stored |= origins
        if name.startswith("tl.atomic_"):
            effects.atomics |= origins

    def helper(self, node: ast.Call, name: str) -> None:
        pointers: dict[ast.expr, bool] = {}
        for position, keyword, stores in _POINTER_ARGUMENTS.get(name, ()):
            if position < len(node.args):
                pointers[node.args[position]] = stores
            pointers |= {k.value: stores for k in node.keywords if k.arg == keyword}
        for argument in [*node.args, *(k.value for k in node.keywords)]:
            if argument not in pointers:
                self.data(argument)
                continue
            origins = self.value(argument)
            is_none = isinstance(argument, ast.Constant) and argument.value is None
            if not origins and not is_none:
                self.flow.unknown(node, f"{name} through something that comes from no pointer parameter")
            self.flow.effects.loaded |= origins
            if pointers[argument]:
                self.flow.effects.stored |= origins
                self.flow.effects.atomics |= origins
