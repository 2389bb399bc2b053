from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.profile import profile, step_indices
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import Session

Loaded = Callable[..., Session]
PARTITION = Path(__file__).parents[2] / "data" / "wrappers" / "pretended_torch2.13_partition.py"


def test_every_kernel_and_vendor_step_is_timed(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    (raw,) = capture(session, {"lane": "cpu", "options": {}, "save_limit_bytes": 0})["graphs"]
    found = profile(session, {"graph": 0, "options": {}, "repeats": 4})
    steps = {s.index: s for s in parse_graph(raw).steps}
    assert [s["index"] for s in found["steps"]] == [i for i, s in steps.items() if s.kind in ("kernel", "vendor")]
    assert all(s["callee"] == steps[s["index"]].name for s in found["steps"])
    assert all(len(s["times_us"]) == 4 and min(s["times_us"]) > 0 for s in found["steps"])
    assert len(found["call_us"]) == 8
    assert current(session).model.calls == 0


def test_steps_of_partitions_are_numbered_as_in_the_program() -> None:
    source = PARTITION.read_text()
    graph = parse_graph({"index": 0, "source": source, "is_inference": True, "is_backward": False, "inputs": [],
                         "outputs": [], "calls": [], "saved_inputs": None})
    indices = step_indices(source)
    assert {s.function for s in graph.steps} > {"call"}
    assert {s.lines[0]: s.index for s in graph.steps if s.kind in ("kernel", "vendor")} == indices


def test_repeating_a_step_in_place_changes_nothing(loaded: Loaded) -> None:
    session = loaded("Sharing")
    before = current(session).args[0].clone()
    profile(session, {"graph": 0, "options": {}, "repeats": 3})
    assert torch.equal(current(session).args[0], before)


def test_no_such_graph(loaded: Loaded) -> None:
    with pytest.raises(WorkerFault, match="1 graphs"):
        profile(loaded("Chain", "narrow", "layers"), {"graph": 3, "options": {}, "repeats": 1})
