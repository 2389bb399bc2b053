"""The model worker's real process, over its protocol."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kernelopt_bot.sandbox.client import Worker, WorkerFailed
from kernelopt_bot.sandbox.jail import ProcessJail
from tests.sandbox.worker.sessions import parameters

SECONDS = 200.0


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    with Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path_factory.mktemp("model")) as found:
        yield found


@pytest.mark.slow
def test_a_whole_session(worker: Worker) -> None:
    assert worker.call("hello", {}, timeout=SECONDS)["gpu"] is None
    with pytest.raises(WorkerFailed) as caught:
        worker.call("capture", {"lane": "cpu", "options": {}, "save_limit_bytes": 0}, timeout=SECONDS)
    assert caught.value.kind == "bad_request"
    with pytest.raises(WorkerFailed) as caught:
        worker.call("load", parameters("Failing"), timeout=SECONDS)
    assert caught.value.kind == "target_forward" and "x @ torch.ones(3, 3)" in caught.value.detail
    assert worker.call("load", parameters("Chain", "narrow", "layers"), timeout=SECONDS)["deterministic"]
    (graph,) = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 20},
                           timeout=SECONDS)["graphs"]
    assert "async_compile.triton" in graph["source"]
    assert all((Path(worker.scratch) / s["file"]).is_file() for s in graph["saved_inputs"])
    seen: list[object] = []
    found = worker.call("time_model", {
        "arms": [{"name": "eager", "kind": "eager"}, {"name": "default", "kind": "compile"}],
        "pairs": [["default", "eager"]], "metric": "latency", "cache": "cold", "budget_s": 0.1, "secret": "s",
        "check": True}, timeout=SECONDS, progress=seen.append)
    assert len(found["samples"][0]["a_s"]) >= 10 and seen


def test_what_a_repository_calls_sympy_is_not_what_the_compiler_imports(tmp_path: Path) -> None:
    """The compiler is imported after the target."""
    project = tmp_path / "project"
    project.mkdir()
    (project / "sympy.py").write_text("raise RuntimeError('not the package')\n")
    (project / "net.py").write_text("import torch\n\n\nclass Model(torch.nn.Module):\n    def forward(self, x):\n"
                                    "        return x + 1\n\n\ndef get_inputs():\n    return [torch.ones(2)]\n")
    with Worker("model", python=sys.executable, jail=ProcessJail(), scratch=tmp_path / "scratch",
                readable=(project,)) as worker:
        worker.call("load", {**parameters("Model"), "root": str(project), "path": "net.py", "entry": "Model",
                             "inputs": "get_inputs", "init": ""}, timeout=SECONDS)
        with pytest.raises(WorkerFailed) as caught:
            worker.call("first_call", {"arm": {"name": "a", "kind": "magic"}, "cache": "c"}, timeout=SECONDS)
    assert caught.value.kind == "bad_request"
