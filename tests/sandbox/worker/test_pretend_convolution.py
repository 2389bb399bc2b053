"""A convolution compiled for a GPU that is not there runs on the CPU under the interpreter, as the lever without a GPU
needs it: the layouts that the compiler expects must be those that the CPU's library gives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from kernelopt_bot.sandbox.lend import lend
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.reference_graph import reference_graph
from tests.sandbox.worker.conftest import KernelWorker
from tests.sandbox.worker.sessions import Session

pytestmark = pytest.mark.slow
MODEL = """
import torch
from torch import nn


class Model(nn.Sequential):
    def __init__(self):
        super().__init__(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 1), nn.MaxPool2d(2))


def get_inputs():
    return [torch.randn(2, 3, 8, 8)]
"""


def test_a_convolution_is_interpreted(interpreter: KernelWorker, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(MODEL)
    (tmp_path / "scratch").mkdir()
    session = Session(tmp_path / "scratch")
    load(session, {"root": str(tmp_path), "path": "net.py", "entry": "Model", "inputs": "get_inputs", "init": "",
                   "mode": "inference", "device": "cpu", "seed": 7})
    [graph] = capture(session, {"lane": "pretend", "options": {}})["graphs"]
    assert "extern_kernels.convolution" in graph["source"] and "triton" in graph["source"]
    there = Path(interpreter.path(""))
    inputs = lend(graph["saved_inputs"], tmp_path / "scratch", there)
    answer = interpreter.call("interpret_graph", {"source": graph["source"], "inputs": inputs})
    target = current(session)
    with torch.no_grad():
        expected = target.model(*target.args)
    torch.testing.assert_close(interpreter.load(answer["outputs"][0]), expected, rtol=1e-4, atol=1e-5)
    draws = reference_graph(session, {"graph": 0, "secret": "s"})["draws"]
    assert [d["family"] for d in draws] == ["captured", "normal"] and all(d["float64"] for d in draws)
