"""Regions of a small model through the gates that need no GPU, into the artifact, and `verify`'s gates again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernelopt_bot.compiler._runtime import Run, substitute
from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.device import roofs
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.search import capturing, kernel_lever, loading, pipeline, pretend_lever, spots
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.committed import read
from kernelopt_bot.search.runs import region_places, run_places
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.verify import _Verification
from tests.playbook.run_sites import graph, graph_json
from tests.search.conftest import TARGET

REGIONS = Path(__file__).parents[1] / "playbook" / "data" / "regions"
NET = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(24, 40)

    def forward(self, x):
        return torch.relu(self.linear(x)) * 2.0


def get_inputs():
    return [torch.randn(20, 24)]
"""

ALONE = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.convolution = nn.Conv2d(3, 3, 3, padding=1, groups=3, bias=False)

    def forward(self, x):
        return self.convolution(x)


def get_inputs():
    return [torch.randn(2, 3, 9, 10)]
"""


def captured(name: str, version: str = "2.13") -> Captured:
    text = (REGIONS / f"torch{version}" / f"{name}.py.txt").read_text()
    return Captured(Program("t", "pretend", (graph(text),), version, "3.7.1", "x"), (graph_json(text),), 0, ())


@pytest.mark.parametrize("version", ["2.11", "2.13"])
def test_regions_are_found_by_their_facts(version: str) -> None:
    names = sorted(p.name.removesuffix(".py.txt") for p in (REGIONS / f"torch{version}").iterdir())
    places = {name: region_places(captured(name, version), None, roofs.pretended()) for name in names}
    assert {name: [(p.fusion.name, len(p.recorded)) for p in found] for name, found in places.items()} == {
        name: [] if name == "product_alone" else [("depthwise_direct", 1)] if name == "depthwise_alone" else
        [("depthwise_direct", 2), ("depthwise_direct", 1)] if "depthwise" in name else [("product_epilogue", 2)]
        for name in names}
    assert all(p.savings_us > 0 for found in places.values() for p in found)
    assert not any(run_places(captured(name, version), None, roofs.pretended()) for name in names)


@pytest.mark.parametrize("version", ["2.11", "2.13"])
@pytest.mark.parametrize("name", ["product_relu", "product_twice", "depthwise_relu", "depthwise_alone"])
def test_a_region_takes_the_vendor_call_s_place_in_the_wrapper(name: str, version: str) -> None:
    place = region_places(captured(name, version), None, roofs.pretended())[0]
    candidate = next(iter(place.proposals(place.site)))
    source = place.site.run.graph.source
    run = Run(candidate.run_hash, len(candidate.steps), candidate.source, candidate.plan.to_json())
    done = substitute(source, {run.hash: run})
    assert done.replaced == {run.hash: 1} and not done.skipped
    body = done.text[done.text.index("def call(self"):done.text.index("return (buf")]
    assert "extern_kernels." not in body and body.count(".run(") == 1
    assert ("buf0 = empty_strided_cuda(" in body) and body.index("buf0 = ") < body.index(".run(")
    # torch 2.13 copies such inputs itself.
    assert ("data_ptr() % 16 == 0" in body) == (version == "2.11")
    # The input itself stays what it is: others may write to it.
    assert "arg0_1 = arg0_1 if" not in body
    compile(done.text, "wrapper", "exec")


def test_another_layout_is_another_region() -> None:
    (place,) = region_places(captured("product_relu"), None, roofs.pretended())
    candidate = next(iter(place.proposals(place.site)))
    other = place.site.run.graph.source.replace("(40, 72), (1, 40), 0)", "(40, 72), (72, 1), 0)")
    run = Run(candidate.run_hash, 2, candidate.source, candidate.plan.to_json())
    assert substitute(other, {run.hash: run}).replaced == {}


def test_kernels_inside_adopted_regions_are_left_alone() -> None:
    made = captured("product_relu")
    (place,) = region_places(made, None, roofs.pretended())
    stack = Stack().with_kernels((AdoptedKernel(next(iter(place.proposals(place.site)))),))
    assert pipeline._taken(stack, made.program) == spots.of_run(place).hashes
    assert kernel_lever.LEAST_SHARE > 0 and pipeline.ORDER.index("region") < pipeline.ORDER.index("kernel")


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("technique", [
    pytest.param("product_epilogue", marks=pytest.mark.exhaustive), "depthwise_direct"])
def test_a_region_goes_through_the_gates_and_into_the_artifact(
        session: Callable[..., Session], tmp_path: Path, technique: str) -> None:
    made = session(levers=["region"])
    (made.root / "net.py").write_text(NET if technique == "product_epilogue" else ALONE)
    trials = Trials(made.archive, made.budget)
    with made.model_worker("model") as worker:
        loading.load(made, worker, TARGET)
        versions = worker.call("hello", {}, timeout=60.0)
        reason = pretend_lever.run(made, worker, "net", versions, trials, "Model", "region")
        assert "gate 4 was not measured" in reason
        (trial,) = trials.all()
        assert [(v.gate, v.status) for v in trial.verdicts] == [
            ("static", Status.PASS), ("correctness", Status.PASS), ("model", Status.PASS),
            ("performance", Status.NOT_MEASURED)], [v.reason for v in trial.verdicts]
        assert trial.candidate.lever == "region" and trial.candidate.technique == technique

        answer = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 24}, timeout=200.0)
        with made.kernel_worker("interpret", interpret=True) as interpreter, made.kernel_worker("compile") as compiler:
            graphs = pretend_lever.recorded(answer, worker, interpreter)
            again = capturing.made(graphs, "net", "pretend", "pretended sm_90", versions, {})
            committed = read(made.artifacts / trial.candidate.id, tmp_path / "read")
            verification = _Verification(made, worker, committed, TARGET)
            verification.versions = versions
            candidates = verification.candidates(again.program)
            verification.kernels(again, candidates, compiler, interpreter, None)
            assert [v.status for _, v in verification.verdicts] == [Status.PASS, Status.PASS]


def test_a_wrapper_without_a_kernel_gets_the_device_that_the_backend_names() -> None:
    made = captured("depthwise_alone")
    (place,) = region_places(made, None, roofs.pretended())
    candidate = next(iter(place.proposals(place.site)))
    run = Run(candidate.run_hash, 1, candidate.source, candidate.plan.to_json())
    source = made.program.graphs[0].source.replace("set_device(0)", "set_device(3)")

    def device(index: int) -> str:
        return f"DeviceProperties(type='cuda', index={index}, multi_processor_count=80, cc=89)"

    done = substitute(source, {run.hash: run}, device=device)
    assert device(3) in done.text and "_cuda_getCurrentRawStream(3)" in done.text
    refused = substitute(source, {run.hash: run}, device=device, capability=90)
    assert refused.replaced == {} and "this device has 89" in refused.skipped[0]
