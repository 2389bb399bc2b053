"""Times of a step, on a GPU."""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.sandbox.worker import tensors
from kernelopt_bot.sandbox.worker.families import FAMILIES
from kernelopt_bot.sandbox.worker.time_step import BUSY_S, LONGEST_BUSY_S, uncovered
from tests.sandbox.worker.sources import COLUMNS, IMPORTS, ROWS, SOFTMAX, SOFTMAX_BODY, softmax_plan

absent = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@pytest.fixture
def gpu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker("kernel", python=sys.executable, jail=ProcessJail(), scratch=tmp_path_factory.mktemp("gpu"),
                device="cuda") as worker:
        yield worker


def case(*bodies: str, **also: Any) -> dict[str, Any]:
    stats = {"min": -3.0, "max": 3.0, "mean": 0.0, "std": 1.0, "finite": True}
    tensor = {"meta": tensors.meta(torch.empty(ROWS, COLUMNS)), "stats": stats}
    return {"baseline": {"source": SOFTMAX, "integers": {}}, "arguments": [tensor, tensor, ROWS, COLUMNS],
            "candidates": [{"source": IMPORTS + b, "plan": softmax_plan()} for b in bodies], "pairs": 10, **also}


SLOW = SOFTMAX_BODY.replace("    total =", "    for _ in range(20000):\n        value = value * 1.0001\n"
                            "    power = tl.where(value > 1e30, 0.0, power)\n    total =")
WILD = SOFTMAX_BODY.replace("tl.store(out_ptr2 + r", "tl.store(out_ptr2 + 100000000000 + r")


@pytest.mark.gpu
@absent
@pytest.mark.parametrize("cache", ["cold", "warm"])
def test_arms_are_interleaved_and_plausible(gpu: Worker, cache: str) -> None:
    answer = gpu.call("time_step", case(SOFTMAX_BODY, cache=cache), timeout=300)
    assert len(answer["baseline_us"]) == 20 and len(answer["candidates"][0]["us"]) == 20
    assert 0.5 < statistics.median(answer["baseline_us"]) < 100 and not answer["restart"]


@pytest.mark.gpu
@absent
def test_a_hopeless_candidate_is_dropped_by_tuning_only(gpu: Worker) -> None:
    answer = gpu.call("tune_step", case(SLOW, SOFTMAX_BODY), timeout=300)
    slow, good = answer["candidates"]
    assert slow["stopped"] and len(slow["us"]) < len(good["us"]) == 20


@pytest.mark.gpu
@absent
def test_one_candidate_that_does_not_compile_leaves_the_others(gpu: Worker) -> None:
    answer = gpu.call("time_step", case(SOFTMAX_BODY.replace("top)", "missing)"), SOFTMAX_BODY), timeout=300)
    bad, good = answer["candidates"]
    assert bad["kind"] == "compile_failed" and len(good["us"]) == 20 and not answer["restart"]


@pytest.mark.gpu
@absent
def test_a_broken_context_is_reported_for_a_restart(gpu: Worker) -> None:
    answer = gpu.call("time_step", case(WILD, SOFTMAX_BODY), timeout=300)
    assert answer["restart"] and "candidate 0" in answer["candidates"][0]["error"]
    assert "not run" in answer["candidates"][1]["error"]


@pytest.mark.gpu
@absent
def test_gate_2_on_the_gpu(gpu: Worker) -> None:
    shared = {"lane": "cuda", "secret": "s", "families": list(FAMILIES), "precision": {"m": 2, "k": 4}}
    for body, passed in ((SOFTMAX_BODY, True), (SOFTMAX_BODY.replace("value - top", "value - top * 0.5"), False)):
        params = {**case(), **shared, "candidate": {"source": IMPORTS + body, "plan": softmax_plan()}}
        answer = gpu.call("check_step", params, timeout=300)
        assert all(f["passed"] for f in answer["families"]) is passed and answer["float64"] == "used"


@pytest.mark.gpu
@absent
def test_roofs_are_plausible(gpu: Worker) -> None:
    roofs = gpu.call("roofs", {}, timeout=300)
    assert 1e11 < roofs["copy_bytes_per_s"] < 2e13 and roofs["l2_bytes"] > 1 << 20
    assert roofs["matrix_flops_per_s"]["bfloat16"] > roofs["matrix_flops_per_s"]["float32"] > 1e12


def test_a_launch_that_takes_the_host_longer_than_the_device_was_busy_is_measured_again() -> None:
    assert uncovered(BUSY_S, 0.9 * BUSY_S) is None
    longer = uncovered(BUSY_S, 1.1 * BUSY_S)
    assert longer is not None and uncovered(longer, 1.1 * BUSY_S) is None
    assert uncovered(BUSY_S, 1.0) == LONGEST_BUSY_S
    assert uncovered(LONGEST_BUSY_S, 1.0) == LONGEST_BUSY_S
