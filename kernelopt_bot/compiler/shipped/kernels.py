"""A generated kernel's definition: its canonical hash and what its decorator says."""

from __future__ import annotations

import ast
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


def literal(node: ast.expr | None, default: Any) -> Any:
    if node is None:
        return default
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return default


def _entries(node: ast.expr | None) -> dict[str, ast.expr]:
    if not isinstance(node, ast.Dict):
        return {}
    return {k.value: v for k, v in zip(node.keys, node.values, strict=True)
            if isinstance(k, ast.Constant) and isinstance(k.value, str)}


def dotted(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}"
        case ast.Subscript(value=value):
            return f"{dotted(value)}[]"
    return ""


def _heuristic(function: ast.FunctionDef) -> ast.Call | None:
    """The `@triton_heuristics.x(...)` decorator."""
    return next((d for d in function.decorator_list
                 if isinstance(d, ast.Call) and dotted(d.func).startswith("triton_heuristics.")), None)


def is_constexpr(parameter: ast.arg) -> bool:
    return parameter.annotation is not None and dotted(parameter.annotation).split(".")[-1] == "constexpr"


class _Canonical(ast.NodeTransformer):
    """Takes out of a kernel's source what differs between machines, positions in a graph and cache settings."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        if len(node.body) > 1 and isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant):
            del node.body[0]
        decorator = _heuristic(node)
        if decorator is not None:
            node.name = "kernel"
            decorator.keywords = [k for k in decorator.keywords if k.arg != "filename"]
            for keyword in decorator.keywords:
                if keyword.arg in ("triton_meta", "inductor_meta") and isinstance(keyword.value, ast.Dict):
                    kept = [(k, v) for k, v in zip(keyword.value.keys, keyword.value.values, strict=True)
                            if self.matters(keyword.arg, getattr(k, "value", ""))]
                    keyword.value = ast.Dict(keys=[k for k, _ in kept], values=[v for _, v in kept])
        return node

    @staticmethod
    def matters(where: str, key: str) -> bool:
        """triton_meta decides what is computed, but for the device; of inductor_meta only grid and aliasing do."""
        if where == "triton_meta":
            return key != "device"
        return isinstance(key, str) and ("grid" in key or key in ("extra_launcher_args", "mutated_arg_names"))


def kernel_hash(source: str) -> str:
    """Canonical hash (24 hexadecimal digits) of one kernel's source text, equal on every machine and Python.

    Of a Triton source: its syntax tree without comments, docstrings, the kernel's own name, file names, device
    properties and cache settings. Of any other text (C++ kernels): its lines without includes."""
    try:
        text = ast.unparse(_Canonical().visit(ast.parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        text = "\n".join(line for line in source.splitlines() if not line.lstrip().startswith("#include"))
    return hashlib.sha256(text.encode(errors="backslashreplace")).hexdigest()[:24]


@dataclass(frozen=True)
class KernelSource:
    """A kernel definition of a wrapper. `parameters` are those that the call passes, in order."""

    name: str
    language: str
    """`triton` or `cpp`; of a C++ kernel only name, text, hash, parameters and their C++ types are known."""
    text: str
    lines: tuple[int, int]
    """First and last line of the definition in the wrapper, from 1; (0, 0) for a bare source."""
    hash: str
    device: str = "cuda"
    function: str = ""
    heuristic: str = ""
    parameters: tuple[str, ...] = ()
    signature: Mapping[str, str] = field(default_factory=dict)
    divisible: frozenset[str] = frozenset()
    mutated: tuple[str, ...] = ()
    size_hints: Mapping[str, int] = field(default_factory=dict)
    meta: Mapping[str, str] = field(default_factory=dict)
    """triton_meta: key -> source text."""
    multiprocessors: int = 0
    capability: int = 0
    """Compute capability of the device it was made for, `90` for 9.0."""


def read_kernel(text: str, *, name: str = "", language: str = "triton", device: str = "cuda",
                lines: tuple[int, int] = (0, 0), types: tuple[str, ...] = ()) -> KernelSource:
    """What a kernel's source text says of itself. A text without a `@triton_heuristics` function gives empty facts.
    `types` are the C++ parameter types of a C++ kernel, whose parameters are named by position."""
    function = None
    if language == "triton":
        try:
            functions = [n for n in ast.parse(text).body if isinstance(n, ast.FunctionDef)]
        except SyntaxError:
            functions = []
        function = next((n for n in functions if _heuristic(n) is not None), None)
    decorator = _heuristic(function) if function is not None else None
    if function is None or decorator is None:
        signature = {str(i): t for i, t in enumerate(types)}
        return KernelSource(name, language, text, lines, kernel_hash(text), device=device, signature=signature,
                            parameters=tuple(signature), heuristic="" if language == "triton" else "cpp")
    keywords = {k.arg: k.value for k in decorator.keywords}
    meta, inductor = _entries(keywords.get("triton_meta")), _entries(keywords.get("inductor_meta"))
    order = [a.arg for a in function.args.args]
    hints = literal(meta.get("configs"), [{}])[0]
    properties = {k.arg: literal(k.value, 0) for k in getattr(meta.get("device"), "keywords", [])}
    return KernelSource(
        name, language, text, lines, kernel_hash(text), device=device,
        function=function.name, heuristic=dotted(decorator.func).split(".")[-1],
        parameters=(*(a.arg for a in function.args.args if not is_constexpr(a)),
                    *literal(inductor.get("extra_launcher_args"), [])),
        signature=literal(meta.get("signature"), {}),
        divisible=frozenset(order[k[0]] for k, v in hints.items()
                            if k[0] < len(order) and ["tt.divisibility", 16] in [list(a) for a in v]),
        mutated=tuple(literal(inductor.get("mutated_arg_names"), [])),
        size_hints=literal(keywords.get("size_hints"), {}),
        meta={k: ast.unparse(v) for k, v in meta.items()},
        multiprocessors=properties.get("multi_processor_count") or 0, capability=properties.get("cc") or 0)
