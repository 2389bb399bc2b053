"""The files of a corpus.

A case is one TOML file, data from end to end: `about`, `expect`, `because` (a part of the reason that it must be
refused with), `baseline`, `source`, `launches`, and where needed `scratch`, `parameters` (changes, by name), `stats`,
`limit_s`, `precision`.
A baseline is one JSON file of `baselines/`: a kernel that Inductor wrote, and its call.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from kernelopt_bot.compiler._runtime import read_kernel
from kernelopt_bot.compiler.parse import written_parameters
from kernelopt_bot.compiler.program import Argument, Kernel, Step, TensorMeta
from kernelopt_bot.contract.flow import analyse
from kernelopt_bot.contract.plan import ITEM_BYTES
from kernelopt_bot.errors import InputError

Expectation = Literal["static", "correctness", "gpu", "interpreter", "honest"]
EXPECTATIONS = ("static", "correctness", "gpu", "interpreter", "honest")
TORCH = {"fp64": "float64", "fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32"}
STATS = {"min": -4.0, "max": 4.0, "mean": 0.0, "std": 1.0, "finite": True}
"""Of a captured input, where the case names no others."""


@dataclass(frozen=True)
class Baseline:
    """One kernel of the compiler's with its recorded call, as gate 2 takes them."""

    kernel: Kernel
    step: Step
    read: frozenset[str]
    """Parameters that it loads from."""

    def call(self, stats: Mapping[str, Any]) -> dict[str, Any]:
        """The `CallJson`; `stats` of tensors by parameter name."""
        return {"line": 1, "callee": self.kernel.name, "keywords": {}, "arguments": [
            {"tensor": None if a.tensor is None else dataclasses.asdict(a.tensor), "value": a.value, "saved": None,
             "stats": {**STATS, **stats.get(a.name, {})} if a.tensor is not None else None}
            for a in self.step.arguments]}


@dataclass(frozen=True)
class Case:
    name: str
    about: str
    expect: Expectation
    because: str
    baseline: Baseline
    source: str
    plan: Mapping[str, Any]
    """`Plan` as JSON, as hostile as it likes to be."""
    stats: Mapping[str, Any] = field(default_factory=dict)
    limit_s: float | None = None
    """Seconds that gate 2 waits for an answer, where a case is about giving none."""
    precision: bool = False
    """An adversary of precision alone: it bounds `gates.k` from above."""


def load(folder: Path) -> tuple[Case, ...]:
    """Every case of `folder/cases`, by name. Raises InputError for a file that is no case."""
    paths = sorted((folder / "cases").glob("*.toml"))
    if not paths:
        raise InputError("there is no case", where=str(folder / "cases"), fix="name a folder with cases/*.toml")
    baselines = {p.stem: _baseline(json.loads(p.read_text())) for p in sorted((folder / "baselines").glob("*.json"))}
    return tuple(_case(path, baselines) for path in paths)


def _baseline(data: Mapping[str, Any]) -> Baseline:
    kernel = read_kernel(data["source"], name=data["name"])
    pointers = frozenset(n for n, t in kernel.signature.items() if t.startswith("*"))
    written = written_parameters(kernel.text, kernel.function, pointers)
    defined = {n.name: n for n in ast.parse(kernel.text).body if isinstance(n, ast.FunctionDef)}
    effects = analyse(defined, kernel.function, pointers)
    arguments = []
    for name, given in zip(kernel.parameters, data["arguments"], strict=True):
        if "value" in given:
            arguments.append(Argument(name, str(given["value"]), value=given["value"]))
            continue
        dtype = TORCH[kernel.signature[name].removeprefix("*")]
        shape, stride = tuple(given["shape"]), tuple(given["stride"])
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        meta = TensorMeta(dtype, shape, stride, 0, extent * ITEM_BYTES[dtype], "cuda:0")
        arguments.append(Argument(name, given["buffer"], tensor=meta, buffer=given["buffer"]))
    return Baseline(
        Kernel(kernel.name, kernel.function, kernel.text, kernel.hash, kernel.heuristic, kernel.signature, written,
               kernel.size_hints),
        Step(0, 0, "kernel", kernel.name, "call", (1, 1), "", tuple(arguments)), frozenset(effects.loaded))


def _case(path: Path, baselines: Mapping[str, Baseline]) -> Case:
    try:
        data = tomllib.loads(path.read_text())
        baseline = baselines[data["baseline"]]
        if data["expect"] not in EXPECTATIONS:
            raise ValueError(f"expect is one of {', '.join(EXPECTATIONS)}")
        changes = data.get("parameters", {})
        names = [a.name for a in baseline.step.arguments]
        parameters = [{"name": n, "type": baseline.kernel.signature[n], "written": n in baseline.kernel.written,
                       "read": n in baseline.read or n not in baseline.kernel.written, **changes.get(n, {})}
                      for n in names]
        parameters += [{"name": n, **more} for n, more in changes.items() if n not in names]
        plan = {"parameters": parameters, "scratch": data.get("scratch", []),
                "launches": [{"arguments": names, **launch} for launch in data["launches"]]}
        return Case(path.stem, data["about"], data["expect"], data.get("because", ""), baseline, data["source"], plan,
                    data.get("stats", {}), data.get("limit_s"),
                    data.get("precision", False))
    except (KeyError, TypeError, ValueError) as e:
        raise InputError("a file of the corpus is no case", where=f"{path}: {type(e).__name__}: {e}",
                         fix="see the section on the corpus in docs/gates.md") from e
