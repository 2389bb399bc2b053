"""The agents' search in the pretended lane, from a recorded run: real capture, compiler, interpreter and gates."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.agents import assemble
from kernelopt_bot.agents.records import Records
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate, Launch, Parameter, Plan, Scratch
from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.search import pretend_lever
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.result import Trial
from kernelopt_bot.search.trials import Trials
from kernelopt_bot.search.workshop import bound
from kernelopt_bot.targets.target import Target
from tests.agents.facts import SLOTS
from tests.search.conftest import begun

RECORD = Path(__file__).parents[1] / "data" / "agents" / "rms_norm"
MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.scale


def get_inputs():
    return [torch.randn(6, 96)]


def get_init_inputs():
    return [96]
"""


@dataclass(frozen=True)
class Replayed:
    trials: tuple[Trial, ...]
    said: list[str]
    folder: Path


@pytest.fixture(scope="module")
def replayed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replayed]:
    """The record's answers, searched again. Skips where bubblewrap does not work."""
    root, folder = tmp_path_factory.mktemp("project"), tmp_path_factory.mktemp("run")
    (root / "net.py").write_text(MODEL)
    target = Target("net", "net.py", "Model", "get_inputs", "get_init_inputs", closure=("net.py",))
    config = Config.model_validate({"version": 1, "device": "cpu", "levers": ("kernel",), "agents": {
        "search": {"rounds": 2, "plans": 2, "retries": 2}}})
    session = begun(root, folder, config, target, gather=assemble.gather(config.agents, "replay", RECORD))
    trials = Trials(session.archive, session.budget)
    with session.model_worker("model") as worker:
        versions = worker.call("hello", {}, timeout=120)
        load(session, worker, target)
        pretend_lever.run(session, worker, "net", versions, trials, "Model")
    yield Replayed(trials.all(), session.said, session.folder)


def of_replay(replayed: Replayed) -> list[Trial]:
    return [t for t in replayed.trials if isinstance(t.candidate, KernelCandidate) and t.candidate.author == "replay"]


@pytest.mark.slow
def test_recorded_answers_go_through_gates_1_to_3_again(replayed: Replayed) -> None:
    """Host code, a wrong divisor, its correction, and one of the next round after a repaired answer."""
    host, wrong, right, one_row = of_replay(replayed)
    assert host.stopped_by is not None and "import os" in host.stopped_by.reason
    assert wrong.stopped_by is not None and wrong.stopped_by.gate == "correctness"
    for trial in (right, one_row):
        assert [(v.gate, v.status) for v in trial.verdicts] == [
            ("static", Status.PASS), ("correctness", Status.PASS), ("model", Status.PASS),
            ("performance", Status.NOT_MEASURED)]
        assert not trial.adopted
    assert isinstance(one_row.candidate, KernelCandidate)
    assert {p.name for p in one_row.candidate.plan.parameters} >= {"xnumel", "out_ptr1"}
    assert replayed.said[0].startswith("agents (replay): 4 candidates in 2 rounds, 2 passed")


@pytest.mark.slow
def test_the_run_keeps_every_exchange_and_each_role_s_yield(replayed: Replayed) -> None:
    exchanges = {e.key: e for e in Records(replayed.folder).load()}
    recorded = {e.key: e for e in Records(RECORD).load()}
    assert {k: e.text for k, e in exchanges.items()} == {k: e.text for k, e in recorded.items()}
    executor = [e.became for e in exchanges.values() if e.role == "executor"]
    assert executor == ["static", "correctness", "passed", "", "passed"]
    figures: dict[str, Any] = json.loads((replayed.folder / "agents.json").read_text())["yields"]["replay"]
    assert figures["stopped"] == {"static": 1, "correctness": 1}
    assert (figures["passed"], figures["mended"], figures["roles"]["executor"]["malformed"]) == (2, 1, 1)


def plan(*parameters: Parameter, scratch: tuple[Scratch, ...] = (), grid: str = "1") -> Plan:
    return Plan(parameters, (Launch("double", (grid,), ("in_ptr0", "out_ptr0")),), scratch)


def test_buffers_that_a_plan_uses_or_must_write_are_listed_for_it() -> None:
    assert [p.name for p in bound(plan(), SLOTS).parameters] == ["in_ptr0", "out_ptr0"]
    assert [p.name for p in bound(plan(grid="cdiv(xnumel, 4)"), SLOTS).parameters] == ["in_ptr0", "out_ptr0", "xnumel"]
    sized = plan(scratch=(Scratch("s", "xnumel + 1", "float32"),))
    assert [p.name for p in bound(sized, SLOTS).parameters] == ["in_ptr0", "out_ptr0", "xnumel"]


def test_what_is_no_buffer_of_the_run_stays_for_the_contract_to_refuse() -> None:
    stranger = Parameter("stranger", "*fp32", written=True)
    assert stranger in bound(plan(stranger), SLOTS).parameters
    wrong = dataclasses.replace(stranger, name="in_ptr0")
    assert [p for p in bound(plan(wrong), SLOTS).parameters if p.name == "in_ptr0"] == [Parameter("in_ptr0", "*fp32")]
