"""Kernel calls of an Inductor wrapper with the shapes of their tensors: what the tests build sites from."""

from __future__ import annotations

import ast
from typing import Any


def kernel_calls(wrapper: str) -> list[dict[str, Any]]:
    """`{name, source, arguments: [{buffer, shape, stride} | {value}]}` for each call of a generated kernel."""
    tree = ast.parse(wrapper)
    sources: dict[str, str] = {}
    shapes: dict[str, tuple[list[int], list[int]]] = {}
    calls: list[dict[str, Any]] = []
    statements = sorted((n for n in ast.walk(tree) if isinstance(n, ast.Assign | ast.Expr)), key=lambda n: n.lineno)
    for statement in statements:
        value = statement.value
        if not isinstance(value, ast.Call | ast.Name):
            continue
        target = statement.targets[0].id if isinstance(statement, ast.Assign) and isinstance(
            statement.targets[0], ast.Name) else ""
        if isinstance(value, ast.Name):
            if value.id in shapes:
                shapes[target] = shapes[value.id]
            continue
        function = ast.unparse(value.func)
        if function == "async_compile.triton":
            sources[target] = ast.literal_eval(value.args[1])
        elif function == "empty_strided_cuda":
            shapes[target] = _shape(value.args)
        elif function == "reinterpret_tensor" and target:
            shapes[target] = _shape(value.args[1:])
        elif function == "assert_size_stride" and isinstance(value.args[0], ast.Name):
            shapes[value.args[0].id] = _shape(value.args[1:])
        elif function.endswith(".run") and function.removesuffix(".run") in sources:
            name = function.removesuffix(".run")
            arguments = [_argument(a, shapes) for a in value.args]
            calls.append({"name": name, "source": sources[name], "arguments": arguments})
    return calls


def _shape(args: list[ast.expr]) -> tuple[list[int], list[int]]:
    return list(ast.literal_eval(args[0])), list(ast.literal_eval(args[1]))


def _argument(node: ast.expr, shapes: dict[str, tuple[list[int], list[int]]]) -> dict[str, Any]:
    if isinstance(node, ast.Name):
        shape, stride = shapes[node.id]
        return {"buffer": node.id, "shape": shape, "stride": stride}
    if isinstance(node, ast.Call) and ast.unparse(node.func) == "reinterpret_tensor":
        shape, stride = _shape(node.args[1:])
        return {"buffer": ast.unparse(node.args[0]), "shape": shape, "stride": stride}
    return {"value": ast.literal_eval(node)}
