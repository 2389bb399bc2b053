from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import Session, parameters

Loaded = Callable[..., Session]


def answer(tmp_path: Path, **changes: Any) -> dict[str, Any]:
    return load(Session(tmp_path), parameters("Counted", "wide", "width") | changes)


def test_describes_the_model(tmp_path: Path) -> None:
    found = answer(tmp_path)
    assert found["class"] == "Counted"
    assert found["parameters"] == 64 * 128 + 128 + 2 * 64
    assert found["parameter_bytes"] == 4 * found["parameters"]
    assert [(i["name"], i["meta"]["shape"]) for i in found["inputs"]] == [("x", [4, 64])]
    assert [o["shape"] for o in found["outputs"]] == [[4, 128], [4, 64]]
    assert found["deterministic"] and found["max_difference"] == 0.0


def test_a_forward_that_changes_buffers_leaves_none_changed(loaded: Loaded) -> None:
    assert current(loaded("Counted", "wide", "width")).model.calls == 0


def test_same_seed_same_weights_and_inputs(loaded: Loaded) -> None:
    target = current(loaded("Counted", "wide", "width"))
    again = target.construct(target.seed)
    assert all(torch.equal(a, b) for a, b in zip(target.model.parameters(), again.parameters(), strict=True))
    other = target.construct(target.seed + 1)
    assert not torch.equal(target.model.up.weight, other.up.weight)
    assert torch.equal(target.inputs(target.seed)[0][0], target.args[0])
    assert not torch.equal(target.inputs(target.seed + 1)[0][0], target.args[0])


def test_constructor_and_inputs_by_name(tmp_path: Path) -> None:
    found = answer(tmp_path, init="width_by_name", inputs="scaled")
    assert [i["name"] for i in found["inputs"]] == ["x"]


def test_inputs_of_another_file(tmp_path: Path) -> None:
    found = load(Session(tmp_path), parameters("Chain", "elsewhere.py:inputs", "layers"))
    assert found["inputs"][0]["meta"]["shape"] == [4, 16]


def test_a_package_with_relative_imports(tmp_path: Path) -> None:
    found = load(Session(tmp_path), parameters("Model", "get_inputs", path="pkg/model.py"))
    assert found["outputs"][0]["shape"] == [3]


def test_dataclass_outputs(tmp_path: Path) -> None:
    found = load(Session(tmp_path), parameters("Dataclassed"))
    assert [o["shape"] for o in found["outputs"]] == [[4, 16], []]


def test_noise_is_deterministic_under_one_seed(tmp_path: Path) -> None:
    assert load(Session(tmp_path), parameters("Noisy"))["deterministic"]


VARYING = """import os
import torch
from torch import nn

class Atomic(nn.Module):
    calls = 0
    def forward(self, x):
        Atomic.calls += 1
        return x * (1 + Atomic.calls * 1e-6)

class Entropy(nn.Module):
    def forward(self, x):
        return x + int.from_bytes(os.urandom(4), "big")

class Seeded(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x, 0.5, training=True)

class Fixed(nn.Module):
    def forward(self, x):
        return x / 0.0

class Indices(nn.Module):
    calls = 0
    def forward(self, x):
        Indices.calls += 1
        return torch.zeros(4, dtype=torch.int64) + Indices.calls

def get_inputs():
    return [torch.randn(4, 4)]
"""


@pytest.mark.parametrize(("entry", "varies"), [
    ("Atomic", ""), ("Fixed", ""), ("Entropy", "between calls"), ("Indices", "between calls"),
    ("Seeded", "with the seed")])
def test_what_varies_beyond_rounding(tmp_path: Path, entry: str, varies: str) -> None:
    (tmp_path / "varying.py").write_text(VARYING)
    found = answer(tmp_path, root=str(tmp_path), path="varying.py", entry=entry, inputs="get_inputs", init="")
    assert found["varies"] == varies
    assert found["deterministic"] == (entry in ("Fixed", "Seeded"))


def test_the_trace_of_a_constructor_shows_nothing_of_ours(tmp_path: Path) -> None:
    with pytest.raises(WorkerFault) as caught:
        answer(tmp_path, entry="Counted", init="")
    assert "TypeError" in caught.value.detail and "sandbox/worker/load.py" not in caught.value.detail


@pytest.mark.parametrize(("changes", "kind", "words"), [
    ({"path": "missing.py"}, "target_missing", "no file 'missing.py'"),
    ({"path": "../conftest.py"}, "target_missing", "no file"),
    ({"entry": "Absent"}, "target_missing", "no nn.Module class 'Absent'"),
    ({"entry": "width", "init": ""}, "target_constructor", "width returned no nn.Module but a list"),
    ({"entry": "functional"}, "target_missing", "no nn.Module class 'functional' in blocks.py, and no function"),
    ({"inputs": "absent"}, "target_missing", "no function 'absent'"),
    ({"path": "needy.py"}, "target_import", "'a_package_that_is_not_there' is not installed"),
    ({"entry": "Unbuildable", "init": ""}, "target_constructor", "ValueError: no such width"),
    ({"entry": "Counted", "init": ""}, "target_constructor", "TypeError"),
    ({"inputs": "failing"}, "target_inputs", "the data set is not here"),
    ({"inputs": "on_meta"}, "target_device", "cannot be moved to cpu"),
    ({"device": "cuda:7"}, "target_device", "no cuda:7"),
    ({"entry": "Failing", "init": "", "inputs": "narrow"}, "target_forward", "Failing.forward failed"),
    ({"entry": "Silent", "init": "", "inputs": "narrow"}, "target_forward", "returned no tensor"),
])
def test_each_mistake_has_its_kind(tmp_path: Path, changes: dict[str, Any], kind: str, words: str) -> None:
    with pytest.raises(WorkerFault) as caught:
        answer(tmp_path, **changes)
    assert caught.value.kind == kind
    assert words in caught.value.message


def test_the_detail_is_the_users_traceback(tmp_path: Path) -> None:
    with pytest.raises(WorkerFault) as caught:
        answer(tmp_path, inputs="failing")
    assert 'raise RuntimeError("the data set is not here")' in caught.value.detail
    assert "sandbox/worker/load.py" not in caught.value.detail


def test_the_importer_s_own_frames_are_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their file names, `<frozen importlib._bootstrap>`, are no paths; the working folder is the checkout here."""
    (tmp_path / "needs.py").write_text("import a_package_that_is_not_there\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(WorkerFault) as caught:
        answer(tmp_path, root=str(tmp_path), path="needs.py")
    assert "needs.py" in caught.value.detail and "frozen" not in caught.value.detail


def test_a_syntax_error_names_its_place(tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text("def f(:\n    pass\n")
    with pytest.raises(WorkerFault) as caught:
        answer(tmp_path, root=str(tmp_path), path="bad.py")
    assert caught.value.kind == "target_import"
    assert "bad.py" in caught.value.detail and "line 1" in caught.value.detail


def test_before_load_nothing_is_current(tmp_path: Path) -> None:
    with pytest.raises(WorkerFault, match="no model is loaded"):
        current(Session(tmp_path))


DRAWN = """import torch
from torch import nn

WHERE = []

class Model(nn.Module):
    def forward(self, x):
        return x * 2

def plain():
    x = torch.rand(64)
    WHERE.append(x.device.type)
    return [x]

def by_generator():
    WHERE.append("begun")
    return [torch.rand(64, generator=torch.Generator("cpu").manual_seed(3))]
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
@pytest.mark.parametrize(("inputs", "where"), [("plain", ["cuda"]), ("by_generator", ["begun", "begun"])])
def test_inputs_are_drawn_on_the_gpu_where_they_can_be(tmp_path: Path, inputs: str, where: list[str]) -> None:
    (tmp_path / f"drawn_{inputs}.py").write_text(DRAWN)
    session = Session(tmp_path)
    changes = {"root": str(tmp_path), "path": f"drawn_{inputs}.py", "inputs": inputs, "device": "cuda:0"}
    load(session, parameters("Model") | changes)
    target = current(session)
    assert target.args[0].device.type == "cuda"
    assert where == inspect.getmodule(type(target.model)).WHERE  # type: ignore[union-attr]
    assert torch.equal(target.inputs(target.seed)[0][0], target.args[0])
