"""The contract over one function of a candidate: each node of its syntax tree against the allow-list."""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator

from kernelopt_bot.contract.names import BUILTINS, EXPORTED, FORBIDDEN_KEYWORDS, MEMORY, METHODS, PROPERTIES, ROOTS
from kernelopt_bot.contract.violation import Violation

_PLAIN: tuple[type[ast.AST], ...] = (
    ast.Load, ast.Store, ast.expr_context, ast.operator, ast.unaryop, ast.boolop, ast.Pass, ast.Return, ast.If,
    ast.While, ast.IfExp, ast.BoolOp, ast.UnaryOp, ast.Tuple, ast.List, ast.Subscript, ast.Slice, ast.Compare,
    ast.Eq, ast.NotEq, ast.Lt, ast.LtE, ast.Gt, ast.GtE, ast.Is, ast.IsNot, ast.Expr, ast.Assign, ast.AugAssign,
    ast.AnnAssign, ast.For, ast.Name, ast.Attribute, ast.Call, ast.keyword, ast.Constant, ast.BinOp,
)
"""Every kind of node that may appear inside a function; those that need more have a method below."""


def dotted(node: ast.AST) -> str:
    """`tl.math.exp` for that chain of attributes on a name; '' for anything else."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(parts)]) if isinstance(node, ast.Name) else ""


def is_constexpr(node: ast.expr | None) -> bool:
    return node is not None and dotted(node) == "tl.constexpr"


def bad_name(name: str) -> str | None:
    """Why a candidate may not bind `name`, or None."""
    if name.startswith("_") or "__" in name:
        return f"{name}: names that start with an underscore or hold two in a row are not allowed"
    if name in ROOTS or name in BUILTINS:
        return f"{name} already has a meaning"
    return None


class Body:
    """One function: which names it binds, then every node against the allow-list."""

    def __init__(
        self, node: ast.FunctionDef, roots: Collection[str], constants: Collection[str], functions: Collection[str]
    ) -> None:
        self.node, self.roots, self.constants, self.functions = node, roots, constants, functions
        self.found: list[Violation] = []
        self.locals: set[str] = set()

    def refuse(self, node: ast.AST, rule: str, message: str) -> None:
        self.found.append(Violation(getattr(node, "lineno", self.node.lineno), rule, message))

    def check(self) -> list[Violation]:
        self.parameters()
        for node in self.walk():
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                self.bind(node, node.id)
        for statement in self.node.body:
            self.visit(statement)
        return self.found

    def walk(self) -> Iterator[ast.AST]:
        for statement in self.node.body:
            yield from ast.walk(statement)

    def parameters(self) -> None:
        a = self.node.args
        if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
            self.refuse(self.node, "parameter", "only plain parameters are allowed")
        if a.defaults or a.kw_defaults:
            self.refuse(self.node, "default", "default values are not allowed")
        if self.node.returns or any(p.annotation and not is_constexpr(p.annotation) for p in a.args):
            self.refuse(self.node, "annotation", "the only annotation allowed is tl.constexpr")
        if getattr(self.node, "type_params", None):
            self.refuse(self.node, "parameter", "type parameters are not allowed")
        for p in a.args:
            if p.arg in self.locals:
                self.refuse(p, "name", f"{p.arg} is bound twice")
            self.bind(p, p.arg)

    def bind(self, node: ast.AST, name: str) -> None:
        if (reason := bad_name(name)) is not None:
            self.refuse(node, "name", reason)
        if name in self.constants or name in self.functions:
            self.refuse(node, "name", f"{name} hides a name of the module")
        self.locals.add(name)

    def visit(self, node: ast.AST) -> None:
        if not isinstance(node, _PLAIN):
            self.refuse(node, "syntax", f"{type(node).__name__} is not allowed")
            return
        special = getattr(self, f"on_{type(node).__name__.lower()}", None)
        if special is not None:
            special(node)
        else:
            self.children(node)

    def children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self.visit(child)

    def on_expr(self, node: ast.Expr) -> None:
        docstring = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        if not docstring and not isinstance(node.value, ast.Call):
            self.refuse(node, "statement", "an expression statement must be a call")
        elif not docstring:
            self.visit(node.value)

    def on_assign(self, node: ast.Assign) -> None:
        for target in node.targets:
            self.target(target)
        self.visit(node.value)

    def on_augassign(self, node: ast.AugAssign) -> None:
        self.target(node.target)
        self.visit(node.op)
        self.visit(node.value)

    def on_annassign(self, node: ast.AnnAssign) -> None:
        if not is_constexpr(node.annotation):
            self.refuse(node, "annotation", "the only annotation allowed is tl.constexpr")
        self.target(node.target)
        if node.value is not None:
            self.visit(node.value)

    def target(self, node: ast.expr) -> None:
        if isinstance(node, ast.Tuple):
            for element in node.elts:
                self.target(element)
        elif not isinstance(node, ast.Name):
            self.refuse(node, "assignment", "only plain names may be assigned to")

    def on_for(self, node: ast.For) -> None:
        if not isinstance(node.target, ast.Name):
            self.refuse(node, "assignment", "a loop variable must be a plain name")
        called = dotted(node.iter.func) if isinstance(node.iter, ast.Call) else ""
        if called not in ("range", "tl.range", "tl.static_range"):
            self.refuse(node, "loop", "a loop runs over range, tl.range or tl.static_range")
        self.visit(node.iter)
        for statement in [*node.body, *node.orelse]:
            self.visit(statement)

    def on_binop(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Pow | ast.MatMult):
            self.refuse(node, "operator", f"the operator {type(node.op).__name__} is not allowed")
        self.children(node)

    def on_constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str):
            self.refuse(node, "string", "a string may only be an argument of a call")
        elif not isinstance(node.value, int | float | bool | None):
            self.refuse(node, "constant", f"a constant of type {type(node.value).__name__} is not allowed")
        elif isinstance(node.value, int) and abs(node.value) >= 2**64:
            self.refuse(node, "constant", "an integer of more than 64 bits is not allowed")

    def on_name(self, node: ast.Name) -> None:
        if isinstance(node.ctx, ast.Load) and not self.resolves(node.id):
            self.refuse(node, "name", f"{node.id} is not a parameter, local, constant or function of the candidate")

    def resolves(self, name: str) -> bool:
        return name in self.locals or name in self.constants or name in self.functions

    def on_attribute(self, node: ast.Attribute) -> None:
        name = dotted(node)
        if name in MEMORY:
            self.refuse(node, "name", f"{name} may only be called, not passed on")
        if name in EXPORTED and name.split(".")[0] in self.roots:
            return
        if name and not self.resolves(name.split(".")[0]):
            self.refuse(node, "name", f"{name} is not an exported function that a candidate may use")
        elif node.attr not in PROPERTIES:
            self.refuse(node, "attribute", f".{node.attr} is not allowed here")
        else:
            self.visit(node.value)

    def on_call(self, node: ast.Call) -> None:
        match node.func:
            case ast.Name(id=name) if name in self.functions or name in BUILTINS:
                pass
            case ast.Attribute(attr=attr, value=value) if attr in METHODS and self.is_value(value):
                self.visit(value)
            case ast.Attribute() if dotted(node.func) in MEMORY:
                if "tl" not in self.roots:
                    self.refuse(node, "name", f"{dotted(node.func)} is used and tl is not imported")
            case ast.Attribute():
                self.on_attribute(node.func)
                if dotted(node.func) not in EXPORTED:
                    self.refuse(node, "call", "only exported functions, own functions and tensor methods are called")
            case _:
                self.refuse(node, "call", "only exported functions, own functions and tensor methods are called")
        for argument in node.args:
            self.argument(argument)
        for keyword in node.keywords:
            if keyword.arg is None or bad_keyword(keyword.arg):
                self.refuse(node, "argument", f"the keyword argument {keyword.arg or '**'} is not allowed")
            self.argument(keyword.value)

    def argument(self, node: ast.expr) -> None:
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            self.visit(node)

    def is_value(self, node: ast.expr) -> bool:
        """Whether a method may be called on it: anything that is not part of an imported module or an own function."""
        name = dotted(node)
        if not name:
            return not isinstance(node, ast.Constant)
        root = name.split(".")[0]
        return root in self.locals


def bad_keyword(name: str) -> bool:
    return name.startswith("_") or name in FORBIDDEN_KEYWORDS
