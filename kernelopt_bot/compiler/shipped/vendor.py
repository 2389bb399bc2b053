"""Vendor calls of a wrapper as calls that a run may hold: what they take, in which layout, and their canonical hash.

The functions known here take tensors of one dtype, so that a dtype that the text states for one of them is that of all:
an allocation's, the next kernel's, or what the wrapper's own benchmark makes of an input.
"""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernelopt_bot.compiler.shipped.kernels import KernelSource, dotted, literal
from kernelopt_bot.compiler.shipped.rendering import POINTER_TYPES
from kernelopt_bot.compiler.shipped.wrapper import Binding, Call, Statement, Wrapper

VENDOR_FUNCTIONS = ("extern_kernels.mm", "extern_kernels.bmm", "extern_kernels.addmm", "extern_kernels.baddbmm",
                    "extern_kernels.convolution")
Layout = tuple[tuple[int, ...], tuple[int, ...]]
"""(shape, stride) in elements."""


@dataclass(frozen=True)
class VendorCall(Call):
    """A vendor call. `bindings` are its tensors, `layouts` how it sees them, by the bindings' names; the last one is
    the result. `options` are its other arguments, by keyword or position."""

    callee: str = ""
    layouts: Mapping[str, Layout] = field(default_factory=dict)
    options: Mapping[str, Any] = field(default_factory=dict)
    variable: str = ""
    """The variable that takes what it returns; '' where it writes to `out`."""


def call_sequence(wrapper: Wrapper) -> tuple[tuple[Call, ...], Mapping[str, KernelSource]]:
    """Kernel calls and the vendor calls that a run may hold, in text order, and the kernels of both: those of vendor
    calls stand for what is called, with its layouts, and have the language `vendor`."""
    layouts = _layouts(wrapper)
    found: dict[int, Call] = {c.statement.index: c for c in wrapper.calls}
    kernels = dict(wrapper.kernels)
    for statement in wrapper.statements:
        if statement.kind == "vendor":
            call = _read_vendor(statement, wrapper, layouts)
            if call is not None:
                found[statement.index] = call
                kernels[call.kernel] = _as_kernel(call, wrapper)
    return tuple(found[i] for i in sorted(found)), kernels


def _layouts(wrapper: Wrapper) -> dict[tuple[str, str], tuple[Layout, str]]:
    """(function, variable) -> layout, and dtype where it is stated."""
    known: dict[tuple[str, str], tuple[Layout, str]] = {}
    types = _input_types(wrapper.tree)
    for s in wrapper.statements:
        call = getattr(s.node, "value", None)
        if s.kind == "check" and isinstance(call, ast.Call) and dotted(call.func) == "assert_size_stride":
            if len(call.args) > 2 and isinstance(call.args[0], ast.Name) and (layout := _layout(call.args[1:3])):
                known.setdefault((s.scope.name, call.args[0].id), (layout, types.get(call.args[0].id, "")))
        elif isinstance(s.node, ast.Assign) and isinstance(s.node.targets[0], ast.Name):
            target = (s.scope.name, s.node.targets[0].id)
            if s.kind == "allocation" and isinstance(call, ast.Call) and dotted(call.func).startswith("empty_strided"):
                layout = _layout(call.args[:2])
                if layout and len(call.args) > 2:
                    known[target] = (layout, dotted(call.args[2]).removeprefix("torch."))
            elif s.kind == "view" and (seen := _seen(call, s.scope.name, known)):
                known[target] = seen
    return known


def _input_types(tree: ast.Module) -> dict[str, str]:
    """Input -> dtype, as the wrapper's own benchmark makes it."""
    found: dict[str, str] = {}
    for function in (n for n in tree.body if isinstance(n, ast.FunctionDef)):
        if function.name in ("get_args", "benchmark_compiled_module"):
            for node in function.body:
                match node:
                    case ast.Assign(targets=[ast.Name(id=name)], value=ast.Call(
                            func=ast.Name(id="rand_strided"), keywords=keywords)):
                        dtype = next((dotted(k.value) for k in keywords if k.arg == "dtype"), "")
                        found[name] = dtype.removeprefix("torch.")
    return found


def _seen(node: ast.expr | None, scope: str, known: Mapping[tuple[str, str], tuple[Layout, str]]) -> tuple[
        Layout, str] | None:
    """Layout and dtype ('' unknown) of a variable or of a view of one."""
    match node:
        case ast.Name(id=name):
            # A partition takes the inputs of `call` under their names.
            return known.get((scope, name)) or known.get(("call", name))
        case ast.Call(func=ast.Name(id="reinterpret_tensor"), args=[inner, shape, stride, *_]):
            layout, base = _layout([shape, stride]), _seen(inner, scope, known)
            return (layout, base[1] if base else "") if layout else None
    return None


def _layout(nodes: list[ast.expr]) -> Layout | None:
    values = [literal(n, None) for n in nodes]
    if len(values) != 2 or not all(isinstance(v, tuple) and all(isinstance(i, int) for i in v) for v in values):
        return None
    return values[0], values[1]


def _read_vendor(statement: Statement, wrapper: Wrapper,
                 known: Mapping[tuple[str, str], tuple[Layout, str]]) -> VendorCall | None:
    node = statement.node
    value = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
    if not isinstance(value, ast.Call) or dotted(value.func) not in VENDOR_FUNCTIONS:
        return None
    scope, bindings, layouts, options = statement.scope, [], {}, {}
    variable = ""
    given: list[tuple[str, ast.expr]] = [(f"a{i}", a) for i, a in enumerate(value.args)]
    given += [(k.arg or "", k.value) for k in value.keywords]
    if isinstance(node, ast.Assign):
        if len(node.targets) != 1 or not isinstance(node.targets[0], ast.Name):
            return None
        variable = node.targets[0].id
        given = [*(g for g in given if g[0] != "out"), ("out", node.targets[0])]
    else:
        given.sort(key=lambda g: g[0] == "out")
    dtype = ""
    for name, argument in given:
        seen = _seen(argument, scope.name, known)
        if seen is None:
            option = literal(argument, _UNKNOWN)
            if option is _UNKNOWN:
                return None
            options[name] = option
            continue
        root, offset = _root(argument, statement)
        if not root:
            return None
        dtype = seen[1] or dtype
        layouts[name] = seen[0]
        bindings.append(Binding(name, "", ast.unparse(argument), root, offset))
    if not bindings or bindings[-1].name != "out":
        return None
    kind = POINTER_TYPES.get(dtype, "") or _kernel_type(bindings[-1].root, wrapper, statement)
    if kind not in ("*fp32", "*fp16", "*bf16"):
        return None
    return VendorCall(f"{dotted(value.func)}@{statement.index}", statement,
                      tuple(replace(b, type=kind) for b in bindings), "", True, dotted(value.func), layouts, options,
                      variable)


_UNKNOWN = object()


def _root(node: ast.expr, statement: Statement) -> tuple[str, int]:
    match node:
        case ast.Call(args=[inner, _, _, offset, *_]):
            root, shift = _root(inner, statement)
            more = literal(offset, None)
            return (root, shift + more) if isinstance(more, int) else ("", 0)
        case ast.Name(id=name):
            return statement.scope.names.get(name, (name, 0))
    return "", 0


def _kernel_type(root: str, wrapper: Wrapper, after: Statement) -> str:
    """Type under which the next kernel takes a buffer ('' if none does)."""
    return next((b.type for c in wrapper.calls for b in c.bindings
                 if c.statement.index > after.index and c.statement.scope is after.scope and b.root == root), "")


def _as_kernel(call: VendorCall, wrapper: Wrapper) -> KernelSource:
    parts = [call.callee, sorted((n, repr(v)) for n, v in call.options.items()),
             [[b.name, b.type, call.layouts[b.name]] for b in call.bindings]]
    digest = hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]
    return KernelSource(
        call.kernel, "vendor", "", call.statement.lines, digest, parameters=tuple(b.name for b in call.bindings),
        signature={b.name: b.type for b in call.bindings},
        divisible=frozenset(b.name for b in call.bindings if not b.offset and (
            _aligned(b.root, call, wrapper) or b.root in alignable(call, wrapper))))


def _aligned(root: str, call: VendorCall, wrapper: Wrapper) -> bool:
    """True if the wrapper itself guarantees that the memory starts at a multiple of 16 bytes."""
    scope = call.statement.scope
    if root in scope.owned:
        return True
    return any(s.kind == "align" and isinstance(s.node, ast.Assign) and
               any(isinstance(t, ast.Name) and t.id == root for t in s.node.targets) for s in wrapper.statements)


def device_index(call: VendorCall, wrapper: Wrapper) -> int:
    """The CUDA device that the function of a call sets; 0 where it sets none."""
    for s in wrapper.statements:
        node = getattr(s.node, "value", None)
        if s.scope is call.statement.scope and isinstance(node, ast.Call) and node.args and (
                dotted(node.func) == "torch.cuda.set_device"):
            return int(literal(node.args[0], 0))
    return 0


def bare_kernel(device: str) -> KernelSource:
    """Stands for the compiler's kernel where a wrapper has none: `DeviceProperties(...)` as text, and nothing else."""
    call = ast.parse(device, mode="eval").body
    properties = {k.arg: literal(k.value, 0) for k in call.keywords} if isinstance(call, ast.Call) else {}
    return KernelSource("", "triton", "", (0, 0), "", meta={"device": device},
                        multiprocessors=properties.get("multi_processor_count") or 0,
                        capability=properties.get("cc") or 0)


def alignable(call: VendorCall, wrapper: Wrapper) -> frozenset[str]:
    """Inputs of the graph of which a line before the launches can make a copy where they are not aligned: Inductor
    looks after the alignment of what its own kernels take, not of what vendors take."""
    out = call.bindings[-1].root
    return frozenset(
        b.root for b in call.bindings[:-1] if b.root != out and not _aligned(b.root, call, wrapper)
        and any(isinstance(n, ast.Name) and n.id == b.root for n in ast.walk(ast.parse(b.expression))))
