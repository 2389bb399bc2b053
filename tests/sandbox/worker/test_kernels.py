"""Reading generated kernels apart."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.sandbox.worker.kernels import load_baseline, pointer_use
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sources import SCALE_IN_PLACE, SOFTMAX, WRAPPERS, kernels_of

INFERENCE = kernels_of(WRAPPERS / "h200_torch2.11_inference.py")


def test_inductors_own_heuristics_supply_the_configurations(tmp_path: Path) -> None:
    kernel = load_baseline(INFERENCE["triton_poi_fused_addmm_gelu_view_1"], str(tmp_path))
    assert kernel.parameters == ("in_out_ptr0", "in_ptr0", "xnumel")
    assert [c.kwargs["XBLOCK"] for c in kernel.configs] == [1024, 512]
    assert kernel.signature["in_out_ptr0"] == "*fp32" and kernel.name == "triton_poi_fused_addmm_gelu_view_1"


def test_grids_are_inductors(tmp_path: Path) -> None:
    kernel = load_baseline(SCALE_IN_PLACE, str(tmp_path))
    (config, *_) = kernel.configs
    bound = kernel.bind([None, None, 1000])
    assert kernel.grid(config, bound) == (-(-1000 // config.kwargs["XBLOCK"]), 1, 1)
    assert kernel.constants(config) == {"XBLOCK": config.kwargs["XBLOCK"]}


def test_a_wrong_number_of_arguments_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WorkerFault, match="takes 3 arguments"):
        load_baseline(SCALE_IN_PLACE, str(tmp_path)).bind([1, 2])


@pytest.mark.parametrize("source", ["raise OSError('no')", "def f(:", "x = 1"])
def test_what_is_no_kernel_is_a_compile_failure(tmp_path: Path, source: str) -> None:
    with pytest.raises(WorkerFault) as caught:
        load_baseline(source, str(tmp_path))
    assert caught.value.kind == "compile_failed"


def test_pointer_use() -> None:
    loaded, stored = pointer_use(SOFTMAX, "baseline")
    assert "in_ptr0" in loaded and "out_ptr2" not in loaded and stored == {"out_ptr2"}
    loaded, stored = pointer_use(SCALE_IN_PLACE, "baseline")
    assert {"in_out_ptr0", "in_ptr0"} <= loaded and stored == {"in_out_ptr0"}
    atomic = "def f(a, b):\n    tl.atomic_add(a + 1, 2)\n    q = b + 1\n    tl.store(q, 3)\n"
    assert pointer_use(atomic, "f") == (frozenset({"a", "b"}), frozenset({"a"}))
