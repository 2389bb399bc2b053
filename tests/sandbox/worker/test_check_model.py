from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton

from kernelopt_bot.compiler.artifact import Recipe, write_artifact
from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.sandbox.worker.capture import capture
from kernelopt_bot.sandbox.worker.check_model import check_model, float64_outputs
from kernelopt_bot.sandbox.worker.load import current
from kernelopt_bot.sandbox.worker.seeds import derive
from tests.sandbox.worker.sessions import Session

pytestmark = pytest.mark.slow

Loaded = Callable[..., Session]

WRONG = """
import torch


class ArtifactError(Exception):
    pass


def optimize(model, on_miss="compile"):
    right = model.forward
    model.forward = lambda *args, **kwargs: change(right(*args, **kwargs), args)
    return model


def status(model):
    return {{"expected": {{"a": 1}}, "replaced": {{"a": 1}}}}


def change(out, args):
    {change}
"""


def checked(session: Session, artifact: Path | None = None, options: dict[str, Any] | None = None, seeds: int = 1,
            inits: int = 1) -> dict[str, Any]:
    return check_model(session, {
        "artifact": str(artifact) if artifact else None, "options": options or {}, "secret": "s", "seeds": seeds,
        "inits": inits, "precision": {"m": 2.0, "k": 8.0}})


def wrong(folder: Path, change: str) -> Path:
    folder.mkdir()
    (folder / "__init__.py").write_text(WRONG.format(change=change))
    return folder


def outputs(found: dict[str, Any]) -> list[dict[str, Any]]:
    return [o for d in found["draws"] for o in d["outputs"]]


def test_other_options_of_the_same_compiler_pass(loaded: Loaded) -> None:
    session = loaded("Counted", "wide", "width")
    weights = {n: p.clone() for n, p in current(session).model.named_parameters()}
    found = checked(session, options={"epilogue_fusion": False}, seeds=2, inits=2)
    assert [(d["init"], d["seed"]) for d in found["draws"]] == [
        (i, derive("s", f"model/{i}", j)) for i in range(2) for j in range(2)]
    assert all(o["passed"] for o in outputs(found)) and found["float64"] == "used"
    assert {o["name"] for o in outputs(found)} == {"output.y", "output.rest.1", "buffer calls"}
    assert len({o["rmse_baseline"] for o in outputs(found) if o["name"] == "output.y"}) == 4, "each draw is another"
    assert found["aliasing_equal"] and found["metadata_equal"] and found["replaced"] == {"expected": 0, "found": 0}
    assert all(d["eager_allclose"] for d in found["draws"])
    model = current(session).model
    assert all(torch.equal(p, weights[n]) for n, p in model.named_parameters()) and model.calls == 0


def test_a_written_artifact_is_what_is_checked(loaded: Loaded, tmp_path: Path) -> None:
    session = loaded("Counted", "wide", "width")
    (raw,) = capture(session, {"lane": "cpu", "options": {}, "save_limit_bytes": 0})["graphs"]
    program = Program("counted", "cpu", (parse_graph(raw),), torch.__version__, triton.__version__, "a processor")
    folder = write_artifact(tmp_path / "counted", class_name="Counted", program=program, kernels=[],
                            recipe=Recipe({"epilogue_fusion": False}), environment={"torch": torch.__version__})
    found = checked(session, folder)
    assert all(o["passed"] for o in outputs(found)) and found["replaced"] == {"expected": 0, "found": 0}
    assert found["aliasing_equal"] and found["metadata_equal"]


@pytest.mark.parametrize(("change", "words"), [
    ("return out * (1 + 1e-4)", "RMSE"),
    ("return out.double()", "torch.float64"),
    ("return out[:2]", "expected torch.float32 (4, 8)"),
    ("out[0, 0] = float('nan'); return out", "non-finite class"),
])
def test_a_wrong_candidate_is_rejected(loaded: Loaded, tmp_path: Path, change: str, words: str) -> None:
    found = checked(loaded("Chain", "narrow", "layers"), wrong(tmp_path / "a", change))
    assert not any(o["passed"] for o in outputs(found)) and words in outputs(found)[0]["reason"]
    assert found["replaced"] == {"expected": 1, "found": 1}


@pytest.mark.parametrize(("entry", "change", "part"), [
    ("Chain", "return out.t().contiguous().t()", "metadata_equal"),
    ("Chain", "return [out]", "metadata_equal"),
    ("Chain", "args[0].mul_(2); return out", "metadata_equal"),
    ("Chain", "part = args[0].flatten()[:32].view(4, 8); part.copy_(out); return part", "aliasing_equal"),
    ("Sharing", "return out[0], out[1], out[2].clone(memory_format=torch.preserve_format)", "aliasing_equal"),
])
def test_structure_must_be_equal(loaded: Loaded, tmp_path: Path, entry: str, change: str, part: str) -> None:
    session = loaded(entry, "narrow", "layers" if entry == "Chain" else "")
    found = checked(session, wrong(tmp_path / "a", change))
    assert not found[part] and found["differences"]


def test_changed_inputs_and_shared_outputs_are_compared(loaded: Loaded) -> None:
    found = checked(loaded("Sharing"), options={"epilogue_fusion": False})
    assert "input x" in {o["name"] for o in outputs(found)}
    assert found["aliasing_equal"] and found["metadata_equal"] and all(o["passed"] for o in outputs(found))


def test_random_outputs_are_compared_under_one_seed(loaded: Loaded) -> None:
    found = checked(loaded("Noisy"), options={"epilogue_fusion": False})
    assert found["float64"] == "not used: the outputs are random"
    assert all(o["passed"] and o["bit_equal"] for o in outputs(found))


def test_without_a_reference_only_bit_equal_passes(loaded: Loaded, tmp_path: Path) -> None:
    found = checked(loaded("Noisy"), wrong(tmp_path / "a", "return torch.nextafter(out, out + 1)"))
    assert not any(o["passed"] for o in outputs(found))


def test_a_model_that_casts_down_has_its_graphs_promoted(loaded: Loaded) -> None:
    target = current(loaded("Casting"))
    found, used = float64_outputs(target, target.model, (target.args, target.kwargs), 0)
    assert used == "used" and found["output"].dtype is torch.float64
    weight, bias = target.model.up.weight.double(), target.model.up.bias.double()
    exact = torch.softmax(target.args[0].double() @ weight.t() + bias, -1)
    torch.testing.assert_close(found["output"], exact.detach(), rtol=1e-12, atol=1e-14)
