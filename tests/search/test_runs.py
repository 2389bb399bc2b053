"""Runs of a captured model, fused, through gates 1 to 3 without a GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.compiler.artifact import AdoptedKernel
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.device import roofs
from kernelopt_bot.device.profile import Profile, StepProfile
from kernelopt_bot.gates import correctness, model, static
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.search import capturing, loading, pretend_lever
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.committed import read
from kernelopt_bot.search.runs import RunPlace, configured, overlaps, run_places
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.stack import Stack
from kernelopt_bot.search.verify import _Verification
from tests.playbook.run_sites import graph, graph_json
from tests.search.conftest import TARGET

pytestmark = pytest.mark.slow

RUNS = Path(__file__).parents[1] / "playbook" / "data" / "runs" / "torch2.13"
NET = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.GroupNorm(2, 4)
        self.bias = nn.Parameter(torch.randn(4, 1, 1))

    def forward(self, x):
        return torch.relu(self.norm(x + self.bias)) * 2.0


def get_inputs():
    return [torch.randn(1, 4, 63, 65)]
"""


def captured(name: str) -> Captured:
    text = (RUNS / f"{name}.py.txt").read_text()
    program = Program("t", "pretend", (graph(text),), "2.13.0", "3.7.1", "x")
    return Captured(program, (graph_json(text),), 0, ())


def test_runs_are_ranked_by_what_they_save_and_start_where_something_moves() -> None:
    found = run_places(captured("bias_window_softmax"), None, roofs.pretended())
    assert [len(p.site.run.calls) for p in found] == [3, 2]
    assert found[0].savings_us > found[1].savings_us > 0
    assert not run_places(captured("two_step_loss"), None, roofs.pretended())


def test_measured_times_scale_the_savings() -> None:
    made = captured("two_windows")
    (place,) = run_places(made, None, roofs.pretended())
    steps = tuple(StepProfile(0, i, "", "kernel", 50.0, 0, None, 10.0, 5.0, 40.0) for i in place.site.run.steps)
    (timed,) = run_places(made, Profile(roofs.pretended(), None, None, None, steps), roofs.pretended())
    assert timed.site.before_us == 100.0 and timed.expected == place.expected
    assert timed.savings_us == pytest.approx(100.0 * (1 - 1 / place.expected.gain))


def test_runs_that_share_a_call_overlap() -> None:
    first, second = run_places(captured("bias_window_softmax"), None, roofs.pretended())
    shared = {(0, i) for i in first.site.run.steps}
    assert overlaps(second.site.run, shared) and not overlaps(second.site.run, {(0, first.site.run.steps[0]), (1, 99)})


@pytest.fixture
def workers(session: Callable[..., Session]) -> Iterator[tuple[Session, Worker, Worker, Worker]]:
    made = session()
    (made.root / "net.py").write_text(NET)
    with made.model_worker("model") as worker, made.kernel_worker("interpret", interpret=True) as interpreter, \
            made.kernel_worker("compile") as compiler:
        yield made, worker, interpreter, compiler


def test_a_fused_run_goes_through_the_gates_and_into_the_artifact(
        workers: tuple[Session, Worker, Worker, Worker], tmp_path: Path) -> None:
    session, worker, interpreter, compiler = workers
    loading.load(session, worker, TARGET)
    answer = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 24}, timeout=200.0)
    versions: dict[str, Any] = worker.call("hello", {}, timeout=60.0)
    graphs = pretend_lever.recorded(answer, worker, interpreter)
    made = capturing.made(graphs, "net", "pretend", "pretended sm_90", versions, {})
    place: RunPlace = run_places(made, None, roofs.pretended())[0]
    site = configured(place, [compiler.call("compile_baseline", {"source": k.source, "target": {"arch": 90}},
                                            timeout=200.0) for k in place.site.run.kernels])
    candidate = list(place.proposals(site))[-1]
    assert static.check_kernel(candidate, site.run, compiler, integers=place.integers, arch=90).status is Status.PASS
    precision = {"m": 2.0, "k": 4.0}
    verdict = correctness.check_run(
        candidate, site.run, place.arguments(place.recorded), interpreter, lane="interpret", secret="s",
        precision=precision, budget_s=60.0, families=("captured", "normal", "cancelling"))
    assert verdict.status is Status.PASS, verdict.reason
    environment = {"torch": versions["torch"], "triton": versions["triton"], "device": "x", "capability": [9, 0]}
    stack = Stack().with_kernels((AdoptedKernel(candidate),)).written(
        session.artifacts / "fused", made.program, "Model", environment)
    draws = worker.call("reference_graph", {"graph": 0, "secret": "s"}, timeout=200.0)["draws"]
    result = interpreter.call("check_interpreted", {
        "source": made.program.graphs[0].source, "artifact": str(stack.folder), "expected": place.calls,
        "draws": lend(draws[:1], worker.scratch, interpreter.scratch), "precision": precision}, timeout=300.0)
    assert model.decide(result, kernels=True, draws_asked=1).status is Status.PASS
    assert stack.folder is not None
    assert f'"steps": {len(site.run.calls)}' in (stack.folder / "manifest.json").read_text()

    verification = _Verification(session, worker, read(stack.folder, tmp_path / "read"), TARGET)
    verification.versions = versions
    again = verification.candidates(made.program)
    assert [(c.run_hash, c.steps) for c in again] == [(candidate.run_hash, candidate.steps)]
    verification.kernels(made, again, compiler, interpreter, None)
    assert [v.status for _, v in verification.verdicts] == [Status.PASS, Status.PASS]
