"""Runs of captured wrappers, with recorded calls made from the shapes that the wrapper itself states."""

from __future__ import annotations

import ast
import math
import re
from typing import Any

from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Graph
from kernelopt_bot.compiler.run import KernelRun, regions_of, runs_of
from kernelopt_bot.gates import correctness
from kernelopt_bot.playbook.fusion import RunSite
from tests.playbook.sites import H200

STATS = {"min": -3.0, "max": 3.0, "mean": 0.1, "std": 1.0, "finite": True}
Shape = tuple[list[int], list[int], str]


def graph(text: str) -> Graph:
    return parse_graph(graph_json(text))


def graph_json(text: str) -> dict[str, Any]:
    """`GraphJson` of a wrapper; every tensor is synthesised from its statistics."""
    shapes: dict[str, Shape] = {}
    calls = []
    kernels: set[str] = set()
    dtypes = dict(re.findall(r"(\w+) = rand_strided\(.*dtype=torch\.(\w+)\)", text))
    nodes = sorted((n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.Assign | ast.Expr)),
                   key=lambda n: n.lineno)
    for node in nodes:
        target = node.targets[0].id if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) else ""
        if isinstance(node.value, ast.Name):
            if node.value.id in shapes:
                shapes[target] = shapes[node.value.id]
        elif isinstance(node.value, ast.Call):
            function, args = ast.unparse(node.value.func), node.value.args
            if function == "async_compile.triton":
                kernels.add(target)
            elif function == "empty_strided_cuda":
                shapes[target] = (*_shape(args), ast.unparse(args[2]).removeprefix("torch."))
            elif function == "reinterpret_tensor" and target:
                shapes[target] = (*_shape(args[1:]), _of(args[0], shapes)[2])
            elif function == "assert_size_stride" and isinstance(args[0], ast.Name):
                known = shapes.get(args[0].id)
                shapes[args[0].id] = (
                    *_shape(args[1:]), known[2] if known else dtypes.get(args[0].id, "float32"))
            elif function.startswith("extern_kernels."):
                keywords = {k.arg: k.value for k in node.value.keywords}
                given = [_argument(a, shapes) for a in args]
                calls.append({"line": node.lineno, "callee": function, "arguments": given, "keywords": {
                    "out": _argument(keywords["out"], shapes)} if "out" in keywords else {}})
                if target:
                    dtype = given[0]["tensor"]["dtype"]
                    shapes[target] = ([], [], dtype)
            elif function.removesuffix(".run") in kernels:
                calls.append({"line": node.lineno, "callee": function.removesuffix(".run"), "keywords": {},
                              "arguments": [_argument(a, shapes) for a in args]})
    return {"index": 0, "source": text, "inputs": [], "outputs": [], "calls": calls, "is_inference": True,
            "is_backward": False}


def _shape(args: list[ast.expr]) -> tuple[list[int], list[int]]:
    return list(ast.literal_eval(args[0])), list(ast.literal_eval(args[1]))


def _of(node: ast.expr, shapes: dict[str, Shape]) -> Shape:
    if isinstance(node, ast.Call):
        return (*_shape(node.args[1:]), _of(node.args[0], shapes)[2])
    return shapes[ast.unparse(node)]


def _argument(node: ast.expr, shapes: dict[str, Shape]) -> dict[str, Any]:
    if isinstance(node, ast.Constant):
        return {"tensor": None, "value": node.value, "stats": None, "saved": None}
    shape, stride, dtype = _of(node, shapes)
    meta = {"dtype": dtype, "shape": shape, "stride": stride, "offset": 0,
            "storage_bytes": 4 * math.prod(shape), "device": "cuda:0"}
    return {"tensor": meta, "value": None, "stats": STATS, "saved": None}


def run_arguments(run: KernelRun, text: str) -> list[dict[str, Any]]:
    """`arguments` of `check_step`."""
    recorded = {c["line"]: c for c in graph_json(text)["calls"]}
    return correctness.run_arguments(run, [recorded[step.lines[0]] for step in run.all_steps])


def run_sites(text: str, longest: int = 8) -> list[RunSite]:
    made = graph(text)
    return [RunSite(r, (None,) * len(r.calls), H200) for r in runs_of(made, longest)]


def region_sites(text: str) -> list[RunSite]:
    return [RunSite(r, (None,) * len(r.all_steps), H200) for r in regions_of(graph(text))]
