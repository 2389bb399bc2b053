"""The contract over a candidate's source: an allow-list over its syntax tree. Standard library only.

`check` answers what is wrong; it executes and imports nothing, and what it does not know is a violation.
The text itself is restricted first, because Triton reads the function's text again from the file: plain ASCII, no
control characters, no encoding cookie, so that what is checked here is what Python and Triton will read; no backslash
and no run of three single quotes, because the text travels inside such a literal of the compiler's wrapper.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import dataclass, field

from kernelopt_bot.contract.body import Body, bad_name, dotted, is_constexpr
from kernelopt_bot.contract.names import IMPORTS
from kernelopt_bot.contract.violation import Violation

LIMIT_BYTES = 256 * 1024
"""Largest source. Inductor's largest kernels (combo kernels) stay below 100 KiB."""

LIMIT_DEPTH = 100
"""Deepest nesting of the syntax tree, so that no later walk can exhaust the stack."""

LIMIT_FUNCTIONS = 64

_COOKIE = re.compile(r"coding[:=]")
_JIT = re.compile(r"@ *triton\.jit *(#.*)?")


def parse(source: str) -> ast.Module | Violation:
    """The syntax tree, or why the text cannot be one that a candidate may have."""
    if len(source) > LIMIT_BYTES:
        return Violation(0, "size", f"the source has {len(source)} characters, at most {LIMIT_BYTES} are allowed")
    for number, line in enumerate(source.split("\n"), 1):
        bad = next((c for c in line if not " " <= c <= "~"), None)
        if bad is not None:
            return Violation(number, "text", f"character {bad!r}: only printable ASCII and newlines are allowed")
        if "\\" in line or "'''" in line:
            return Violation(number, "text", "a backslash or three single quotes in a row are not allowed")
        # Anywhere in a comment, since the line may move up when the text is written into another file.
        if (number <= 2 or line.lstrip().startswith("#")) and _COOKIE.search(line):
            return Violation(number, "text", "an encoding declaration is not allowed")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except SyntaxError as e:
        return Violation(e.lineno or 0, "syntax", f"not Python: {e.msg}")
    except (ValueError, RecursionError, MemoryError) as e:
        return Violation(0, "syntax", f"cannot be parsed: {type(e).__name__}")
    if (deep := _too_deep(tree)) is not None:
        return Violation(deep, "size", f"nested more than {LIMIT_DEPTH} levels deep")
    return tree


def _too_deep(tree: ast.Module) -> int | None:
    stack: list[tuple[ast.AST, int, int]] = [(tree, 0, 0)]
    while stack:
        node, depth, line = stack.pop()
        line = getattr(node, "lineno", line)
        if depth > LIMIT_DEPTH:
            return line
        stack += [(child, depth + 1, line) for child in ast.iter_child_nodes(node)]
    return None


def check(source: str) -> list[Violation]:
    """Everything in `source` that the contract does not allow, in the order of the text; [] if it conforms."""
    tree = parse(source)
    if isinstance(tree, Violation):
        return [tree]
    module = _Module(source.split("\n"))
    for statement in tree.body:
        module.statement(statement)
    if not module.functions and not module.found:
        module.refuse(tree, "function", "no @triton.jit function")
    if len(module.functions) > LIMIT_FUNCTIONS:
        module.refuse(tree, "size", f"more than {LIMIT_FUNCTIONS} functions")
    for function in module.functions.values():
        module.found += Body(function, module.roots, module.constants, module.functions.keys()).check()
    return sorted(set(module.found), key=lambda v: (v.line, v.rule, v.message))


def functions(source: str) -> dict[str, ast.FunctionDef]:
    """The functions of a source that `check` passed, by name."""
    tree = parse(source)
    if isinstance(tree, Violation):
        return {}
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def constexprs(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names of the parameters annotated `tl.constexpr`, in order."""
    return tuple(a.arg for a in function.args.args if is_constexpr(a.annotation))


def runtime_parameters(function: ast.FunctionDef) -> tuple[str, ...]:
    """Names of the other parameters, in order: what `Launch.arguments` binds."""
    return tuple(a.arg for a in function.args.args if not is_constexpr(a.annotation))


def _literal(node: ast.expr) -> bool:
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        node = node.operand
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float | bool | str | None)


@dataclass
class _Module:
    """Names that the module binds, and what is wrong at its level."""

    lines: list[str]
    found: list[Violation] = field(default_factory=list)
    roots: set[str] = field(default_factory=set)
    constants: set[str] = field(default_factory=set)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)

    def refuse(self, node: ast.AST, rule: str, message: str) -> None:
        self.found.append(Violation(getattr(node, "lineno", 0), rule, message))

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Expr(value=ast.Constant(value=str())):
                return
            case ast.Import() | ast.ImportFrom():
                self.imports(node)
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                self.constant(node, name, value)
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation, value=ast.expr() as value):
                if not is_constexpr(annotation):
                    self.refuse(node, "annotation", "the only annotation allowed is tl.constexpr")
                self.constant(node, name, value)
            case ast.FunctionDef():
                self.function(node)
            case _:
                self.refuse(node, "statement", f"{type(node).__name__} is not allowed at module level")

    def imports(self, node: ast.Import | ast.ImportFrom) -> None:
        module = "" if isinstance(node, ast.Import) else node.module or ""
        level = 0 if isinstance(node, ast.Import) else node.level
        for alias in node.names:
            root = IMPORTS.get((module, alias.name, alias.asname or alias.name))
            if root is None or level:
                what = f"from {module} import {alias.name}" if module or level else f"import {alias.name}"
                self.refuse(node, "import", f"`{what}{f' as {alias.asname}' if alias.asname else ''}` is not allowed")
            else:
                self.roots.add(root)

    def constant(self, node: ast.stmt, name: str, value: ast.expr) -> None:
        match value:
            case ast.Call(func=ast.Attribute() as called, args=[inner], keywords=[]) if is_constexpr(called):
                value = inner
        if not _literal(value):
            self.refuse(node, "constant", f"{name} is not a literal or tl.constexpr(literal)")
        elif any(type(v := getattr(n, "value", None)) is int and v >= 2**64 for n in ast.walk(value)):
            self.refuse(node, "constant", f"{name}: an integer of more than 64 bits is not allowed")
        self.bind(node, name)
        self.constants.add(name)

    def function(self, node: ast.FunctionDef) -> None:
        if [dotted(d) for d in node.decorator_list] != ["triton.jit"]:
            self.refuse(node, "decorator", f"{node.name} must have the one decorator @triton.jit")
        elif not self.alone(node.decorator_list[0], node):
            self.refuse(node, "decorator", f"{node.name}: @triton.jit must stand on one line, directly above def")
        self.bind(node, node.name)
        self.functions[node.name] = node

    def alone(self, decorator: ast.expr, node: ast.FunctionDef) -> bool:
        """Whether `@triton.jit` is a line of text as such: the compiler's decorator is written above that line."""
        line = self.lines[decorator.lineno - 1]
        return _JIT.fullmatch(line) is not None and node.lineno == decorator.lineno + 1

    def bind(self, node: ast.AST, name: str) -> None:
        if (reason := bad_name(name)) is not None:
            self.refuse(node, "name", reason)
        if name in self.constants or name in self.functions:
            self.refuse(node, "name", f"{name} is bound twice")
