"""`optimize` on models whose authors called `torch.compile` themselves: the artifact's backend gets the whole graph."""

from __future__ import annotations

import copy
import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from kernelopt_bot.compiler import _runtime as runtime
from kernelopt_bot.compiler.shipped import artifact as shipped
from kernelopt_bot.sandbox.worker.foreign import known

MODELS = Path(__file__).parents[2] / "sandbox" / "worker" / "models" / "real_models.py"


@pytest.fixture(scope="module")
def models() -> ModuleType:
    spec = importlib.util.spec_from_file_location("self_compiled_models", MODELS)
    assert spec is not None and spec.loader is not None
    known()  # Else the file's own operators would count as torch's in this process.
    module = sys.modules[spec.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Counting(runtime.Backend):
    """Takes what Dynamo gives and compiles nothing."""

    def __init__(self) -> None:
        super().__init__({}, {})

    def __call__(self, gm: Any, example_inputs: Any) -> Any:
        self.graphs.append(runtime.GraphRecord(gm.code, {}, True, True))
        return gm.forward


@pytest.mark.parametrize("entry", [
    "CompiledClass", "CompiledForward", "CompiledSelf", "CompiledOwnForward", "CompiledPart", "compiled_model"])
def test_the_whole_model_comes_to_the_artifact(
        entry: str, models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    torch._dynamo.reset()
    artifact = runtime.Artifact(runtime.Manifest("block", {}, {}, False, {}, {}, ()))
    counting = Counting()
    monkeypatch.setattr(artifact, "backend", lambda on_miss: counting)
    model, (x,) = getattr(models, entry)().eval(), models.rows()
    assert artifact.optimize(model) is model
    body = models.Body().eval()
    own = model.state_dict().items()
    body.load_state_dict({n.rpartition("_orig_mod.")[2].removeprefix("body."): t for n, t in own})
    with torch.no_grad():
        expected = body(x) * (2 if entry == "CompiledPart" else 1)
        torch.testing.assert_close(model(x), expected)
        torch.testing.assert_close(model(x), expected)
    (graph,) = counting.graphs
    assert "gelu" in graph.source and "layer_norm" in graph.source
    assert artifact.status(model)["graphs"] == 1


def test_other_instances_of_a_compiled_class_stay_as_they_are(models: ModuleType) -> None:
    torch._dynamo.reset()
    mine, other, (x,) = models.CompiledClass().eval(), models.CompiledClass().eval(), models.rows()
    counting = Counting()
    shipped._compile(mine, counting)
    shipped._compile(mine, counting)
    taken = type(mine).__call__
    with torch.no_grad():
        mine(x)
    before = len(counting.graphs)
    copied = copy.deepcopy(mine)
    assert mine in taken.kernelopt_models and other not in taken.kernelopt_models
    assert copied not in taken.kernelopt_models, "a copy is not compiled by us"
    assert before == 1
