from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.capture import capture, captured, reason_of
from kernelopt_bot.sandbox.worker.load import current, run_eager
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import Session

Loaded = Callable[..., Session]
SAVE = 1 << 20


def taken(session: Session, lane: str = "cpu", **more: Any) -> dict[str, Any]:
    return capture(session, {"lane": lane, "options": {}, "save_limit_bytes": SAVE, **more})


def test_inputs_have_their_qualified_names(loaded: Loaded) -> None:
    (graph,) = taken(loaded("Counted", "wide", "width"))["graphs"]
    assert {(i["qualified"], i["kind"], i["mutated"]) for i in graph["inputs"]} == {
        ("x", "input", False), ("norm.weight", "parameter", False), ("norm.bias", "parameter", False),
        ("up.weight", "parameter", False), ("up.bias", "parameter", False), ("calls", "buffer", True)}
    assert graph["is_inference"] and not graph["is_backward"]
    names = [i["name"] for i in graph["inputs"]]
    unpacked = next(n for n in ast.walk(ast.parse(graph["source"])) if isinstance(n, ast.Assign)
                    and isinstance(n.value, ast.Name) and n.value.id == "args")
    assert ast.unparse(unpacked.targets[0]).strip("()").split(", ") == names


def test_recorded_calls_are_those_of_the_text(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    (graph,) = taken(session)["graphs"]
    lines = graph["source"].splitlines()
    assert graph["calls"]
    for call in graph["calls"]:
        assert call["callee"] in lines[call["line"] - 1]
    product = next(c for c in graph["calls"] if c["callee"] == "extern_kernels.addmm")
    weight = tensors.load(session, product["arguments"][2]["saved"])
    assert torch.equal(weight, current(session).model.up.weight.t())
    assert set(product["keywords"]) == {"alpha", "beta", "out"}
    out = product["keywords"]["out"]
    assert out["tensor"]["shape"] == [4, 128] and out["stats"] is None and out["saved"] is None


def test_raw_storages_stay_within_the_limit(loaded: Loaded) -> None:
    (graph,) = taken(loaded("Counted", "wide", "width"), save_limit_bytes=600)["graphs"]
    product = next(c for c in graph["calls"] if c["callee"] == "extern_kernels.addmm")
    bias, _, weight = product["arguments"]
    assert bias["saved"] is not None and bias["tensor"]["storage_bytes"] == 512
    assert weight["saved"] is None and weight["stats"]["finite"]


def test_buffers_are_as_before(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    taken(session)
    assert current(session).model.calls == 0


def test_a_pretended_gpu_gets_triton_and_golden_inputs(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    (graph,) = taken(session, "pretend")["graphs"]
    assert "async_compile.triton(" in graph["source"] and "empty_strided_cuda" in graph["source"]
    assert "cc=90" in graph["source"] and graph["calls"] == []
    inputs = {i["qualified"]: s for i, s in zip(graph["inputs"], graph["saved_inputs"], strict=True)}
    assert torch.equal(tensors.load(session, inputs["x"]), current(session).args[0])
    assert {i["qualified"] for i in graph["inputs"] if i["mutated"]} == {"calls"}
    assert [o["shape"] for o in graph["outputs"]][:2] == [[4, 128], [4, 64]]


def test_the_pretence_ends(loaded: Loaded) -> None:
    available, session = torch.cuda.is_available(), loaded("Chain", "narrow", "layers")
    taken(session, "pretend", architecture="sm_80")
    assert torch.cuda.is_available() == available
    (graph,) = taken(session)["graphs"]
    assert "empty_strided_cuda((" not in graph["source"]


def test_another_architecture(loaded: Loaded) -> None:
    (graph,) = taken(loaded("Counted", "wide", "width"), "pretend", architecture="sm_80")["graphs"]
    assert "cc=80" in graph["source"] and "multi_processor_count=108" in graph["source"]


def test_a_library_class_as_root(loaded: Loaded) -> None:
    (graph,) = taken(loaded("Chain", "narrow", "layers"))["graphs"]
    assert {i["qualified"] for i in graph["inputs"] if i["kind"] == "parameter"} == {
        "0.weight", "0.bias", "2.weight", "2.bias"}


def test_graph_breaks_give_several_graphs_with_reasons(loaded: Loaded) -> None:
    found = taken(loaded("Broken"))
    assert len(found["graphs"]) == 2 and found["graph_breaks"] >= 1 and found["break_reasons"]
    assert [g["index"] for g in found["graphs"]] == [0, 1]


def test_zero_graphs_is_an_error(loaded: Loaded) -> None:
    with pytest.raises(WorkerFault) as caught:
        taken(loaded("Uncompiled"))
    assert caught.value.kind == "no_graphs"


@pytest.mark.parametrize("change", [
    {"lane": "cuda"}, {"lane": "tpu"}, {"lane": "pretend", "architecture": "sm_1"}])
def test_bad_requests(loaded: Loaded, change: dict[str, Any]) -> None:
    with pytest.raises(WorkerFault, match="bad_request"):
        taken(loaded("Chain", "narrow", "layers"), **change)


def test_an_option_of_another_torch_does_not_compile(loaded: Loaded) -> None:
    with pytest.raises(WorkerFault, match="no Inductor option 'no_such_option'") as caught:
        taken(loaded("Chain", "narrow", "layers"), options={"no_such_option": True})
    assert caught.value.kind == "compile_failed"


def test_the_captured_graph_computes_what_eager_does(loaded: Loaded) -> None:
    session = loaded("Attention", "sequence")
    target = current(session)
    (graph,) = captured(session, target, {})
    with torch.no_grad():
        (out,) = graph.compiled(graph.copies())
    eager = run_eager(target, target.model, (target.args, target.kwargs), target.seed)
    torch.testing.assert_close(out, eager)


@pytest.mark.slow
def test_a_warm_cache_never_skips_the_hook(tmp_path: Path) -> None:
    """Two processes, one cache folder, and torch.compile itself in between to warm every cache."""
    models = Path(__file__).parent / "models"
    program = f"""
import io, json, sys, torch
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.main import Context
context = Context({str(tmp_path)!r}, io.BytesIO())
load(context, dict(root={str(models)!r}, path="blocks.py", entry="Chain", inputs="narrow", init="layers",
                   mode="inference", device="cpu", seed=1))
target = current(context)
found = capture(context, dict(lane="cpu", options={{}}, save_limit_bytes=0))
torch._dynamo.reset()
with torch.no_grad():
    torch.compile(target.model)(*target.args)
again = capture(context, dict(lane="cpu", options={{}}, save_limit_bytes=0))
print(json.dumps([len(found["graphs"][0]["calls"]), len(again["graphs"][0]["calls"])]))
"""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    assert environment["TORCHINDUCTOR_CACHE_DIR"]
    counts = [json.loads(subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=200,
                                        capture_output=True, text=True).stdout) for _ in range(2)]
    assert counts[0] == counts[1] and counts[0][0] == counts[0][1] > 0


def test_of_a_compile_process_s_traceback_the_end_is_told() -> None:
    inner = RuntimeError("An exception occurred in a subprocess:\n\nTraceback (most recent call last):\n" + "".join(
        f'  File "f{n}.py", line {n}\n' for n in range(40)) + "RuntimeError: Could not find an active GPU backend\n")
    lines = reason_of(inner).splitlines()
    assert lines[0] == "RuntimeError: Could not find an active GPU backend" and 'f39.py' in lines[-1]
    assert reason_of(ValueError("one\nadvice")).splitlines()[0] == "ValueError: one"
