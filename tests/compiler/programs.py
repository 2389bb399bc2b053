"""Programs made of the wrappers in `tests/data/wrappers`, and a candidate as the search hands it over."""

from __future__ import annotations

from typing import Any

from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from tests.compiler import candidates


def graph_json(source: str, calls: list[dict[str, Any]] | None = None, **changes: Any) -> dict[str, Any]:
    return {"index": 0, "source": source, "calls": calls or [], "inputs": [], "outputs": [], "is_inference": True,
            "is_backward": False, "saved_inputs": None, **changes}


def program(*sources: str) -> Program:
    graphs = tuple(parse_graph(graph_json(s, index=i)) for i, s in enumerate(sources))
    return Program("transformer_block", "cuda", graphs, "2.11.0", "3.6.0", "NVIDIA H200")


def layer_norm(source: str, graph: int = 0) -> KernelCandidate:
    run = candidates.layer_norm_run(source)
    step = next(s for s in parse_graph(graph_json(source)).steps if s.kind == "kernel")
    return KernelCandidate("ln-1", run.hash, graph, (step.index,), run.source, Plan.from_json(run.plan),
                           "multi_row_tiles", rationale="Four rows a program:\n\x1b[31mfewer launches of small work.")
