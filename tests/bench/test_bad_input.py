"""Models that a benchmark may hold: each gets through the product, or is declined with its reason, the baseline kept.

What cannot be imported, has no graph, or draws random numbers is in tests/cli/test_bad_input.py.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from tests.cli.test_bad_input import QUICK, kernelopt, model, project, report

MODELS = {
    # And more than 2^31 elements with strides of 0: their memory is that of one.
    "structures": model('return {"tuple": (torch.relu(x) * 2, x.view(-1)[3:]), "integers": [(x * 3).long() // 2], '
                        '"complex": torch.view_as_complex(x.reshape(2, 4, 2)) * (1 + 2j), "input": x, '
                        '"large": (large[-5:] * 2, large[::1 << 20].float())}',
                        inputs="\n\ndef get_inputs():\n    return [torch.randn(2, 8), "
                               "torch.ones(1, dtype=torch.int8).expand(2**31 + 8)]\n",
                        ).replace("forward(self, x)", "forward(self, x, large)"),
    "empty": model("return torch.softmax(x, -1), x.sum(0), x.t()",
                   inputs="\n\ndef get_inputs():\n    return [torch.randn(0, 8)]\n"),
    "nothing": model("torch.relu(x)"),
    "memory": model("return x + torch.empty(1 << 50)[0]"),
    "inputs": model("return x", inputs="\n\ndef get_inputs():\n    return [torch.empty(1 << 50)]\n"),
    # As of a GPU.
    "device": model('raise torch.OutOfMemoryError("Tried to allocate 3.00 GiB")'),
}
THROUGH = ("structures", "empty")
DECLINED = {
    "nothing": ("target_forward", "returned no tensor"),
    "memory": ("out_of_memory", "Model.forward failed: out of memory"),
    "inputs": ("out_of_memory", "get_inputs failed: out of memory"),
    "device": ("out_of_memory", "Model.forward failed: out of memory"),
}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@dataclass(frozen=True)
class Tried:
    code: int
    report: dict[str, Any]

    def target(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = next(t for t in self.report["targets"] if t["name"] == name)
        return found


@pytest.fixture(scope="module")
def tried(tmp_path_factory: pytest.TempPathFactory) -> Tried:
    folder = project(tmp_path_factory.mktemp("models"), **MODELS)
    done = kernelopt(folder, "optimize", *(f"{name}.py" for name in MODELS), *QUICK)
    return Tried(done.returncode, report(folder))


@pytest.mark.parametrize("name", THROUGH)
def test_gets_through(tried: Tried, name: str) -> None:
    target = tried.target(name)
    assert target["error"] == "" and target["error_kind"] == "" and target["program"]["graphs"] == 1
    assert target["artifact"] == "" and target["faster"] is False


@pytest.mark.parametrize("name", DECLINED)
def test_declined_with_its_reason(tried: Tried, name: str) -> None:
    target = tried.target(name)
    kind, words = DECLINED[name]
    assert target["error_kind"] == kind and words in target["error"] and "what to do:" in target["error"]
    assert target["artifact"] == "" and target["program"] is None
    if kind == "out_of_memory":
        assert "smaller example inputs or a device with more memory" in target["error"]


def test_none_takes_another_one_with_it(tried: Tried) -> None:
    assert [t["name"] for t in tried.report["targets"]] == list(MODELS) and tried.report["stopped"] == ""
    assert tried.code == 1, "not all of it is the models' fault"


def test_what_was_verified_says_shapes_of_any_size(tried: Tried) -> None:
    assert tried.target("empty")["covered"] == ["x: (0, 8) float32"]
    assert tried.target("structures")["covered"] == ["x: (2, 8) float32", f"large: ({2**31 + 8},) int8"]
