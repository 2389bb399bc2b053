"""Sites built from captured kernel calls, and helpers to check candidates on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from kernelopt_bot.compiler.program import Argument, Graph, Kernel, Step, TensorMeta
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device.profile import Roofs
from kernelopt_bot.playbook.kernel_source import parse
from kernelopt_bot.playbook.technique import BaselineConfig, Site

DATA = Path(__file__).parent / "data"
H200 = Roofs("NVIDIA H200", "", 4.3e12, {"float32": 5e13}, 60 << 20, 132, "assumed", peak_bytes_per_s=4.8e12)
TORCH = {"fp32": "float32", "fp16": "float16", "bf16": "bfloat16", "i64": "int64", "i32": "int32", "i1": "bool"}


def site(call: dict[str, Any], configs: tuple[BaselineConfig, ...] = (), roofs: Roofs = H200) -> Site:
    source = parse(call["source"])
    arguments = []
    for name, given in zip(source.parameters, call["arguments"], strict=True):
        if "value" in given:
            arguments.append(Argument(name, str(given["value"]), value=given["value"]))
        else:
            type_ = source.signature[name].lstrip("*")
            meta = TensorMeta(TORCH[type_], tuple(given["shape"]), tuple(given["stride"]), 0, 0, "cuda:0")
            arguments.append(Argument(name, given["buffer"], tensor=meta, buffer=given["buffer"]))
    written = tuple(dict.fromkeys(a.pointer for a in source.stores))
    kernel = Kernel(call["name"], source.name, call["source"], "h" * 8, source.heuristic, dict(source.signature),
                    written, dict(source.size_hints))
    step = Step(0, 3, "kernel", call["name"], "call", (1, 1), "r" * 8, tuple(arguments))
    graph = Graph(0, "", (), (), (step,), {call["name"]: kernel})
    return Site(graph, step, kernel, None, roofs, configs)


def calls(name: str, torch: str = "torch2.13") -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((DATA / torch / f"{name}.json").read_text())["calls"]
    return found


def all_calls(torch: str = "torch2.13") -> dict[str, dict[str, Any]]:
    """Every captured call, by `<case>:<number>`."""
    return {f"{path.stem}:{number}": call for path in sorted((DATA / torch).glob("*.json"))
            for number, call in enumerate(calls(path.stem, torch))}


def grown(call: dict[str, Any], old: str, new: str) -> dict[str, Any]:
    """The call of the same kernel over rows of another length: the number is replaced wherever it is written."""
    changed: dict[str, Any] = json.loads(json.dumps(call).replace(old, new))
    return changed


def case(call: dict[str, Any], candidate: KernelCandidate) -> dict[str, Any]:
    source = parse(call["source"])
    return {
        "baseline": call["source"], "arguments": call["arguments"], "parameters": source.parameters,
        "signature": dict(source.signature), "source": candidate.source, "plan": candidate.plan.to_json(),
    }


def interpret(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Results of `interpreted.py` for the cases, all in one process."""
    return _in_process("interpreted.py", cases, folder, {"TRITON_INTERPRET": "1"})


def cubins(cases: list[dict[str, Any]], folder: Path) -> list[dict[str, Any]]:
    """Results of `compiled.py`: `{"launches": [{registers, spills, shared}]}` or `{"error"}` for each case."""
    return _in_process("compiled.py", cases, folder, {})


def _in_process(script: str, cases: list[dict[str, Any]], folder: Path, more: dict[str, str]) -> list[dict[str, Any]]:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "cases.json").write_text(json.dumps(cases))
    environment = {k: v for k, v in os.environ.items() if k != "TRITON_INTERPRET"} | more
    environment["PYTHONPATH"] = str(Path(__file__).parents[2])
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / script), str(folder / "cases.json"), str(folder / "out.json")],
        env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-3000:]
    results: list[dict[str, Any]] = json.loads((folder / "out.json").read_text())
    return results
