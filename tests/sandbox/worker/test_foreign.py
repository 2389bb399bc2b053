"""Operators of the user's, recorded where they are and answered where they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker import foreign
from kernelopt_bot.sandbox.worker.protocol import WorkerFault

foreign.known()


@torch.library.custom_op("kernelopt_foreign::halved", mutates_args={"count"})
def halved(x: torch.Tensor, parts: list[torch.Tensor], count: torch.Tensor, by: float = 0.5,
           ) -> tuple[torch.Tensor, torch.Tensor]:
    count.add_(1)
    return x * by, torch.cat(parts)


class Scratch:
    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, name: str) -> str:
        return str(self._folder / name)


@pytest.fixture
def recorded(tmp_path: Path) -> tuple[Scratch, list[dict[str, Any]]]:
    scratch = Scratch(tmp_path)
    with foreign.Recording(scratch) as recording:
        for value in (1.0, 2.0):
            op = torch.ops.kernelopt_foreign.halved.default
            op(torch.full((3,), value), [torch.ones(1), torch.zeros(1)], torch.zeros(()), by=0.25)
        torch.ops.aten.add.Tensor(torch.ones(1), torch.ones(1))
    return scratch, recording.calls


def test_what_is_recorded(recorded: tuple[Scratch, list[dict[str, Any]]]) -> None:
    calls = recorded[1]
    assert [c["operator"] for c in calls] == ["kernelopt_foreign::halved.default"] * 2, "torch's own are not"
    assert calls[0]["names"] == ["x", "parts", "count", "by"] and set(calls[0]["written"]) == {"count"}
    assert calls[0]["arguments"]["by"] == 0.25 and len(calls[0]["result"]) == 2


def test_a_stand_in_answers_each_call_once_by_what_it_is_given(
        recorded: tuple[Scratch, list[dict[str, Any]]]) -> None:
    scratch, calls = recorded
    given, count = [torch.ones(1), torch.zeros(1)], torch.zeros(())
    plain = torch.ops.kernelopt_foreign
    with foreign.standing_in(calls, scratch):
        op = torch.ops.kernelopt_foreign.halved.default
        assert torch.ops.kernelopt_foreign is not plain
        half, joined = op(torch.full((3,), 2.0) + 1e-6, given, count, by=0.25)
        assert half.tolist() == [0.5] * 3 and joined.tolist() == [1.0, 0.0] and float(count) == 1.0
        assert op(torch.full((3,), 1.0), given, torch.zeros(()), 0.25)[0].tolist() == [0.25] * 3
        with pytest.raises(WorkerFault, match="given what it is not given in the model"):
            op(torch.full((3,), 1.0), given, torch.zeros(()), 0.25)
    assert torch.ops.kernelopt_foreign is plain


@pytest.mark.parametrize("change", [
    {"x": torch.full((3,), 1.1)}, {"x": torch.ones(4)}, {"x": torch.ones(3, dtype=torch.float64)}, {"by": 0.5},
    {"x": 1.0}])
def test_other_arguments_have_no_answer(
        recorded: tuple[Scratch, list[dict[str, Any]]], change: dict[str, Any]) -> None:
    scratch, calls = recorded
    given = {"x": torch.ones(3), "parts": [torch.ones(1), torch.zeros(1)], "count": torch.zeros(()), "by": 0.25}
    with foreign.standing_in(calls, scratch), pytest.raises(WorkerFault, match="runtime_failed"):
        torch.ops.kernelopt_foreign.halved.default(**given | change)


@pytest.mark.parametrize("operator", ["aten::add.Tensor", "a b::c.default", "nonsense", "x::y.__class__()"])
def test_nothing_of_the_worker_s_own_is_replaced(operator: str, tmp_path: Path) -> None:
    with (pytest.raises(WorkerFault, match="no operator of the user's"),
          foreign.standing_in([{"operator": operator}], Scratch(tmp_path))):
        raise AssertionError
