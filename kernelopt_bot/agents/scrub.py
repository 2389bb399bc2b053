"""What may leave the machine while `agents.send_source` is false: generated code without comments and foreign names.

The compiler writes the operators, and with them the user's functions and files, into the comments, names and strings
of its kernels; a kernel that the user wrote is the user's text as a whole. What is let through is an allow-list: the
compiler's own vocabulary of parameters and locals, the exported names of the contract, numbers, and a few fixed words.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Mapping
from typing import Any

from kernelopt_bot.contract.names import BUILTINS, EXPORTED, IMPORTS, METHODS, PROPERTIES, ROOTS

PARAMETER = re.compile(
    r"(in_out|in|out|ws|load_seed_offset)_?(ptr|desc_ptr)?\d*|[xyz]numel|r\d?_?numel|ks\d+|load_seed_offset\d*|p\d+|"
    r"[XYZ]BLOCK(_SUB)?|R\d?_?BLOCK(_SUB)?|RSPLIT(_SIZE)?|NEED_MASK|COOPERATIVE", re.ASCII)
"""Parameters as Inductor names them (torch 2.11 and 2.13), and a run's slots."""
_LOCAL = re.compile(
    r"_?tmp_?\w{0,4}\d*(_(next|max|sum|mean|m2|weight|index|bval|offset|val|cond))?|[xyz]\d*|r\d*_?\d*|"
    r"[xyz](index|offset|mask)|r\d?_?(index|offset|mask|base)|rbase|roffset|rindex|rmask|xmask|ymask|"
    r"[A-Z]?BLOCK\w{0,4}|RBLOCK|rnumel|sem_ptr|num_[a-z_]{1,12}|rsplit_\w{1,8}|eviction_policy|arg_?\d+(_\d+)?",
    re.ASCII)
WORDS = frozenset({
    "", "evict_first", "evict_last", "evict_normal", ".ca", ".cg", ".cs", ".cv", ".wb", ".wt", "ieee", "tf32", "tf32x3",
    "inf", "-inf", "nan", "relaxed", "acquire", "release", "acq_rel", "gpu", "cta", "sys", "rtne", "rtz", "float32",
    "min", "max"})
"""Strings that mean something to Triton."""
GENERATED = frozenset({
    "pointwise", "reduction", "persistent_reduction", "split_scan", "cooperative_reduction", "foreach"})
"""Inductor's heuristics of kernels that it wrote itself: `user_autotune` is a kernel of the user, `template` may hold a
part of one."""
VENDORS = re.compile(r"(extern_kernels|aten|torch\.ops\.aten)(\.[a-z0-9_]{1,60}){1,3}", re.ASCII)
_PATH = re.compile(
    r"(?:[A-Za-z]:|~|\.{1,2})?(?:[\\/][\w.@+-]+(?: [\w.@+-]+(?=[\\/]))*)+[\\/]?|\b[\w-]+\.(?:py|json|pt|so|cu|ptx)\b")
_DOTTED = re.compile(r"\b[A-Za-z_]\w*(?:\.\w+)+")
_QUOTED = re.compile(r"(['\"])(.{0,200}?)\1")
LONGEST = 2000
"""Characters of one message."""


class Private(Exception):
    """The text is the user's own and cannot be made neutral."""


def kernel(source: str, name: str) -> str:
    """The device functions of one generated kernel as plain Triton: the kernel as `name`, its helpers as
    `<name>_helper0`, ...; no comment, docstring, decorator argument or foreign name. Raises Private where it is not one
    of the compiler's own."""
    try:
        tree = ast.parse(source)
    except (SyntaxError, ValueError, RecursionError) as e:
        raise Private("not Python") from e
    functions = [n for n in tree.body if isinstance(n, ast.FunctionDef)]
    kernels = [f for f in functions if any(isinstance(d, ast.Call) for d in f.decorator_list)]
    if len(kernels) != 1:
        raise Private(f"{len(kernels)} kernels, one expected")
    main = kernels[0]
    decorators = [ast.unparse(d.func).rpartition(".")[2] for d in main.decorator_list if isinstance(d, ast.Call)]
    if not decorators or not GENERATED.issuperset(decorators):
        raise Private("the compiler did not write this kernel")
    if bad := [a.arg for a in _arguments(main) if not PARAMETER.fullmatch(a.arg)]:
        raise Private(f"{len(bad)} parameters are not named by the compiler")
    names = {f.name: f"{name}_helper{n}" for n, f in enumerate(f for f in functions if f is not main)}
    names[main.name] = name
    texts = []
    for function in functions:
        keep = {a.arg for a in _arguments(function)} if function is main else set()
        cleaned = _Neutral(names, keep).function(function)
        texts.append(ast.unparse(ast.fix_missing_locations(cleaned)))
    return "\n\n\n".join(texts) + "\n"


def candidate(source: str, plan: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
    """A built-in candidate and its plan with neutral names of its functions, which the compiler's own come from."""
    try:
        functions = [n.name for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)]
    except (SyntaxError, ValueError, RecursionError):
        return "", dict(plan)
    names = {name: f"f{n}" for n, name in enumerate(functions)}

    def renamed(text: str) -> str:
        return re.sub(r"[A-Za-z_]\w*", lambda match: names.get(match.group(0), match.group(0)), text)

    launches = [{**one, "function": names.get(one["function"], one["function"])} for one in plan["launches"]]
    return renamed(source), {**plan, "launches": launches}


def remembered(source: str) -> str:
    """A candidate's code as an example for later runs: no comments, no docstrings, neutral names of its functions."""
    neutral, _ = candidate(source, {"launches": []})
    tree = ast.parse(neutral)
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef):
            node.body = [s for s in node.body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
            node.body = node.body or [ast.Pass()]
    return f"{ast.unparse(tree)}\n" if neutral else ""


def vendor(name: str) -> str:
    """A vendor call's name, or what may be said of an operator that is the user's."""
    return name if VENDORS.fullmatch(name) else "a custom operator"


def message(text: str) -> str:
    """A compiler's or gate's words without paths, and of dotted and quoted names only those that everybody has."""
    def word(match: re.Match[str]) -> str:
        found = match.group(0)
        root = found.partition(".")[0]
        return found if root in ROOTS | {"torch", "triton"} or found in EXPORTED else "<name>"

    def quoted(match: re.Match[str]) -> str:
        inner = match.group(2)
        known = inner in WORDS or inner in EXPORTED or PARAMETER.fullmatch(inner) or _LOCAL.fullmatch(inner) or (
            inner in BUILTINS | METHODS | PROPERTIES or hasattr(builtins, inner))
        return match.group(0) if known or not re.search(r"[A-Za-z]{3}", inner) else "'<name>'"

    text = _PATH.sub("<path>", text)
    text = _DOTTED.sub(word, text)
    text = _QUOTED.sub(quoted, text)
    return text if len(text) <= LONGEST else text[:LONGEST] + " ..."


def _arguments(function: ast.FunctionDef) -> list[ast.arg]:
    return [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]


class _Neutral(ast.NodeTransformer):
    """One function with neutral names: `names` are those of the module's functions, `keep` stay as they are."""

    def __init__(self, names: dict[str, str], keep: set[str]) -> None:
        self.names, self.keep, self.made = names, keep, dict[str, str]()

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        made = ast.FunctionDef(
            name=self.names[node.name], args=self.parameters(node.args), body=self.block(node.body),
            decorator_list=[ast.Name("triton.jit", ast.Load())], returns=None, type_comment=None)
        made.lineno = 1
        return made

    def parameters(self, given: ast.arguments) -> ast.arguments:
        def one(a: ast.arg) -> ast.arg:
            constexpr = a.annotation is not None and ast.unparse(a.annotation).endswith("constexpr")
            return ast.arg(self.local(a.arg), ast.Name("tl.constexpr", ast.Load()) if constexpr else None)

        return ast.arguments(posonlyargs=[], args=[one(a) for a in (*given.posonlyargs, *given.args)], vararg=None,
                             kwonlyargs=[one(a) for a in given.kwonlyargs], kw_defaults=[None] * len(given.kwonlyargs),
                             kwarg=None, defaults=[])

    def block(self, body: list[ast.stmt]) -> list[ast.stmt]:
        kept = [self.visit(s) for s in body if not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant))]
        return kept or [ast.Pass()]

    def local(self, name: str) -> str:
        if name in self.names:
            return self.names[name]
        if name in self.keep or name in ROOTS or name in BUILTINS or _LOCAL.fullmatch(name) or (
                PARAMETER.fullmatch(name)):
            return name
        return self.made.setdefault(name, f"v{len(self.made)}")

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.copy_location(ast.Name(self.local(node.id), node.ctx), node)

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        text = ast.unparse(node)
        if text in EXPORTED or text == "tl.constexpr":
            return node
        root = text.partition(".")[0]
        if root in ROOTS or node.attr in METHODS | PROPERTIES:
            return ast.Attribute(self.visit(node.value), node.attr, node.ctx)
        return ast.Attribute(self.visit(node.value), "other", node.ctx)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        if isinstance(node.value, bytes) or (isinstance(node.value, str) and node.value not in WORDS):
            return ast.copy_location(ast.Constant("text"), node)
        return node

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        raise Private("a function within a function")

    visit_AsyncFunctionDef = visit_ClassDef = visit_Lambda = visit_FunctionDef  # type: ignore[assignment]

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:
        return None if isinstance(node.value, ast.Constant) else self.generic_visit(node)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> ast.AST:
        constexpr = ast.unparse(node.annotation).endswith("constexpr")
        node.annotation = ast.Name("tl.constexpr" if constexpr else "object", ast.Load())
        node.target = self.visit(node.target)
        node.value = self.visit(node.value) if node.value is not None else None
        return node


PREAMBLE = "\n".join(
    f"from {module} import {name}{f' as {local}' if local != name else ''}" if module else
    f"import {name}{f' as {local}' if local != name else ''}" for module, name, local in IMPORTS)
"""Every import that a candidate may have, as text."""
