"""Inductor's wrapper text: its kernels, statements and kernel calls, by syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernelopt_bot.compiler.shipped.kernels import KernelSource, dotted, literal, read_kernel


@dataclass(frozen=True)
class Binding:
    """What a call passes for one parameter. Pointers have a `root` (the buffer that owns the memory)."""

    name: str
    type: str
    expression: str
    root: str = ""
    offset: int = 0
    value: int | float | bool | None = None


@dataclass
class Scope:
    """One function of the wrapper: where each root is used, and which roots live outside it."""

    name: str
    uses: dict[str, list[int]] = field(default_factory=dict)
    escaping: set[str] = field(default_factory=set)
    names: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Variable -> (root, offset in elements)."""
    owned: set[str] = field(default_factory=set)
    """Roots whose memory this function allocated, or got fresh from a vendor: nothing else can see them."""
    reuses: dict[str, list[int]] = field(default_factory=dict)
    """Root -> statements that give its memory to another buffer, `buf9 = buf0; del buf0`: the old value is over."""
    overwrites: dict[str, set[int]] = field(default_factory=dict)
    """Root -> kernel calls that take it as an output only."""


@dataclass(frozen=True)
class Statement:
    """`kind`: kernel, vendor, allocation, view, free, stream, check, align, partition, return or other."""

    kind: str
    node: ast.stmt
    index: int
    scope: Scope

    @property
    def lines(self) -> tuple[int, int]:
        return self.node.lineno, self.node.end_lineno or self.node.lineno


@dataclass(frozen=True)
class Call:
    """One kernel call. `stable` is False where an argument is symbolic: it can then not be replaced."""

    kernel: str
    statement: Statement
    bindings: tuple[Binding, ...]
    keywords: str
    stable: bool

    @property
    def integers(self) -> dict[str, int]:
        return {b.name: b.value for b in self.bindings
                if isinstance(b.value, int) and not isinstance(b.value, bool)}


@dataclass(frozen=True)
class Wrapper:
    text: str
    kernels: Mapping[str, KernelSource]
    statements: tuple[Statement, ...]
    """In text order, partitions included; nested blocks flattened."""
    calls: tuple[Call, ...]
    tree: ast.Module


_FRESH = ("extern_kernels.convolution",)
"""Vendor functions whose result is new memory (`at::convolution`), never a view of an argument."""


def _flat(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    for node in body:
        if isinstance(node, ast.With):
            yield from _flat(node.body)
        else:
            yield node


def _callee(node: ast.stmt) -> str:
    value = getattr(node, "value", None)
    while isinstance(value, ast.Subscript):
        value = value.value
    return dotted(value.func) if isinstance(value, ast.Call) else ""


def _kind(node: ast.stmt, kernels: Mapping[str, KernelSource]) -> str:
    callee = _callee(node)
    match node:
        case ast.Delete():
            return "free"
        case ast.Return():
            return "return"
        case ast.Assign(targets=[ast.Name()], value=ast.Name()):
            return "view"
    if callee.removesuffix(".run") in kernels:
        return "kernel"
    if callee == "reinterpret_tensor" and isinstance(node, ast.Assign):
        return "view"
    if callee.startswith("empty_strided") or callee == "alloc_from_pool":
        return "allocation"
    if callee in ("get_raw_stream", "assert_size_stride", "assert_alignment"):
        return "stream" if callee == "get_raw_stream" else "check"
    if callee == "copy_if_misaligned":
        return "align"
    if callee in ("self.partitions[]", "partitions[]") or callee.startswith("partition_"):
        return "partition"
    vendor = callee.startswith(("extern_kernels.", "torch.ops.", "aten.", "inductor_ops.", "_quantized."))
    return "vendor" if vendor else "other"


def _pointer(node: ast.expr, scope: Scope) -> tuple[str, int] | None:
    match node:
        case ast.Name(id=name):
            return scope.names.get(name, (name, 0))
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[inner, _, _, offset, *_]):
            base, shift = _pointer(inner, scope), literal(offset, None)
            return None if base is None or not isinstance(shift, int) else (base[0], base[1] + shift)
    return None


def _bind(node: ast.stmt, scope: Scope, kind: str) -> None:
    """Follow the names that a statement binds to the memory behind them."""
    if not isinstance(node, ast.Assign):
        return
    found = _pointer(node.value, scope) if kind == "view" else None
    for target in ast.walk(node.targets[0]):
        if isinstance(target, ast.Name):
            scope.names[target.id] = found or (target.id, 0)
            if (kind != "allocation" and found is None) or _callee(node) == "alloc_from_pool":
                scope.escaping.add(target.id)
            if (kind == "allocation" and _callee(node) != "alloc_from_pool") or _callee(node) in _FRESH:
                scope.owned.add(target.id)


def _note_reuse(node: ast.stmt, before: Statement | None) -> None:
    """`buf9 = buf0; del buf0`: the statement before on the same line was a view of what is deleted here."""
    if not isinstance(node, ast.Delete) or before is None or before.kind != "view":
        return
    named = {n.id for n in ast.walk(before.node) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Load)}
    for target in node.targets:
        if isinstance(target, ast.Name) and target.id in named and node.lineno == before.node.lineno:
            scope = before.scope
            scope.reuses.setdefault(scope.names.get(target.id, (target.id, 0))[0], []).append(before.index)


def _note_overwrites(call: Call, kernel: KernelSource) -> None:
    by_root: dict[str, list[str]] = {}
    for b in (b for b in call.bindings if b.root):
        by_root.setdefault(b.root, []).append(b.name)
    for root, names in by_root.items():
        if all(n.startswith("out_ptr") and n not in kernel.mutated for n in names):
            call.statement.scope.overwrites.setdefault(root, set()).add(call.statement.index)


def _read_call(node: ast.stmt, statement: Statement, kernels: Mapping[str, KernelSource]) -> Call:
    call: ast.Call = node.value  # type: ignore[attr-defined]
    kernel = kernels[dotted(call.func).removesuffix(".run")]
    names = kernel.parameters or tuple(str(i) for i in range(len(call.args)))
    stable = len(names) == len(call.args) and kernel.language == "triton" and bool(kernel.function)
    bindings = []
    for name, argument in zip(names, call.args, strict=False):
        declared = kernel.signature.get(name, "i32" if kernel.language == "triton" else "")
        text = ast.unparse(argument)
        pointer = _pointer(argument, statement.scope)
        if "*" in declared or (not declared and pointer is not None):
            stable = stable and pointer is not None
            root, offset = pointer or ("", 0)
            bindings.append(Binding(name, declared, text, root, offset))
        else:
            value = literal(argument, None)
            stable = stable and isinstance(value, (int, float))
            bindings.append(Binding(name, declared, text, value=value))
    return Call(kernel.name, statement, tuple(bindings), "".join(f", {ast.unparse(k)}" for k in call.keywords), stable)


def _definition(name: str, node: ast.stmt, call: ast.Call) -> KernelSource:
    texts = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    triton = dotted(call.func) == "async_compile.triton"
    device = next((literal(k.value, "cuda") for k in call.keywords if k.arg == "device_str"), "cuda")
    types = literal(call.args[0], []) if call.args and not triton else []
    return read_kernel(texts[-1] if texts else "", name=name, language="triton" if triton else "cpp",
                       device=device if triton else "cpu", lines=(node.lineno, node.end_lineno or node.lineno),
                       types=tuple(str(t) for t in types) if isinstance(types, list) else ())


def read_wrapper(text: str) -> Wrapper:
    """Parse a wrapper by its syntax tree. Raises SyntaxError if it is not Python."""
    tree = ast.parse(text)
    kernels: dict[str, KernelSource] = {}
    functions: list[ast.FunctionDef] = []
    for node in tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(func=ast.Attribute(
                    value=ast.Name(id="async_compile"), attr=("triton" | "cpp" | "cpp_pybinding"))) as call):
                kernels[name] = _definition(name, node, call)
            case ast.FunctionDef(name=name) if name == "call" or name.startswith("partition_"):
                functions.append(node)
            case ast.ClassDef(name="Runner"):
                functions += [n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "call"]
    statements: list[Statement] = []
    calls: list[Call] = []
    for function in functions:
        scope = Scope(function.name)
        before: Statement | None = None
        for node in _flat(function.body):
            statement = Statement(_kind(node, kernels), node, len(statements), scope)
            statements.append(statement)
            _note_reuse(node, before)
            before = statement
            if statement.kind == "kernel":
                calls.append(_read_call(node, statement, kernels))
                _note_overwrites(calls[-1], kernels[calls[-1].kernel])
            if statement.kind not in ("free", "view", "allocation"):
                for name in {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}:
                    root = scope.names.get(name, (name, 0))[0]
                    scope.uses.setdefault(root, []).append(statement.index)
                    if statement.kind == "return":
                        scope.escaping.add(root)
            _bind(node, scope, statement.kind)
    return Wrapper(text, kernels, tuple(statements), tuple(calls), tree)


def find_runs(wrapper: str) -> tuple[Call, ...]:
    """The kernel calls of a wrapper's text in order. Raises SyntaxError."""
    return read_wrapper(wrapper).calls
