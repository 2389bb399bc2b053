"""Runs baseline kernels and candidates under Triton's interpreter and compares what they write.

    python interpreted.py CASES.json RESULTS.json      (a process of its own: the interpreter must be chosen first)

A case is `{source, plan, baseline, arguments}`, with `nonfinite` a value that some inputs have; a result `{"passed",
"reason", "worst"}`. Independent of the package's own gate: the point is to test the playbook, not to trust it.
"""

from __future__ import annotations

import ast
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any
from unittest import mock

os.environ["TRITON_INTERPRET"] = "1"

import torch
from torch._inductor.runtime import triton_helpers
from torch._inductor.runtime import triton_heuristics as heuristics

from kernelopt_bot.sandbox.worker import shim

GUARD = 64
SENTINEL = 77.0
DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16, "fp64": torch.float64,
          "i64": torch.int64, "i32": torch.int32, "i8": torch.int8, "u8": torch.uint8, "i1": torch.bool}


_KNOWN: dict[tuple[str, str, int], dict[str, Any]] = {}


def _execute(source: str, folder: Path, name: str) -> dict[str, Any]:
    path = folder / f"{name}.py"
    path.write_text(source)
    namespace: dict[str, Any] = {"__name__": name, "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return namespace


def _recorded(size_hints: Any, configs: Any, triton_meta: Any, heuristic_type: Any = None, filename: Any = None,
              inductor_meta: Any = None, **_: Any) -> Any:
    return lambda fn: (fn, configs, _, inductor_meta)


def _buffers(case: dict[str, Any], signature: dict[str, str], seed: int) -> dict[str, Any]:
    """Parameter name -> (storage with guards, view) or integer; equal buffers share one storage."""
    generator = torch.Generator().manual_seed(seed)
    storages: dict[str, torch.Tensor] = {}
    bound: dict[str, Any] = {}
    for name, argument in zip(case["parameters"], case["arguments"], strict=True):
        if "value" in argument:
            bound[name] = argument["value"]
            continue
        dtype = DTYPES[signature[name].lstrip("*")]
        shape, stride = argument["shape"], argument["stride"]
        extent = 1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
        key = argument["buffer"]
        if key not in storages:
            storage = torch.full((extent + 2 * GUARD,), 77, dtype=dtype)
            values = torch.randn(extent, generator=generator)
            if case.get("nonfinite"):
                values[torch.rand(extent, generator=generator) < 0.001] = float(case["nonfinite"])
            storage[GUARD:-GUARD] = (values if dtype.is_floating_point else values.abs() * 2).to(dtype)
            storages[key] = storage
        bound[name] = storages[key]
    return bound


def _pointer(value: Any) -> Any:
    return value[GUARD:-GUARD] if isinstance(value, torch.Tensor) else value


def run_baseline(case: dict[str, Any], folder: Path, number: int, bound: dict[str, Any]) -> None:
    namespace = _execute(case["baseline"], folder, f"baseline_{number}")
    fn, configs, _, inductor_meta = next(
        v for v in namespace.values() if isinstance(v, tuple) and len(v) == 4)
    config = dict(configs[0].kwargs)
    grid = heuristics.GridExpr.from_meta(inductor_meta, configs[0]).eval_slow({**bound, **config})
    taken = {n: _pointer(v) for n, v in bound.items()}
    fn[grid](**taken, **{n: v for n, v in config.items() if n in fn.arg_names})


def evaluate(expression: str, names: dict[str, Any]) -> int:
    known = {"cdiv": lambda a, b: -(-a // b), "min": min, "max": max, "num_sms": 4,
             "next_power_of_2": lambda a: 1 << (a - 1).bit_length()}
    assert all(isinstance(n, ast.Expression | ast.Name | ast.Load | ast.Constant | ast.BinOp | ast.operator | ast.Call)
               for n in ast.walk(ast.parse(expression, mode="eval"))), expression
    return int(eval(expression, {"__builtins__": {}}, {**known, **names}))


def run_candidate(case: dict[str, Any], folder: Path, number: int, bound: dict[str, Any]) -> None:
    namespace = _execute(case["source"], folder, f"candidate_{number}")
    plan = case["plan"]
    integers = {n: v for n, v in bound.items() if not isinstance(v, torch.Tensor)}
    values = {n: _pointer(v) for n, v in bound.items()}
    for scratch in plan["scratch"]:
        dtype = getattr(torch, scratch["dtype"])
        make = torch.zeros if scratch["zeroed"] else (lambda n, dtype: torch.full((n,), 99, dtype=dtype))
        values[scratch["name"]] = make(evaluate(scratch["elements"], integers), dtype=dtype)
    for launch in plan["launches"]:
        arguments = [values[a] if a in values else evaluate(a, integers) for a in launch["arguments"]]
        grid = tuple(evaluate(g, integers) for g in launch["grid"])
        namespace[launch["function"]][grid](*arguments, **launch["constexprs"])


def _poisoned(bound: dict[str, Any]) -> dict[str, Any]:
    """With outputs that hold a value of their own, so that what nobody writes is the same on both sides."""
    inputs = {id(v) for n, v in bound.items() if not n.startswith("out_ptr")}
    for value in bound.values():
        if isinstance(value, torch.Tensor) and id(value) not in inputs:
            value[GUARD:-GUARD] = 55
    return bound


def _expected(case: dict[str, Any], folder: Path, number: int, seed: int) -> dict[str, Any]:
    """The buffers after the baseline has run, which candidates of the same call share: Inductor's maxima are slow to
    interpret."""
    key = (case["baseline"], json.dumps(case["arguments"]), seed, case.get("nonfinite"))
    if key not in _KNOWN:
        bound = _poisoned(_buffers(case, case["signature"], seed))
        run_baseline(case, folder, number, bound)
        _KNOWN[key] = bound
    return _KNOWN[key]


def compare(case: dict[str, Any], folder: Path, number: int) -> dict[str, Any]:
    worst = 0.0
    for seed in case.get("seeds", (1, 2)):
        expected = _expected(case, folder, number, seed)
        found = _poisoned(_buffers(case, case["signature"], seed))
        run_candidate(case, folder, number, found)
        for name, value in expected.items():
            if not isinstance(value, torch.Tensor):
                continue
            guard = torch.full((GUARD,), 77, dtype=value.dtype)
            if not (torch.equal(found[name][:GUARD], guard) and torch.equal(found[name][-GUARD:], guard)):
                return {"passed": False, "reason": f"{name}: wrote outside its buffer", "worst": worst}
            a, b = value.double(), found[name].double()
            worst = max(worst, float(torch.nan_to_num((a - b).abs(), 0.0, 0.0).max()))
            tolerance = 4e-3 if value.dtype == torch.float16 else 2e-6 * max(1.0, float(a.abs().max()))
            if not torch.allclose(a, b, rtol=1e-5, atol=tolerance, equal_nan=True):
                return {"passed": False, "reason": f"{name}: differs by {worst}", "worst": worst}
    return {"passed": True, "reason": "", "worst": worst}


def main(cases: str, results: str) -> None:
    shim.install()
    found = []
    with (
        tempfile.TemporaryDirectory() as folder,
        mock.patch.object(heuristics, "cached_autotune", _recorded),
        mock.patch.object(triton_helpers, "set_driver_to_gpu", lambda: None),
    ):
        for number, case in enumerate(json.loads(Path(cases).read_text())):
            started = time.monotonic()
            try:
                found.append(compare(case, Path(folder), number))
            except Exception as e:
                found.append({"passed": False, "reason": f"{type(e).__name__}: {e}"[:2000], "worst": 0.0})
            found[-1]["seconds"] = round(time.monotonic() - started, 2)
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
