from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from kernelopt_bot.contract.candidate import OptionsCandidate
from kernelopt_bot.gates.performance import Settings
from kernelopt_bot.search import screening
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.stack import Stack
from tests.search.conftest import TARGET

FUSION = OptionsCandidate("fusion", "dispatch", {"max_fusion_size": 1}, "max_fusion_size=1")
UNKNOWN = OptionsCandidate("unknown", "dispatch", {"an_option_that_is_not_there": 1}, "unknown")


@pytest.mark.slow
@pytest.mark.exhaustive
def test_a_screening_orders_and_discards(session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screening, "SECONDS", {False: 0.2})
    made = session()
    settings = replace(Settings(), min_gain=1000.0, cache="warm")
    with made.model_worker("model") as worker:
        load(made, worker, TARGET)
        found = screening.screen(worker, Stack(), [UNKNOWN, FUSION], settings, made.secret, 1, has_gpu=False)
        assert screening.screen(worker, Stack(), [], settings, made.secret, 1, has_gpu=False) == ()
    assert [s.candidate.id for s in found] == ["fusion", "unknown"], "what cannot be compiled comes last"
    fusion, unknown = found
    assert 0 < fusion.speedup <= fusion.high and "screening:" in fusion.reason
    assert not fusion.promising, "no interval reaches a thousandfold"
    assert (unknown.speedup, unknown.promising) == (0.0, False) and "not compiled" in unknown.reason
