"""Models as their authors write them (`models/real_models.py`), from loading to gate 3 on a machine without a GPU.

docs/inputs.md, section "Models", says what is supported; each row of it is held here or in the tests it names.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn import functional

from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.program import Graph
from kernelopt_bot.contract.candidate import KernelCandidate
from kernelopt_bot.device import roofs
from kernelopt_bot.errors import InputError
from kernelopt_bot.gates import model as gate_3
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.client import WorkerFailed
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.sandbox.worker.arms import Arm, build, twin
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.check_model import check_model, observe
from kernelopt_bot.sandbox.worker.declined import look
from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.reference_graph import reference_graph
from kernelopt_bot.search import capturing
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.explain import explain
from kernelopt_bot.search.sites import configured, places
from kernelopt_bot.search.spots import ideas_for
from kernelopt_bot.targets.target import Target
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sessions import COMPILES_IN_PLACE, MODELS, Session, parameters
from tests.sandbox.worker.sources import WRAPPERS

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


def place_that_writes(made: Captured, compiler: KernelWorker, buffer: str) -> tuple[Graph, KernelCandidate]:
    """The graph that changes `buffer`, and another launch configuration of the kernel that writes it."""
    graph = next(g for g in made.program.graphs if any(i.mutated and i.qualified == buffer for i in g.inputs))
    name = next(i.name for i in graph.inputs if i.qualified == buffer)
    for place in places(made, None, roofs.pretended()):
        site = place.site
        written = {a.buffer for a in site.step.arguments if a.name in site.kernel.written}
        if site.graph.index == graph.index and name in written:
            answer = compiler.call("compile_baseline", {"source": site.kernel.source, "target": {"arch": 90}})
            ready = configured(place, answer)
            return graph, ideas_for(ready)[0]
    raise AssertionError(f"no kernel writes {buffer}")


def test_a_candidate_in_one_of_two_graphs_is_judged_by_the_state_that_it_leaves(
        interpreter: KernelWorker, compiler: KernelWorker, tmp_path: Path) -> None:
    """`last` is written by a generated kernel: what replaces it passes gate 3, and what writes something else there
    while the outputs stay right does not."""
    session, _ = loaded(tmp_path, "Logged", "transposed")
    made, there = captured(session, interpreter), Path(interpreter.path(""))
    graph, honest = place_that_writes(made, compiler, "last")
    draws = reference_graph(session, {"graph": graph.index, "secret": "s"})["draws"]
    at = next(n for n, i in enumerate(graph.inputs) if i.qualified == "last")
    verdicts = {}
    for name, candidate in {"honest": honest, "wrong": spoilt(honest, graph, "last")}.items():
        folder = write_artifact(Path(interpreter.path(name)), class_name="Logged", program=made.program,
                                kernels=[AdoptedKernel(candidate)], recipe=Recipe(),
                                environment={**VERSIONS, "capability": [9, 0]})
        answer = interpreter.call("check_interpreted", {
            "source": graph.source, "artifact": str(folder), "expected": 1, "precision": PRECISION,
            "draws": lend(draws[:1], Path(session.scratch), there)})
        assert answer["replaced"] == {"expected": 1, "found": 1}
        verdicts[name] = gate_3.decide(answer, kernels=True)
    assert verdicts["honest"].status is Status.PASS, verdicts["honest"].reason
    assert verdicts["wrong"].status is Status.FAIL and verdicts["wrong"].reason.startswith(f"input {at}, seed")


def spoilt(candidate: KernelCandidate, graph: Graph, buffer: str) -> KernelCandidate:
    """The same, but for what it stores to the buffer."""
    variable = next(i.name for i in graph.inputs if i.qualified == buffer)
    step = graph.steps[candidate.steps[0]]
    written = graph.kernels[step.name].written
    pointer = next(a.name for a in step.arguments if a.buffer == variable and a.name in written)
    head, store, rest = candidate.source.partition(f"tl.store({pointer} + ")
    address, comma, after = rest.partition(", ")
    assert store and comma
    return replace(candidate, source=f"{head}{store}{address}, 3.0 * {after}")


@pytest.mark.filterwarnings("ignore:`torch.nn.utils.weight_norm` is deprecated")
@pytest.mark.parametrize("entry", ["Locked", "OldNorm"])
def test_what_cannot_be_copied_is_shared_and_nothing_else(entry: str, tmp_path: Path) -> None:
    """An arm on the loaded model itself would make eager a compiled one."""
    session, _ = loaded(tmp_path, entry)
    target = current(session)
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        COMPILES_IN_PLACE + "def status(model):\n    return {'expected': {}, 'replaced': {}}\n")
    arm = build(session, target, Arm("candidate", "artifact", artifact=str(folder)))
    assert arm.model is not target.model and target.model._compiled_call_impl is None
    pairs = zip(arm.model.parameters(), target.model.parameters(), strict=True)
    assert all(a is b for a, b in pairs)
    assert all(a is not b for a, b in zip(arm.model.buffers(), target.model.buffers(), strict=True))
    expected, got = (observe(target, call, model, (target.args, target.kwargs), 1) for call, model in (
        (target.model, target.model), (arm.call, arm.model)))
    assert expected.tensors.keys() == got.tensors.keys()
    assert all(close(got.tensors[n], t) for n, t in expected.tensors.items())
    assert observe(target, target.model, target.model, (target.args, target.kwargs), 1).tensors.keys() == \
        expected.tensors.keys(), "the state was put back"


@pytest.mark.parametrize(("entry", "line"), [
    ("CompiledClass", "@torch.compile\nclass"), ("CompiledForward", "    @torch.compile(mode="),
    ("CompiledSelf", "        self.compile()"), ("CompiledOwnForward", "        self.forward = torch.compile("),
    ("CompiledPart", "        self.body = torch.compile("), ("compiled_model", "    return torch.compile(Body())")])
def test_a_model_that_compiles_itself_is_taken_without_that(entry: str, line: str, tmp_path: Path) -> None:
    session, answer = loaded(tmp_path, entry)
    text = (MODELS / "real_models.py").read_text()
    place = f"real_models.py:{text[:text.index(line)].count(chr(10)) + 1}"
    (note,) = answer["notes"]
    assert note.startswith("torch.compile in the model's own code is left out") and place in note
    target, counted = current(session), []

    def counting(gm: Any, example_inputs: Any) -> Any:
        counted.append(gm)
        return gm.forward

    with torch.no_grad():
        eager = target.model(*target.args)
        assert not counted and not hasattr(target.model.forward, "_torchdynamo_orig_callable")
        assert torch.equal(torch.compile(twin(target.model), backend=counting)(*target.args), eager)
    assert len(counted) == 1 and "layer_norm" in counted[0].code and "gelu" in counted[0].code, \
        "one graph, and it went to the backend that was asked for"


@pytest.mark.filterwarnings("ignore::UserWarning", "ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize(("entry", "inputs", "what", "fix"), [
    ("ComplexIn", "complex_rows", "complex parameters and inputs are not taken: the input x is complex64",
     "torch.view_as_real"),
    ("ComplexWeight", "rows", "the parameter weight is complex64", "torch.view_as_real"),
    ("Quantised", "rows", "quantised models are not taken: body.0 is a torch.ao.nn.quantized.dynamic", "before it is"),
    ("Parallel", "rows", "spread over processes or devices are not taken: the constructor of Parallel failed: it wants "
     "other processes", "the model inside"),
    ("FullySharded", "rows", "it wants other processes", "the model inside"),
    ("Sharded", "rows", "body is a torch.nn.parallel.data_parallel.DataParallel", "its `module`"),
    ("Scripted", "rows", "TorchScript is not taken: body is a torch.jit._trace.TopLevelTracedModule", "torch.jit.trac"),
    ("Growing", "rows", "state of another shape behind: cache: (0, 16) became (6, 16)", "written in place"),
    ("OwnKernel", "rows", "OwnKernel.forward failed: it launches a Triton kernel, which takes a GPU", "a GPU"),
])
def test_what_is_declined_says_what_where_and_what_to_do(
        entry: str, inputs: str, what: str, fix: str, tmp_path: Path) -> None:
    with pytest.raises(WorkerFault) as caught:
        loaded(tmp_path, entry, inputs)
    assert caught.value.kind == "declined" and what in caught.value.message
    target = Target("net", "real_models.py", entry, inputs)
    error = explain(WorkerFailed("declined", caught.value.message, caught.value.detail), target, "the search")
    assert isinstance(error, InputError) and error.exit_code == 2 and error.kind == "unsupported"
    assert error.where == f"real_models.py:{entry}" and fix in error.fix


@pytest.mark.parametrize("wrapper", ["DistributedDataParallel", "FSDPModule"])
def test_a_wrapper_among_processes_that_are_there_is_declined_too(wrapper: str) -> None:
    """Both by torch's own classes, in a process group of one."""
    store = distributed.HashStore()
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        inner = nn.Linear(4, 4)
        body = nn.parallel.DistributedDataParallel(inner) if wrapper == "DistributedDataParallel" else fully_shard(
            inner, mesh=init_device_mesh("cpu", (1,)))
        with pytest.raises(WorkerFault, match=r"body is a torch\..*(Distributed|FSDP)") as caught:
            look(nn.ModuleDict({"body": body}))
        assert caught.value.kind == "declined"
    finally:
        distributed.destroy_process_group()


@pytest.mark.exhaustive
def test_the_compiler_s_own_options_leave_outputs_and_state_as_they_were(tmp_path: Path) -> None:
    """A real artifact on the CPU: two graphs, state in buffers and in a plain attribute, inputs that are not
    contiguous."""
    session, _ = loaded(tmp_path, "Logged", "transposed")
    assert not current(session).args[0].is_contiguous() and current(session).args[0].storage_offset() > 0
    program = capturing.made({"graphs": []}, "logged", "cpu", "cpu", VERSIONS, {}).program
    folder = write_artifact(tmp_path / "shop" / "logged", class_name="Logged", program=program, kernels=[],
                            recipe=Recipe.of({"epilogue_fusion": False}), environment=VERSIONS)
    found = check_model(session, {"artifact": str(folder), "options": {}, "secret": "s", "seeds": 1, "inits": 1,
                                  "precision": PRECISION})
    verdict = gate_3.decide(found, kernels=False)
    assert verdict.status is Status.PASS, verdict.reason
    names = {o["name"] for d in found["draws"] for o in d["outputs"]}
    assert names == {"output.0", "output.1", "buffer mean", "buffer seen", "buffer last"}
    assert found["aliasing_equal"] and found["metadata_equal"]
    assert current(session).model.last.abs().max() == 0, "put back"


def test_a_triton_kernel_of_the_author_s_is_a_step_that_is_kept(
        interpreter: KernelWorker, compiler: KernelWorker) -> None:
    """What Inductor makes of `OwnKernel` for a GPU: the kernel runs where it stands, with its grid."""
    text = (WRAPPERS / "pretended_torch2.13_own_kernel.py").read_text()
    draw = torch.Generator().manual_seed(0)
    shapes = [(16,), (16,), (6, 16), (16, 16), (16,)]
    values = [*(torch.randn(s, generator=draw) for s in shapes), torch.tensor(0.7)]
    done = interpreter.call("interpret_graph", {"source": text, "inputs": [interpreter.save(v) for v in values],
                                                "save_limit_bytes": 1 << 16})
    weight, bias, x, up, up_bias, temperature = values
    norm = functional.layer_norm(x, (16,), weight, bias)
    expected = torch.softmax((functional.linear(norm, up, up_bias) + 0.5 * x) / temperature, -1)
    assert close(interpreter.load(done["outputs"][0]), expected)
    graph = {"index": 0, "source": text, "calls": done["calls"], "inputs": [], "outputs": [], "is_inference": True,
             "is_backward": False}
    made = capturing.made({"graphs": [graph]}, "net", "pretend", "pretended sm_90", VERSIONS, {})
    (own,) = [p for p in places(made, None, roofs.pretended()) if p.site.kernel.heuristic == "user_autotune"]
    assert own.site.step.name == "scaled_add_0" and own.site.kernel.written == ("out_ptr",)
    answer = compiler.call("compile_baseline", {"source": own.site.kernel.source, "target": {"arch": 90}})
    assert ideas_for(configured(own, answer)) == [], "it is the author's: `kernelopt optimize FILE:KERNEL` takes it"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize("entry", ["OwnKernel", "Float8", "Decoder", "Custom"])
def test_on_a_gpu_what_is_kept_runs_between_what_is_replaced(entry: str, tmp_path: Path) -> None:
    """Captured, checked by gate 3 with an artifact of the compiler's own options; a number that lies on the CPU stays
    there."""
    session = Session(tmp_path)
    load(session, {**parameters(entry, "decoded" if entry == "Decoder" else "rows", "", "real_models.py"),
                   "device": "cuda:0"})
    target = current(session)
    if entry == "OwnKernel":
        assert target.model.temperature.device.type == "cpu"
    made = capturing.made(capture(session, {"lane": "cuda", "options": {}, "save_limit_bytes": 1 << 20}), "net", "cuda",
                          "gpu", VERSIONS, {})
    names = {s.name for g in made.program.graphs for s in g.steps}
    wanted = {"OwnKernel": "scaled_add_0", "Custom": "torch.ops.kernelopt_tests.clipped.default"}
    assert wanted.get(entry, next(iter(names))) in names
    found = check_model(session, {"artifact": None, "options": {"epilogue_fusion": False}, "secret": "s", "seeds": 1,
                                  "inits": 1, "precision": PRECISION})
    verdict = gate_3.decide(found, kernels=False)
    assert verdict.status is Status.PASS, verdict.reason
