"""Wrappers captured on a GPU, run on the CPU."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional

from kernelopt_bot.compiler import _runtime
from kernelopt_bot.sandbox.client import WorkerFailed
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sources import IMPORTS, WRAPPERS

TEXT = (WRAPPERS / "h200_torch2.11_inference.py").read_text()


@pytest.fixture(scope="module")
def case(interpreter: KernelWorker) -> dict[str, Any]:
    g = torch.Generator().manual_seed(0)

    def randn(*shape: int, scale: float = 1.0) -> torch.Tensor:
        return torch.randn(*shape, generator=g) * scale

    values = [randn(256), randn(256), randn(8, 128, 256), randn(1024, 256, scale=1 / 16), randn(1024),
              randn(256, 1024, scale=1 / 32), randn(256)]
    inputs = [interpreter.save(v) for v in values]
    nw, nb, x, w1, b1, w2, b2 = values
    hidden = functional.gelu(functional.linear(functional.layer_norm(x, (256,), nw, nb), w1, b1))
    expected = x + functional.linear(hidden, w2, b2)
    answer = interpreter.call("interpret_graph", {"source": TEXT, "inputs": inputs, "save_limit_bytes": 1 << 16})
    return {"inputs": inputs, "expected": expected, "answer": answer, "x": x}


def test_the_output_is_eagers(interpreter: KernelWorker, case: dict[str, Any]) -> None:
    (output,) = case["answer"]["outputs"]
    torch.testing.assert_close(interpreter.load(output), case["expected"])
    assert case["answer"]["replaced"] is None


def test_the_calls_are_recorded_with_statistics(case: dict[str, Any]) -> None:
    calls = case["answer"]["calls"]
    assert [c["callee"] for c in calls] == [
        "triton_per_fused_native_layer_norm_0", "extern_kernels.mm", "triton_poi_fused_addmm_gelu_view_1",
        "extern_kernels.mm", "triton_poi_fused_add_addmm_view_2"]
    lines = TEXT.splitlines()
    assert all(c["callee"] in lines[c["line"] - 1] for c in calls)
    x, weight, _, out, *numbers = calls[0]["arguments"]
    assert x["stats"]["std"] == pytest.approx(1.0, abs=0.01) and x["saved"] is None
    assert weight["saved"]["shape"] == [256]
    assert out["stats"] is None and [n["value"] for n in numbers] == [1024, 256]


GELU = IMPORTS + """
@triton.jit
def gelu(p, bias, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(p + i, i < n) + tl.load(bias + i % 1024, i < n)
    tl.store(p + i, SCALE * x * (1.0 + libdevice.erf(x * 0.7071067811865476)), i < n)
"""


def write_artifact(folder: Path, source: str) -> None:
    wrapper = _runtime.read_wrapper(TEXT)
    call = next(c for c in wrapper.calls if "gelu" in c.kernel)
    plan = {"parameters": [{"name": "in_out_ptr0", "type": "*fp32", "written": True, "read": True, "divisible": True},
                           {"name": "in_ptr0", "type": "*fp32", "written": False, "read": True, "divisible": True},
                           {"name": "xnumel", "type": "i32", "written": False, "read": True, "divisible": True}],
            "scratch": [],
            "launches": [{"function": "gelu", "grid": ["cdiv(xnumel, 8192)"],
                          "arguments": ["in_out_ptr0", "in_ptr0", "xnumel"], "constexprs": {"BLOCK": 8192},
                          "num_warps": 8, "num_stages": 1, "num_ctas": 1, "maxnreg": None}]}
    (folder / "kernels").mkdir(parents=True)
    (folder / "kernels" / "gelu.py").write_text(source)
    run = {"hash": _runtime.run_hash([call], wrapper.kernels), "steps": 1, "kernel": "kernels/gelu.py", "plan": plan,
           "count": 1, "replaces": [call.kernel], "source_hash": _runtime.kernel_hash(source.lstrip("\n"))}
    (folder / "manifest.json").write_text(json.dumps({
        "schema": 1, "release": "0.1.0", "target": "block", "class": "Block", "recipe": {"options": {}},
        "environment": {}, "runs": [run], "evidence": {}}))


@pytest.mark.parametrize("scale", ["0.5", "0.25"])
def test_an_artifacts_kernel_runs_in_place_of_the_compilers(
    interpreter: KernelWorker, case: dict[str, Any], scale: str
) -> None:
    folder = Path(interpreter.path(f"artifact-{scale}"))
    write_artifact(folder, GELU.replace("SCALE", scale))
    answer = interpreter.call("interpret_graph", {
        "source": TEXT, "inputs": case["inputs"], "save_limit_bytes": 0, "artifact": str(folder)})
    assert sum(answer["replaced"].values()) == 1
    close = torch.allclose(interpreter.load(answer["outputs"][0]), case["expected"], rtol=1e-4, atol=1e-4)
    assert close is (scale == "0.5")
    assert not any("gelu_view_1" in c["callee"] for c in answer["calls"])


@pytest.mark.parametrize(("edit", "kind", "words"), [
    (lambda t: t.replace("extern_kernels.mm(", "torch.ops.aten._scaled_dot_product_flash_attention.default("),
     "runtime_failed|unsupported", "wrapper"),
    (lambda t: t.replace("1024, 256, stream", "1024, stream"), "bad_request", "takes 6 arguments"),
    (lambda t: t + "\nraise OSError('broken')\n", "runtime_failed", "OSError: broken"),
])
def test_a_wrapper_that_fails_says_how(
    interpreter: KernelWorker, case: dict[str, Any], edit: Callable[[str], str], kind: str, words: str
) -> None:
    with pytest.raises(WorkerFailed, match=words) as caught:
        interpreter.call("interpret_graph", {"source": edit(TEXT), "inputs": case["inputs"]})
    assert caught.value.kind in kind.split("|")


def test_a_broken_artifact_is_refused(interpreter: KernelWorker, case: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "manifest.json").write_text("{")
    with pytest.raises(WorkerFailed, match="manifest"):
        interpreter.call("interpret_graph", {"source": TEXT, "inputs": case["inputs"], "artifact": str(tmp_path)})
