"""A captured graph (`GraphJson` of docs/architecture.md) -> `program.Graph`, by syntax tree."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from kernelopt_bot.compiler._runtime import Call, KernelSource, Statement, Wrapper, read_wrapper, run_hash
from kernelopt_bot.compiler.flops import vendor_flops
from kernelopt_bot.compiler.program import Argument, Graph, GraphInput, Kernel, Step, StepKind, TensorMeta
from kernelopt_bot.contract.flow import analyse
from kernelopt_bot.errors import InputError

Recorded = Mapping[int, list[Mapping[str, Any]]]
"""First line of a statement -> the `CallJson`s recorded there, in order."""
_KINDS: Mapping[str, StepKind] = {
    "kernel": "kernel", "vendor": "vendor", "allocation": "allocation", "view": "view", "free": "free"}


def parse_graph(data: Mapping[str, Any]) -> Graph:
    """Raises InputError (kind `unsupported`) if the wrapper is not Python or a field is missing."""
    try:
        wrapper = read_wrapper(data["source"])
        recorded: dict[int, list[Mapping[str, Any]]] = {}
        for call in data["calls"]:
            recorded.setdefault(call["line"], []).append(call)
        return Graph(
            index=data["index"], source=data["source"],
            inputs=tuple(GraphInput(i["name"], i["qualified"], i["kind"], tensor_meta(i["tensor"]), i["mutated"])
                         for i in data["inputs"]),
            outputs=tuple(tensor_meta(o) for o in data["outputs"]),
            steps=_steps(wrapper, recorded, data["index"]),
            kernels={name: _kernel(k) for name, k in wrapper.kernels.items()},
            is_inference=data["is_inference"], is_backward=data["is_backward"])
    except (SyntaxError, KeyError, TypeError, ValueError) as e:
        raise InputError("the compiler's code for a graph could not be read", kind="unsupported",
                         where=f"{type(e).__name__}: {e}",
                         fix="the baseline stays; report the torch version and the model's operators") from e


def tensor_meta(data: Mapping[str, Any] | None) -> TensorMeta | None:
    """`TensorMeta` from its JSON; None stays None. Raises KeyError or TypeError."""
    if data is None:
        return None
    return TensorMeta(data["dtype"], tuple(data["shape"]), tuple(data["stride"]), data["offset"],
                      data["storage_bytes"], data["device"])


def _steps(wrapper: Wrapper, recorded: Recorded, graph: int) -> tuple[Step, ...]:
    """In the order of execution: a partition's statements stand where `call` calls it."""
    calls = {c.statement.index: c for c in wrapper.calls}
    steps: list[Step] = []

    def add(function: str) -> None:
        for statement in wrapper.statements:
            if statement.scope.name != function:
                continue
            if statement.kind == "partition":
                add(_partition(statement))
            else:
                steps.append(_step(statement, calls.get(statement.index), wrapper, recorded, graph, len(steps)))

    add("call")
    return tuple(steps)


def _partition(statement: Statement) -> str:
    """`partition_2` of `self.partitions[2](...)` or of a call by that name."""
    for node in ast.walk(statement.node):
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
            return f"partition_{node.slice.value!r}"
        if isinstance(node, ast.Name) and node.id.startswith("partition_"):
            return node.id
    raise ValueError(f"partition call {ast.unparse(statement.node)[:60]!r}")


def _step(statement: Statement, call: Call | None, wrapper: Wrapper, recorded: Recorded, graph: int,
          index: int) -> Step:
    node, text = statement.node, ast.unparse(statement.node)
    results: tuple[str, ...] = ()
    if isinstance(node, ast.Assign):
        results = tuple(n.id for t in node.targets for n in ast.walk(t) if isinstance(n, ast.Name))
    kind = _KINDS.get(statement.kind, "other")
    arguments: tuple[Argument, ...] = ()
    name, digest, flops = text, "", None
    record = next(iter(recorded.get(statement.lines[0], ())), None)
    if call is not None:
        name = call.kernel
        arguments = _kernel_arguments(call, record)
        digest = run_hash([call], wrapper.kernels)
    elif kind == "vendor":
        expression = node.value if isinstance(node, (ast.Assign, ast.Expr)) else None
        vendor = next((n for n in ast.walk(expression) if isinstance(n, ast.Call)), None) if expression else None
        if vendor is not None:
            name = ast.unparse(vendor.func)
            arguments = _vendor_arguments(vendor, statement, record)
            flops = _flops(name, vendor, arguments)
            digest = _digest([name, [_shape_of(a) for a in arguments]])
    return Step(graph, index, kind, name, statement.scope.name, statement.lines,
                digest or _digest([kind, text]), arguments, results, flops)


def _kernel_arguments(call: Call, record: Mapping[str, Any] | None) -> tuple[Argument, ...]:
    recorded = record["arguments"] if record else []
    if recorded and len(recorded) != len(call.bindings):
        raise ValueError(f"{call.kernel}: {len(recorded)} arguments recorded, {len(call.bindings)} in the text")
    return tuple(
        Argument(b.name, b.expression, tensor_meta(recorded[i]["tensor"]) if recorded else None,
                 b.value if b.value is not None else _scalar(recorded[i]["value"] if recorded else None), b.root)
        for i, b in enumerate(call.bindings))


def _vendor_arguments(call: ast.Call, statement: Statement, record: Mapping[str, Any] | None) -> tuple[Argument, ...]:
    found: list[Argument] = []
    given: Mapping[str, Any] = record or {"arguments": [], "keywords": {}}
    values = [(str(i), a, given["arguments"][i] if i < len(given["arguments"]) else None)
              for i, a in enumerate(call.args)]
    values += [(k.arg, k.value, given["keywords"].get(k.arg)) for k in call.keywords if k.arg]
    for name, node, seen in values:
        root = next((n.id for n in ast.walk(node) if isinstance(n, ast.Name) and n.id in statement.scope.names), "")
        buffer = statement.scope.names[root][0] if root else ""
        tensor = tensor_meta(seen["tensor"]) if seen else None
        found.append(Argument(name, ast.unparse(node), tensor, _scalar(_constant(node)), buffer))
    return tuple(found)


def _flops(name: str, call: ast.Call, arguments: Sequence[Argument]) -> int | None:
    positional = [a.tensor.shape if a.tensor else None for a in arguments if a.name.isdigit()]
    if any(s is None and a.buffer for s, a in zip(positional, arguments, strict=False)):
        return None
    literals = {str(i): _constant(n) for i, n in enumerate(call.args)}
    literals |= {k.arg: _constant(k.value) for k in call.keywords if k.arg}
    return vendor_flops(name, positional, {k: v for k, v in literals.items() if v is not None})


def _constant(node: ast.expr) -> Any:
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError):
        return None


def _scalar(value: Any) -> int | float | bool | str | None:
    return value if isinstance(value, (int, float, bool, str)) else None


def _shape_of(argument: Argument) -> list[Any]:
    t = argument.tensor
    return [argument.name, [t.dtype, t.shape, t.stride] if t else
            (argument.value if argument.buffer or argument.value is not None else argument.expression)]


def _digest(parts: Any) -> str:
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:24]


def _kernel(kernel: KernelSource) -> Kernel:
    if kernel.language != "triton":
        written = tuple(n for n, t in kernel.signature.items() if "*" in t and not t.startswith("const"))
    else:
        pointers = frozenset(n for n, t in kernel.signature.items() if t.startswith("*"))
        written = written_parameters(kernel.text, kernel.function, pointers) or kernel.mutated
    origin = kernel.name.split("_fused_", 1)[-1].rsplit("_", 1)[0] if "_fused_" in kernel.name else ""
    return Kernel(kernel.name, kernel.function or kernel.name, kernel.text, kernel.hash, kernel.heuristic,
                  kernel.signature, written, kernel.size_hints, origin)


def written_parameters(source: str, function: str, pointers: frozenset[str]) -> tuple[str, ...]:
    """Those of the parameters `pointers` that a Triton kernel stores to, in order, by data flow."""
    functions = {n.name: n for n in ast.parse(source).body if isinstance(n, ast.FunctionDef)}
    if function not in functions:
        return ()
    effects = analyse(functions, function, pointers)
    return tuple(a.arg for a in functions[function].args.args if a.arg in effects.stored | effects.atomics)
