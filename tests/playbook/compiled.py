"""Compiles candidates to sm_90 cubins without a GPU: `python compiled.py CASES.json RESULTS.json`."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.runtime import driver


class _Driver:
    def get_current_target(self) -> GPUTarget:
        return GPUTarget("cuda", 90, 32)


def compile_case(case: dict[str, Any], path: Path) -> dict[str, Any]:
    path.write_text(case["source"])
    namespace: dict[str, Any] = {"__name__": path.stem, "__file__": str(path)}
    exec(compile(case["source"], str(path), "exec"), namespace)
    plan = case["plan"]
    types = {p["name"]: p["type"] for p in plan["parameters"]}
    short = {"float32": "*fp32", "int32": "*i32"}
    types |= {s["name"]: short[s["dtype"]] for s in plan["scratch"]}
    aligned = {p["name"] for p in plan["parameters"] if p["divisible"]} | {s["name"] for s in plan["scratch"]}
    launches = []
    for launch in plan["launches"]:
        fn = namespace[launch["function"]]
        signature, attributes = {}, {}
        given = iter(launch["arguments"])
        for position, name in enumerate(fn.arg_names):
            if name in launch["constexprs"]:
                signature[name] = "constexpr"
                continue
            argument = next(given)
            signature[name] = types.get(argument, "i32")
            if argument in aligned:
                attributes[(position,)] = [["tt.divisibility", 16]]
        built = triton.compile(
            ASTSource(fn, signature, constexprs=dict(launch["constexprs"]), attrs=attributes),
            target=GPUTarget("cuda", 90, 32),
            options={"num_warps": launch["num_warps"], "num_stages": launch["num_stages"]})
        launches.append({"cubin": len(built.asm["cubin"]), "shared": built.metadata.shared, "ptx": built.asm["ptx"]})
    return {"launches": launches}


def main(cases: str, results: str) -> None:
    driver._active = _Driver()
    found = []
    with tempfile.TemporaryDirectory() as folder:
        for number, case in enumerate(json.loads(Path(cases).read_text())):
            try:
                found.append(compile_case(case, Path(folder) / f"candidate_{number}.py"))
            except Exception as e:
                found.append({"error": f"{type(e).__name__}: {e}"[:2000]})
    Path(results).write_text(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
