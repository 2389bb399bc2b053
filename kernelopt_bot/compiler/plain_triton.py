"""A user's Triton kernel as a source that the contract knows: one module with the kernel and what it uses.

The copy is for the gates alone. It says the same as the user's text: decorators but `@triton.jit`, default values,
annotations and docstrings are left out, names that the contract refuses get others, constants of the file are written
down, and arguments that Triton itself, or the host, fixes for a launch become `tl.constexpr`. By syntax only.
"""

from __future__ import annotations

import ast
import copy
import keyword
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from kernelopt_bot.contract.body import bad_name
from kernelopt_bot.targets.triton_kernels import full_name, top

Names = Mapping[str, str]
"""What a file's imported names are, dotted."""
_MODULES = {"triton": "triton", "triton.language": "tl", "triton.language.extra.libdevice": "libdevice",
            "triton.language.extra.cuda.libdevice": "libdevice", "triton.language.math": "tl_math"}
"""Modules that device code may use -> the contract's name of each."""
_IMPORTS = {"triton": "import triton", "tl": "import triton.language as tl",
            "libdevice": "from triton.language.extra import libdevice",
            "tl_math": "from triton.language import math as tl_math"}
_PYTHONS = frozenset({"abs", "float", "int", "max", "min", "range", "len", "print", "tuple", "isinstance", "bool"})
_RESERVED = frozenset({"triton_helpers", "triton_heuristics", "AutotuneHint", "DeviceProperties", "ReductionHint",
                       "TileHint", "num_sms", *_IMPORTS})


class Unfit(Exception):
    """The kernel cannot be taken; the message says why, for its author."""


@dataclass(frozen=True)
class PlainKernel:
    """`specialised` gives the module's text. Parameters in order, by the user's names."""

    name: str
    """In the copy."""
    parameters: tuple[str, ...]
    constexprs: frozenset[str]
    defaults: Mapping[str, object]
    """Literal default values of parameters."""
    renamed: Mapping[str, str]
    imports: tuple[str, ...]
    constants: tuple[ast.stmt, ...]
    functions: tuple[ast.FunctionDef, ...]
    """Helpers before the kernel, which is the last."""

    def called(self, parameter: str) -> str:
        """A parameter's name in the copy."""
        return self.renamed.get(parameter, parameter)

    def specialised(self, fixed: Collection[str]) -> str:
        """The copy with the parameters `fixed` as `tl.constexpr` too."""
        kernel = copy.deepcopy(self.functions[-1])
        names = {self.called(p) for p in fixed}
        for parameter in kernel.args.args:
            if parameter.arg in names:
                parameter.annotation = _constexpr()
        body = [*ast.parse("\n".join(self.imports)).body, *self.constants, *self.functions[:-1], kernel]
        return ast.unparse(ast.fix_missing_locations(ast.Module(body=list(body), type_ignores=[]))) + "\n"


def plain_kernel(tree: ast.Module, name: str, names: Names) -> PlainKernel:
    """The kernel `name` of the file `tree`. Raises Unfit."""
    wanted = _Wanted(tree, names)
    wanted.function(name)
    kernel = wanted.functions[name]
    order = [*(f for n, f in wanted.functions.items() if n != name), kernel]
    bound = {n for f in order for n in _bound(f)} | set(wanted.constants)
    renamed = _renaming(bound | {a.arg for a in kernel.args.args})
    parameters, constexprs, defaults = _parameters(kernel, names)
    functions = tuple(_Copy(names, renamed, set(wanted.functions), f is kernel).function(f) for f in order)
    constants = tuple(_constant(renamed.get(n, n), value) for n, value in wanted.constants.items())
    used = {n.id for f in functions for n in ast.walk(f) if isinstance(n, ast.Name)} | {"triton", "tl"}
    imports = tuple(text for root, text in _IMPORTS.items() if root in used)
    return PlainKernel(renamed.get(name, name), parameters, constexprs, defaults, renamed, imports, constants,
                       functions)


class _Wanted:
    """The functions and constants of a file that a kernel needs, callees first."""

    def __init__(self, tree: ast.Module, names: Names) -> None:
        self.names = names
        self.defined = {n.name: n for n in top(tree.body) if isinstance(n, ast.FunctionDef)}
        self.set = list(_set(tree))
        self.assigned: dict[str, ast.expr] = {}
        for node in top(tree.body):
            if isinstance(node, ast.Assign) and len(node.targets) == 1 and isinstance(node.targets[0], ast.Name):
                self.assigned[node.targets[0].id] = node.value
            elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
                self.assigned[node.target.id] = node.value
        self.functions: dict[str, ast.FunctionDef] = {}
        self.constants: dict[str, ast.Constant | ast.UnaryOp] = {}
        self._open: list[str] = []

    def function(self, name: str) -> None:
        if name in self.functions or name in self._open:
            return
        node = self.defined[name]
        self._open.append(name)
        _plain_jit(node, self.names)
        own = set(_bound(node))
        for used in ast.walk(ast.Module(body=node.body, type_ignores=[])):
            if isinstance(used, ast.Name) and isinstance(used.ctx, ast.Load) and used.id not in own:
                self.need(used.id, used.lineno)
        self.functions[name] = node

    def need(self, name: str, line: int) -> None:
        if name in self.defined:
            self.function(name)
        elif name in self.assigned:
            if self.set.count(name) > 1:
                raise Unfit(f"line {line}: {name}, which the kernel uses, is set in several places of the file")
            self.constants[name] = _literal(self.assigned[name], name, self.names)
        elif name in self.names:
            full = self.names[name]
            if not (full in _MODULES or full == "triton.language.constexpr"):
                raise Unfit(f"line {line}: {name} comes from {full}: the kernel's helpers have to be in its own file")
        elif name not in _PYTHONS:
            raise Unfit(f"line {line}: {name} is not defined at the top level of the file")


def _set(tree: ast.Module) -> Iterator[str]:
    """Names of the module as often as something sets them: its own statements, and functions that say `global`."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            yield from (n for g in ast.walk(node) if isinstance(g, ast.Global) for n in g.names)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store | ast.Del):
            yield node.id
        elif not isinstance(node, ast.ClassDef | ast.Lambda | ast.ListComp | ast.SetComp | ast.DictComp
                            | ast.GeneratorExp):
            stack += ast.iter_child_nodes(node)


def _plain_jit(node: ast.FunctionDef, names: Names) -> None:
    for decorator in node.decorator_list:
        called = decorator.func if isinstance(decorator, ast.Call) else decorator
        kind = full_name(called, names)
        if kind in ("triton.jit", "triton.runtime.jit"):
            if isinstance(decorator, ast.Call) and (decorator.args or decorator.keywords):
                raise Unfit(f"line {decorator.lineno}: @triton.jit with options of its own is not supported")
        elif kind not in ("triton.autotune", "triton.heuristics"):
            raise Unfit(f"line {decorator.lineno}: the decorator {ast.unparse(called)} of {node.name} is not known")
    if all("jit" not in full_name(d.func if isinstance(d, ast.Call) else d, names) for d in node.decorator_list):
        raise Unfit(f"line {node.lineno}: {node.name} is not under @triton.jit")


def _parameters(kernel: ast.FunctionDef, names: Names) -> tuple[tuple[str, ...], frozenset[str], dict[str, object]]:
    a = kernel.args
    if a.vararg or a.kwarg or a.kwonlyargs or a.posonlyargs:
        raise Unfit(f"line {kernel.lineno}: only plain parameters are supported")
    order = tuple(p.arg for p in a.args)
    if clash := {"num_warps", "num_stages", "num_ctas"} & set(order):
        raise Unfit(f"line {kernel.lineno}: {sorted(clash)[0]} is a parameter of the kernel itself")
    defaults: dict[str, object] = {}
    for parameter, value in zip(a.args[len(a.args) - len(a.defaults):], a.defaults, strict=True):
        if isinstance(value, ast.Constant):
            defaults[parameter.arg] = value.value
    return order, frozenset(p.arg for p in a.args if _is_constexpr(p.annotation, names)), defaults


def _literal(value: ast.expr, name: str, names: Names) -> ast.Constant | ast.UnaryOp:
    if isinstance(value, ast.Call) and full_name(value.func, names) == "triton.language.constexpr" and len(
            value.args) == 1:
        value = value.args[0]
    inner = value.operand if isinstance(value, ast.UnaryOp) and isinstance(value.op, ast.USub) else value
    if isinstance(inner, ast.Constant) and isinstance(inner.value, int | float | str):
        assert isinstance(value, ast.Constant | ast.UnaryOp)
        return value
    raise Unfit(f"line {value.lineno}: {name}, which the kernel uses, is not a literal")


def _constant(name: str, value: ast.expr) -> ast.stmt:
    call = ast.Call(func=ast.Attribute(ast.Name("tl", ast.Load()), "constexpr", ast.Load()), args=[value], keywords=[])
    return ast.Assign(targets=[ast.Name(name, ast.Store())], value=call)


def _constexpr() -> ast.expr:
    return ast.Attribute(ast.Name("tl", ast.Load()), "constexpr", ast.Load())


def _is_constexpr(annotation: ast.expr | None, names: Names) -> bool:
    if isinstance(annotation, ast.Constant) and isinstance(annotation.value, str):
        return annotation.value.rpartition(".")[2] == "constexpr"
    return annotation is not None and full_name(annotation, names) == "triton.language.constexpr"


def _bound(node: ast.FunctionDef) -> list[str]:
    """Names that a function binds, its own and its parameters' included."""
    stored = [n.id for n in ast.walk(node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)]
    return [node.name, *(a.arg for a in node.args.args), *stored]


def _renaming(names: Collection[str]) -> dict[str, str]:
    """Other names for those that the contract refuses."""
    found: dict[str, str] = {}
    for name in sorted(names):
        if bad_name(name) is None and name.isascii() and name not in _RESERVED:
            continue
        stem = re.sub(r"_+", "_", re.sub(r"[^A-Za-z0-9_]", "u", name)).strip("_")
        taken = stem in _RESERVED or keyword.iskeyword(stem) or bad_name(stem)
        new = stem = f"k_{stem}" if taken or not stem[:1].isalpha() else stem
        number = 1
        while new in names or new in found.values():
            number += 1
            new = f"{stem}_{number}"
        found[name] = new
    return found


class _Copy(ast.NodeTransformer):
    """One function in the contract's form."""

    def __init__(self, names: Names, renamed: Mapping[str, str], own: Collection[str], kernel: bool) -> None:
        self.names, self.renamed, self.own, self.kernel = names, renamed, own, kernel
        self.locals: set[str] = set()

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        self.locals = set(_bound(node))
        made = copy.deepcopy(node)
        first = made.body[0]
        if len(made.body) > 1 and isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
            del made.body[0]
        made.decorator_list = [ast.Attribute(ast.Name("triton", ast.Load()), "jit", ast.Load())]
        made.name, made.returns = self.renamed.get(made.name, made.name), None
        for parameter in made.args.args:
            parameter.annotation = _constexpr() if _is_constexpr(parameter.annotation, self.names) else None
            parameter.arg = self.renamed.get(parameter.arg, parameter.arg)
        if self.kernel:
            made.args.defaults = []
        made.body = [self.visit(statement) for statement in made.body]
        return made

    def visit_Name(self, node: ast.Name) -> ast.AST:
        full = self.names.get(node.id)
        if node.id not in self.locals and full in _MODULES:
            return ast.copy_location(ast.Name(_MODULES[full], node.ctx), node)
        node.id = self.renamed.get(node.id, node.id)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        root = node
        while isinstance(root.value, ast.Attribute):
            root = root.value
        if isinstance(root.value, ast.Name) and root.value.id not in self.locals:
            full = full_name(node, self.names)
            module, _, last = full.rpartition(".")
            if module in _MODULES:
                return ast.copy_location(
                    ast.Attribute(ast.Name(_MODULES[module], ast.Load()), last, node.ctx), node)
        return self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        self.generic_visit(node)
        if _is_constexpr(node.annotation, self.names) or ast.unparse(node.annotation) == "tl.constexpr":
            node.annotation = _constexpr()
        elif node.value is not None:
            return ast.copy_location(ast.Assign(targets=[node.target], value=node.value), node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        if isinstance(node.func, ast.Name) and node.func.id in self.own:
            for keyword in node.keywords:
                keyword.arg = self.renamed.get(keyword.arg, keyword.arg) if keyword.arg else None
        return self.generic_visit(node)
