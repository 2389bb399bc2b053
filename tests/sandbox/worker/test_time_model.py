from __future__ import annotations

import gc
import statistics
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from kernelopt_bot.sandbox.worker import time_model as timing
from kernelopt_bot.sandbox.worker.arms import Arm, BuiltArm
from kernelopt_bot.sandbox.worker.device import Device
from kernelopt_bot.sandbox.worker.load import Target
from kernelopt_bot.sandbox.worker.main import Context
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from kernelopt_bot.sandbox.worker.state import State
from kernelopt_bot.sandbox.worker.time_model import first_call, time_model
from tests.sandbox.worker.sessions import Session

pytestmark = pytest.mark.slow

Loaded = Callable[..., Session]
EAGER = {"name": "eager", "kind": "eager"}
DEFAULT = {"name": "default", "kind": "compile"}
AGAIN = {"name": "again", "kind": "compile"}

CHEAT = """
class ArtifactError(Exception):
    pass


def optimize(model, on_miss="compile"):
    right, kept = model.forward, []

    def remembered(*args):
        if not kept:
            kept.append(right(*args))
        return kept[0]

    model.forward = remembered
    return model


def status(model):
    return {"expected": {}, "replaced": {}}
"""


REUSED = CHEAT.replace("""
    def remembered(*args):
        if not kept:
            kept.append(right(*args))
        return kept[0]
""", """
    def remembered(*args):
        kept.append(right(*args))
        return kept[0].copy_(kept[-1])
""")


def timed(session: Session, arms: list[dict[str, Any]], pairs: list[list[str]], **more: Any) -> dict[str, Any]:
    return time_model(session, {"arms": arms, "pairs": pairs, "metric": "latency", "cache": "warm", "budget_s": 0.2,
                                "secret": "s", "check": True, **more})


def test_interleaved_samples_of_each_pair(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    found = timed(session, [EAGER, DEFAULT, AGAIN], [["default", "eager"], ["default", "again"]])
    for sample, pair in zip(found["samples"], (["default", "eager"], ["default", "again"]), strict=True):
        assert sample["pair"] == pair and len(sample["a_s"]) == len(sample["b_s"]) >= 10
        assert len(sample["a_s"]) % 2 == 0 and min(sample["a_s"]) > 0 and max(sample["b_s"]) < 5
    assert set(found["compile_s"]) == {"default", "again"} and min(found["compile_s"].values()) > 0.01
    assert found["peak_bytes"] == {} and found["failed"] == {}
    assert set(found["checked"]) == {"eager", "default", "again"}
    assert all(c["passed"] for c in found["checked"].values())
    assert found["state_after"]["time"] > found["state_before"]["time"]
    assert gc.isenabled()


def test_throughput_counts_calls(loaded: Loaded) -> None:
    found = timed(loaded("Chain", "narrow", "layers"), [EAGER], [["eager", "eager"]], metric="throughput")
    (sample,) = found["samples"]
    assert sample["calls_per_sample"] >= 4 and max(sample["a_s"]) < 1


def test_arms_stay_compiled_for_the_next_call_and_compiling_during_the_timing_is_noticed(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    first = timed(session, [DEFAULT, EAGER], [["default", "eager"]])
    second = timed(session, [DEFAULT], [["default", "default"]], cache="cold")
    assert second["compile_s"]["default"] == first["compile_s"]["default"]
    assert len(session.state["arms"]) == 1
    torch._dynamo.reset()
    with pytest.raises(WorkerFault, match="was compiled during the timing"):
        timed(session, [DEFAULT], [["default", "default"]])


def test_an_arm_that_cannot_be_built_is_left_out(loaded: Loaded) -> None:
    found = timed(loaded("Uncompiled"), [EAGER, DEFAULT], [["eager", "default"], ["eager", "eager"]])
    assert list(found["failed"]) == ["default"] and "no_graphs" in found["failed"]["default"]
    assert [s["pair"] for s in found["samples"]] == [["eager", "eager"]]


def test_an_arm_that_remembers_its_answer_is_caught(loaded: Loaded, tmp_path: Path) -> None:
    folder = tmp_path / "cheat"
    folder.mkdir()
    (folder / "__init__.py").write_text(CHEAT)
    cheat = {"name": "candidate", "kind": "artifact", "artifact": str(folder)}
    with pytest.raises(WorkerFault) as caught:
        timed(loaded("Chain", "narrow", "layers"), [EAGER, cheat], [["eager", "candidate"]])
    assert caught.value.kind == "runtime_failed" and "candidate" in caught.value.message


@pytest.mark.parametrize(("survives", "text"), [
    (False, REUSED), (True, REUSED.replace("kept[0].copy_(kept[-1])", "kept[-1]"))])
def test_an_output_that_the_next_call_overwrites_is_caught(loaded: Loaded, tmp_path: Path, survives: bool,
                                                           text: str) -> None:
    """The fault: an artifact that returns the same memory each time, as CUDA graphs do whose outputs are not cloned."""
    folder = tmp_path / "reused"
    folder.mkdir()
    (folder / "__init__.py").write_text(text)
    reused = {"name": "candidate", "kind": "artifact", "artifact": str(folder)}
    session = loaded("Chain", "narrow", "layers")
    if survives:
        assert timed(session, [EAGER, reused], [])["checked"]["candidate"] == {"passed": True, "reason": ""}
        return
    with pytest.raises(WorkerFault) as caught:
        timed(session, [EAGER, reused], [])
    assert caught.value.kind == "runtime_failed" and "does not survive the next call" in caught.value.message


def test_what_the_baseline_overwrites_a_candidate_may_too(loaded: Loaded, tmp_path: Path) -> None:
    """The model returns a buffer that each call changes: so does every artifact of it."""
    folder = tmp_path / "same"
    folder.mkdir()
    (folder / "__init__.py").write_text(CHEAT.replace("model.forward = remembered", "pass"))
    session = loaded("Running", "narrow")
    same = {"name": "candidate", "kind": "artifact", "artifact": str(folder)}
    assert timed(session, [EAGER, same], [])["checked"]["candidate"]["passed"]
    arms = [timing.build(session, timing.current(session), Arm("eager", "eager"))]
    target = timing.current(session)
    assert timing._surviving(arms[0], target.inputs(1), target.inputs(2), 1) == [False, True]


def test_without_pairs_nothing_is_timed(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    first = timed(session, [EAGER], [["eager", "eager"]])
    found = timed(session, [EAGER], [])
    assert found["samples"] == [] and found["state_before"] is found["state_after"] is None
    assert found["timer"] == first["timer"] == "perf_counter"
    assert found["checked"]["eager"]["passed"]


@pytest.mark.parametrize("change", [
    {"metric": "speed"}, {"cache": "hot"}, {"pairs": [["eager", "nobody"]]}, {"arms": [EAGER, EAGER]}])
def test_bad_requests(loaded: Loaded, change: dict[str, Any]) -> None:
    session = loaded("Chain", "narrow", "layers")
    with pytest.raises(WorkerFault, match="bad_request"):
        timed(session, **{"arms": [EAGER], "pairs": [["eager", "eager"]]} | change)


def test_the_first_call_compiles_into_the_given_folder(loaded: Loaded, tmp_path: Path) -> None:
    session = loaded("Chain", "narrow", "layers")
    found = first_call(session, {"arm": DEFAULT, "cache": "first"})
    assert found["seconds"] > 0.01
    assert list((Path(session.scratch) / "first").rglob("*.so"))


def test_an_arm_in_every_pair_is_not_favoured(monkeypatch: pytest.MonkeyPatch) -> None:
    """Identical arms, each slower after others have run for long: the common arm of all pairs must not look faster."""
    now, calls = [0.0], [0]
    last: dict[str, int] = {}

    def arm(name: str) -> Any:
        def call(*args: Any, **kwargs: Any) -> None:
            calls[0] += 1
            cold = calls[0] - last.get(name, -100) > 3
            last[name] = calls[0]
            now[0] += 1.2e-3 if cold else 1e-3

        model = nn.Identity()
        return BuiltArm(Arm(name, "eager"), model, call, 0.0, 0, {}, State(model), None)

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    target = cast(Target, SimpleNamespace(copies=lambda: ((), {}), args=(), kwargs={}))
    watch = timing.Stopwatch(target, Device(torch.device("cpu")), "latency", cold=False)
    common, others = arm("a"), [arm(f"b{i}") for i in range(6)]
    context = cast(Context, SimpleNamespace(progress=lambda *a: None))
    for found in timing._blocks(context, watch, [(common, b) for b in others], 0.5):
        assert len(found["a_s"]) >= 2 * timing.LEAST_BLOCKS
        assert statistics.mean(found["a_s"]) == pytest.approx(statistics.mean(found["b_s"]))
