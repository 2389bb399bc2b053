"""Models as their authors write them (`models/real_models.py`), from loading to gates 1 to 3 on a machine without a GPU.

docs/inputs.md, section "Models", says what is supported; each row of it is held here or in the tests it names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.program import Graph
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import roofs
from kernelopt_bot.gates import model as gate_3
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.sandbox.worker.arms import Arm, build, twin
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.check_model import check_model, observe
from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.reference_graph import reference_graph
from kernelopt_bot.search import capturing
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.sites import configured, places
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sessions import Session, parameters

pytestmark = pytest.mark.slow
VERSIONS = {"torch": torch.__version__, "triton": "3"}
PRECISION = {"m": 2.0, "k": 5.0}


def loaded(scratch: Path, entry: str, inputs: str = "rows", init: str = "") -> tuple[Session, dict[str, Any]]:
    session = Session(scratch)
    return session, load(session, parameters(entry, inputs, init, "real_models.py"))


@dataclass(frozen=True)
class Case:
    """A model, and what the compiler makes of it for a GPU."""

    entry: str
    inputs: str = "rows"
    init: str = ""
    graphs: int = 1
    mutated: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    """Calls that stay as they are."""


CASES = [
    Case("Decoder", "decoded", kept=frozenset({"extern_kernels.mm", "extern_kernels.bmm"}), mutated=frozenset({
        "calls", "layers.0.attention.keys", "layers.0.attention.values"})),
    Case("Images", "images", kept=frozenset({"extern_kernels.convolution", "extern_kernels.addmm"})),
    Case("Logged", "transposed", graphs=2, mutated=frozenset({"mean", "seen", "last"}),
         kept=frozenset({"extern_kernels.mm"})),
    Case("Custom", mutated=frozenset({"total"}), kept=frozenset({
        "extern_kernels.addmm", "torch.ops.kernelopt_tests.clipped.default",
        "torch.ops.kernelopt_tests.accumulate.default"})),
    Case("Half", init="bfloat", kept=frozenset({"extern_kernels.addmm"})),
    Case("Half", init="half", kept=frozenset({"extern_kernels.addmm"})),
    Case("Float8", kept=frozenset({"extern_kernels.mm"})),
    Case("OldNorm", kept=frozenset({"extern_kernels.mm"})),
    Case("Rotary", "rotated", kept=frozenset({
        "extern_kernels.mm", "torch.ops.aten.view_as_complex.default", "torch.ops.aten.mul.Tensor",
        "torch.ops.aten.view_as_real.default"})),
    Case("Mlp", kept=frozenset({"extern_kernels.mm", "extern_kernels.addmm"})),
    Case("Stack", init="stack", kept=frozenset({"extern_kernels.mm", "extern_kernels.addmm"})),
    Case("make_mlp", kept=frozenset({"extern_kernels.mm", "extern_kernels.addmm"})),
    Case("Encoder", "sequence", kept=frozenset({"torch.ops.aten._transformer_encoder_layer_fwd.default"})),
]


def captured(session: Session, interpreter: KernelWorker) -> Captured:
    """The model for a pretended GPU, its calls recorded by the interpreter; `raw` also has what the runs gave."""
    there = Path(interpreter.path(""))
    answer, graphs = capture(session, {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 20}), []
    for graph in answer["graphs"]:
        done = interpreter.call("interpret_graph", {
            "source": graph["source"], "inputs": lend(graph["saved_inputs"], Path(session.scratch), there),
            "foreign": lend(graph["foreign"], Path(session.scratch), there), "save_limit_bytes": 1 << 20})
        graphs.append({**graph, "calls": done["calls"], "done": done})
    return capturing.made({**answer, "graphs": graphs}, "net", "pretend", "pretended sm_90", VERSIONS, {})


def close(a: Tensor, b: Tensor) -> bool:
    rough = 2e-2 if a.dtype in (torch.float16, torch.bfloat16) else 1e-4
    return a.shape == b.shape and a.dtype == b.dtype and torch.allclose(a, b, rtol=rough, atol=rough)


@pytest.mark.filterwarnings("ignore:Torchinductor does not support code generation for complex")
@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("case", CASES, ids=lambda c: f"{c.entry}-{c.init}".rstrip("-"))
def test_the_program_for_a_gpu_computes_what_the_model_does(
        case: Case, interpreter: KernelWorker, tmp_path: Path) -> None:
    """Graphs, what they change, what stays of vendors; and run in the interpreter, outputs and state after the call."""
    session, answer = loaded(tmp_path, case.entry, case.inputs, case.init)
    assert answer["varies"] == ""
    made = captured(session, interpreter)
    graphs = made.program.graphs
    assert len(graphs) == case.graphs and made.graph_breaks == case.graphs - 1
    assert len(made.break_reasons) == case.graphs - 1
    assert {i.qualified for g in graphs for i in g.inputs if i.mutated} == case.mutated
    assert {s.name for g in graphs for s in g.steps if s.kind == "vendor"} == case.kept
    if case.entry != "Encoder":
        assert all(any(s.kind == "kernel" for s in g.steps) for g in graphs)
    target = current(session)
    wanted = observe(target, target.model, target.model, (target.args, target.kwargs), target.seed).tensors
    got = [interpreter.load(o) for raw in made.raw for o in raw["done"]["outputs"] if isinstance(o, dict)]
    for name, tensor in wanted.items():
        assert name.startswith("buffer ") or any(close(tensor, g) for g in got), name
    after = {g.inputs[int(i)].qualified: interpreter.load(ref) for g, raw in zip(graphs, made.raw, strict=True)
             for i, ref in raw["done"]["changed"].items()}
    state = {n.removeprefix("buffer "): t for n, t in wanted.items() if n.startswith("buffer ")}
    assert after.keys() == state.keys() == case.mutated
    assert all(close(after[n], state[n]) for n in state)
