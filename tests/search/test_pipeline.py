"""One target through the whole search on a machine without a GPU, in bubblewrap."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from kernelopt_bot.gates.verdict import Status
from kernelopt_bot.search.pipeline import optimise
from kernelopt_bot.search.session import Session
from tests.search.conftest import TARGET

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.exhaustive
def test_a_kernel_candidate_reaches_gate_4_which_needs_a_gpu(session: Callable[..., Session]) -> None:
    made = session(levers=["kernel"], budget={"wall_s": 300})
    result = optimise(made, TARGET)
    assert result.error == "" and result.program is not None and result.covered == ("x: (4, 40) float32",)
    furthest = max(result.trials, key=lambda t: len(t.verdicts))
    assert [(v.gate, v.status) for v in furthest.verdicts] == [
        ("static", Status.PASS), ("correctness", Status.PASS), ("model", Status.PASS),
        ("performance", Status.NOT_MEASURED)], [(v.gate, v.reason) for v in furthest.verdicts]
    assert "no GPU" in furthest.verdicts[-1].reason
    assert not any(t.adopted for t in result.trials) and result.artifact == "" and result.headline is None
    assert result.noise is not None and result.noise.low <= result.noise.high
    assert result.levers[0].lever == "kernel" and "gate 4 was not measured" in result.levers[0].reason
    assert len(made.archive.load()) == len(result.trials) == result.spent["candidates"]
    json.dumps([v.to_json() for t in result.trials for v in t.verdicts], allow_nan=False)
