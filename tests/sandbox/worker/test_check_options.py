from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker import check_options as subject
from kernelopt_bot.sandbox.worker.capture import captured
from kernelopt_bot.sandbox.worker.families import FAMILIES
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.seeds import generator
from tests.sandbox.worker.sessions import Session

Loaded = Callable[..., Session]


def checked(session: Session, options: dict[str, Any], families: tuple[str, ...] = FAMILIES) -> dict[str, Any]:
    return subject.check_options(session, {
        "lever": "launch", "options": options, "secret": "s", "families": list(families),
        "precision": {"m": 2.0, "k": 8.0, "m_half": 3.0}})


def test_the_same_compiler_passes_every_family(loaded: Loaded) -> None:
    found = checked(loaded("Counted", "wide", "width"), {"epilogue_fusion": False})
    (graph,) = found["graphs"]
    assert [f["family"] for f in graph["families"]] == list(FAMILIES)
    assert all(f["passed"] for f in graph["families"]), graph
    assert graph["float64"] == "used" and found["peak_bytes"] is None
    names = [o["name"] for o in graph["families"][0]["outputs"]]
    assert "calls" in names, "a changed buffer is compared"
    assert 0 < graph["families"][0]["outputs"][0]["rmse_baseline"] < 1e-6


@pytest.mark.slow
def test_another_wrapper_of_the_same_kernels(loaded: Loaded) -> None:
    found = checked(loaded("Embedded", "tokens"), {"cpp_wrapper": True}, ("captured", "normal"))
    assert all(f["passed"] for f in found["graphs"][0]["families"])


def test_a_wrong_graph_is_rejected(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    target, options = current(session), {"epilogue_fusion": False}
    (graph,) = captured(session, target, options)
    right = graph.compiled
    graph.compiled = lambda args: [o * (1 + 1e-4) for o in right(args)]
    (graph,) = checked(session, options, ("captured", "normal"))["graphs"]
    assert not any(f["passed"] for f in graph["families"])
    assert "RMSE" in graph["families"][0]["reason"]


def test_a_graph_that_varies_is_rejected(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    (graph,) = captured(session, current(session), {"epilogue_fusion": False})
    right, calls = graph.compiled, [0]

    def varying(args: list[Any]) -> list[torch.Tensor]:
        calls[0] += 1
        return [torch.nextafter(o, o + 1) if calls[0] % 2 else o for o in right(args)]

    graph.compiled = varying
    (found,) = checked(session, {"epilogue_fusion": False}, ("captured",))["graphs"]
    assert "two runs on the same inputs differ" in found["families"][0]["reason"]


def test_draws_leave_buffers_and_integers(loaded: Loaded) -> None:
    session = loaded("Embedded", "tokens")
    (graph,) = captured(session, current(session), {})
    drawn = subject.draw(graph, "normal", generator("s", "p", 0))
    for (name, kind), old, new in zip(graph.qualified, graph.inputs, drawn, strict=True):
        changed = not torch.equal(old, new)
        assert changed == (kind == "parameter"), name
    same = subject.draw(graph, "captured", generator("s", "p", 0))
    assert all(a is b for a, b in zip(same, graph.inputs, strict=True))


def test_captures_of_earlier_candidates_are_let_go(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    for options in ({"epilogue_fusion": False}, {"split_reductions": False}):
        checked(session, options, ("captured",))
    assert [key for key in session.state["captures"] if "epilogue_fusion" in key] == []
    assert len(session.state["captures"]) == 2


def test_the_rule_needs_its_factors() -> None:
    assert subject.rule({"m": 2, "k": 8, "m_half": 4, "other": 1}) == {"m": 2.0, "k": 8.0, "m_half": 4.0}
    with pytest.raises(WorkerFault, match="bad_request"):
        subject.rule({"m": 2})


def test_an_option_of_another_torch_is_the_candidates_failure(loaded: Loaded) -> None:
    with pytest.raises(WorkerFault, match="compile_failed"):
        checked(loaded("Chain", "narrow", "layers"), {"no_such_option": 1})
