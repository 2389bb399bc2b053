from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from kernelopt_bot.sandbox.worker.arms import Arm, build, cache_folder, twin
from kernelopt_bot.sandbox.worker.load import current, load
from kernelopt_bot.sandbox.worker.protocol import WorkerFault
from tests.sandbox.worker.sessions import COMPILES_IN_PLACE, Session, parameters

pytestmark = pytest.mark.slow

Loaded = Callable[..., Session]
EXAMPLES = Path(__file__).parents[3] / "examples"

ARTIFACT = COMPILES_IN_PLACE + """
def status(model):
    if model._compiled_call_impl is None:
        raise ArtifactError("nothing was compiled")
    return {"expected": {"a": 2, "b": 1}, "replaced": {"a": 2}}
"""


@pytest.mark.parametrize("data", [
    {"name": "a", "kind": "magic"}, {"name": "a", "kind": "artifact"},
    {"name": "a", "kind": "compile", "artifact": "x"},
    {"name": "a", "kind": "compile", "mode": "max-autotune", "options": {"cpp_wrapper": True}}])
def test_arms_that_make_no_sense(data: dict[str, Any]) -> None:
    with pytest.raises(WorkerFault, match="bad_request"):
        Arm.from_json(data)


def test_equal_arms_are_compiled_twice_into_their_own_folders(loaded: Loaded, tmp_path: Path) -> None:
    session = loaded("Counted", "wide", "width")
    target = current(session)
    arms = [build(session, target, Arm(n, "compile"), str(tmp_path / n)) for n in ("a", "b")]
    assert [a.graphs for a in arms] == [1, 1]
    assert all(list((tmp_path / n).rglob("*.so")) for n in ("a", "b"))
    eager = build(session, target, Arm("eager", "eager"))
    args, kwargs = target.copies()
    with torch.no_grad():
        outputs = [a.call(*args, **kwargs)["y"] for a in (*arms, eager)]
    torch.testing.assert_close(outputs[0], outputs[2])
    assert torch.equal(outputs[0], outputs[1])
    assert target.model.calls == 0 and eager.graphs == 0


def test_parameters_are_shared_and_buffers_are_not(loaded: Loaded) -> None:
    model = current(loaded("Counted", "wide", "width")).model
    copied = twin(model)
    assert copied is not model and copied.up.weight is model.up.weight and copied.calls is not model.calls


def test_the_cache_folder_is_used_within_the_block_only(tmp_path: Path) -> None:
    before = {n: os.environ.get(n) for n in ("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")}
    with cache_folder(str(tmp_path / "own")):
        assert os.environ["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path / "own")
        assert os.environ["TRITON_CACHE_DIR"] == str(tmp_path / "own" / "triton")
    assert {n: os.environ.get(n) for n in before} == before


def test_an_artifact_is_imported_from_its_folder(loaded: Loaded, tmp_path: Path) -> None:
    folder = tmp_path / "artifact"
    folder.mkdir()
    (folder / "__init__.py").write_text(ARTIFACT)
    session = loaded("Chain", "narrow", "layers")
    arm = build(session, current(session), Arm("candidate", "artifact", artifact=str(folder)))
    assert arm.replaced == {"expected": 3, "found": 2}
    with pytest.raises(WorkerFault, match="bad_request"):
        build(session, current(session), Arm("candidate", "artifact", artifact=str(tmp_path / "absent")))


def test_an_arm_without_graphs_is_an_error(loaded: Loaded) -> None:
    session = loaded("Uncompiled")
    with pytest.raises(WorkerFault, match="no_graphs"):
        build(session, current(session), Arm("default", "compile"))


def test_a_closed_arm_cannot_be_called(loaded: Loaded) -> None:
    session = loaded("Chain", "narrow", "layers")
    arm = build(session, current(session), Arm("eager", "eager"))
    arm.close()
    with pytest.raises(RuntimeError, match="closed"):
        arm.call()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")
def test_equal_arms_run_in_the_same_configurations(tmp_path: Path) -> None:
    session = Session(tmp_path)
    load(session, {**parameters("Model", "get_inputs", "get_init_inputs", "rmsnorm_swiglu.py"),
                   "root": str(EXAMPLES), "device": "cuda:0"})
    for name in "abc":
        build(session, current(session), Arm(name, "compile"), str(tmp_path / name))
    chosen = [{p.name: p.read_bytes() for p in (tmp_path / name).rglob("*.best_config")} for name in "abc"]
    assert chosen[0] and chosen[1] == chosen[0] and chosen[2] == chosen[0]
