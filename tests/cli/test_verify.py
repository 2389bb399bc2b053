"""`kernelopt verify PATH`: an artifact as written goes through the gates, anything else is refused unexecuted."""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.cli.main import main
from kernelopt_bot.compiler import releases
from kernelopt_bot.compiler._runtime import kernel_hash
from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, write_artifact
from kernelopt_bot.compiler.parse import parse_graph
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.config import Config
from kernelopt_bot.contract.candidate import KernelCandidate, Plan
from kernelopt_bot.device import roofs
from kernelopt_bot.playbook.technique import ranked
from kernelopt_bot.sandbox import probe
from kernelopt_bot.sandbox.client import Worker
from kernelopt_bot.sandbox.jail import ProcessJail
from kernelopt_bot.search import capturing, pretend_lever
from kernelopt_bot.search import verify as search_verify
from kernelopt_bot.search.capturing import Captured
from kernelopt_bot.search.committed import Modified, OtherRelease, read
from kernelopt_bot.search.loading import load
from kernelopt_bot.search.progress import Silent
from kernelopt_bot.search.session import Session
from kernelopt_bot.search.sites import configured, places
from kernelopt_bot.targets.target import Target
from tests.compiler.candidates import LAYER_NORM, layer_norm_plan
from tests.search.conftest import begun

MODEL = """
import contextlib
import pathlib
import torch

# In a worker the checkout is read-only.
with contextlib.suppress(OSError):
    pathlib.Path(__file__).with_name("imported").touch()


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(64)

    def forward(self, x):
        return torch.nn.functional.gelu(self.norm(x)) + x


def get_inputs():
    return [torch.randn(8, 64)]


def get_init_inputs():
    return []
"""
WRAPPER = Path(__file__).parents[1] / "data" / "wrappers" / "h200_torch2.11_inference.py"
TARGET = Target("net", "net.py", "Model", "get_inputs", "get_init_inputs", closure=("net.py",))
GPU = {"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200", "capability": [9, 0]}


@pytest.fixture(scope="session")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project with one kernel artifact, written by the product for a wrapper that an H200 made."""
    root = tmp_path_factory.mktemp("project")
    (root / "net.py").write_text(MODEL)
    graph = parse_graph({"index": 0, "source": WRAPPER.read_text(), "inputs": [], "outputs": [], "calls": [],
                         "is_inference": True, "is_backward": False, "saved_inputs": None})
    program = Program("net", "cuda", (graph,), "2.11.0", "3.6.0", "NVIDIA H200", {})
    step = next(s for s in graph.steps if s.kind == "kernel")
    candidate = KernelCandidate("ln", step.hash, 0, (step.index,), LAYER_NORM, Plan.from_json(layer_norm_plan()),
                                "rows")
    write_artifact(root / "kernels_of" / "net", class_name="Model", program=program,
                   kernels=[AdoptedKernel(candidate, {"step_speedup": 1.4})],
                   recipe=Recipe.of({"triton.cudagraphs": True}), environment=GPU,
                   evidence={"speedup": 1.2, "low": 1.1, "high": 1.3})
    return root


@pytest.fixture
def project(original: Path, tmp_path: Path) -> Path:
    shutil.copytree(original, tmp_path / "project")
    return tmp_path / "project"


def verify(project: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, dict[str, Any]]:
    code = main(["verify", str(project / "kernels_of" / "net"), "--root", str(project), "--json"])
    return code, json.loads(capsys.readouterr().out)


def refused(project: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The reason. Neither the artifact nor the target was imported."""
    code, answer = verify(project, capsys)
    assert (code, answer["state"], answer["verdicts"]) == (1, "modified", [])
    assert not list(project.rglob("canary")) and not (project / "imported").exists()
    return str(answer["reason"])


def canary(project: Path) -> str:
    return f"open({str(project / 'canary')!r}, 'w').close()\n"


def kernel(project: Path) -> Path:
    return next((project / "kernels_of" / "net" / "kernels").glob("*.py"))


@pytest.mark.parametrize("name", ["_runtime.py", "__init__.py"])
@pytest.mark.parametrize("end", ["top", "bottom"])
def test_edited_host_code(project: Path, name: str, end: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "kernels_of" / "net" / name
    text = path.read_text()
    path.write_text(canary(project) + text if end == "top" else text + canary(project))
    reason = refused(project, capsys)
    assert reason.startswith(name) and ("unknown runtime" in reason) is (name == "_runtime.py")


def test_edited_kernel(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = kernel(project)
    path.write_text(path.read_text() + canary(project))
    assert refused(project, capsys).startswith(f"kernels/{path.name}: its code does not have the hash")


def test_edited_kernel_with_its_hash(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, manifest = kernel(project), project / "kernels_of" / "net" / "manifest.json"
    source = LAYER_NORM.strip() + "\n" + canary(project)
    path.write_text(source)
    data = json.loads(manifest.read_text())
    data["runs"][0]["source_hash"] = kernel_hash(source)
    manifest.write_text(json.dumps(data))
    assert "breaks the contract" in refused(project, capsys)


def run_key(key: str, value: Any) -> Callable[[dict[str, Any]], None]:
    return lambda data: data["runs"][0].__setitem__(key, value)


@pytest.mark.parametrize(("edit", "message"), [
    (run_key("kernel", "../../net.py"), "is no .py file in kernels/"),
    (run_key("kernel", "/etc/passwd.py"), "is no .py file in kernels/"),
    (run_key("command", "touch canary"), "unknown key 'command' in runs"),
    (run_key("steps", 0), "run steps"),
    (lambda d: d.__setitem__("seeds", [1]), "unknown key 'seeds'"),
    (lambda d: d.__setitem__("class", 'M"""\nopen("canary", "w")\n"""'), "class is no name"),
    (lambda d: d.__setitem__("target", "../net"), "target is no name"),
    (lambda d: d.__setitem__("release", "9.9.9"), "written by release '9.9.9'"),
    (lambda d: d.__setitem__("schema", 2), "schema 1"),
    (lambda d: d.pop("recipe"), "no recipe"),
    (lambda d: d["recipe"].__setitem__("thresholds", {}), "unknown key 'thresholds' in recipe"),
    (lambda d: d["recipe"]["options"].__setitem__("freezing", True), "the recipe may not set 'freezing'"),
    (lambda d: d["recipe"]["options"].__setitem__("cpp.cxx", "touch canary"), "the recipe may not set 'cpp.cxx'"),
    (lambda d: d["recipe"].__setitem__("clone_outputs", False), "clone_outputs does not follow"),
    (lambda d: d["runs"][0]["plan"]["launches"][0].__setitem__("num_warps", 3), "num_warps 3"),
    (lambda d: d["runs"][0]["plan"].__setitem__("launches", []), "plan launches"),
    (lambda d: d["runs"][0]["plan"].__setitem__("x", 1), "not as it is written"),
    (lambda d: d["runs"].append(d["runs"][0]), "a run is there twice"),
])
def test_edited_manifest(project: Path, edit: Callable[[dict[str, Any]], None], message: str,
                         capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "kernels_of" / "net" / "manifest.json"
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    assert message in refused(project, capsys)


def test_the_runtime_of_an_earlier_release(project: Path, tmp_path: Path) -> None:
    """It is known for what it is, nothing of it is executed, and neither is it `modified`."""
    path = project / "kernels_of" / "net" / "_runtime.py"
    text = canary(project) + path.read_text()
    path.write_text(text)
    earlier = {"0.0.9": releases.digest(text), "0.0.8": "0" * 64}
    with pytest.raises(OtherRelease, match=r"written by release 0\.0\.9"):
        read(path.parent, tmp_path / "texts", earlier)

    def target_of(name: str) -> Target:
        raise AssertionError(name)

    found = search_verify.verify(path.parent, target_of, config=Config(), root=project, progress=Silent(),
                                 earlier=earlier)
    assert found.state == "stale" and "written by release 0.0.9" in found.reason and found.verdicts == ()
    assert not list(project.rglob("canary")) and not (project / "imported").exists()
    with pytest.raises(Modified, match="unknown runtime"):
        read(path.parent, tmp_path / "texts", {"0.0.9": "0" * 64})


@pytest.mark.parametrize("text", ["", "[]", "{", '{"schema": 1, "schema": 1}', "[" * 5000, "\0"])
def test_manifest_that_is_none(project: Path, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernels_of" / "net" / "manifest.json").write_text(text)
    assert refused(project, capsys).startswith("manifest.json")


@pytest.mark.parametrize("name", ["_runtime.py", "__init__.py", ".gitattributes", "README.md"])
def test_missing_file(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (project / "kernels_of" / "net" / name).unlink()
    assert refused(project, capsys).startswith(name)


def test_missing_kernel(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernel(project).unlink()
    assert "cannot read" in refused(project, capsys)


@pytest.mark.parametrize("name", ["conftest.py", "kernels/more.py", "__pycache__/_runtime.cpython-311.pyc"])
def test_file_that_belongs_to_nothing(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "kernels_of" / "net" / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(canary(project))
    assert refused(project, capsys).startswith(name.split("/")[0])


@pytest.mark.parametrize("name", ["manifest.json", "_runtime.py", "kernels"])
def test_link(project: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    path = project / "kernels_of" / "net" / name
    path.rename(project / "elsewhere")
    path.symlink_to(project / "elsewhere")
    assert refused(project, capsys) == f"{name}: a link"


def test_no_artifact_and_no_target(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", str(project), "--root", str(project)]) == 2
    assert "there is no artifact here" in capsys.readouterr().err
    (project / "net.py").unlink()
    assert main(["verify", str(project / "kernels_of" / "net"), "--root", str(project)]) == 2
    assert "there is no target net" in capsys.readouterr().err
    assert main(["verify"]) == 2


@pytest.fixture(scope="session")
def here(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a worker says of this machine."""
    jail, _ = probe.select("process", python=sys.executable)
    with Worker("model", python=sys.executable, jail=jail, scratch=tmp_path_factory.mktemp("hello")) as worker:
        return worker.call("hello", {}, timeout=120)


def moved(project: Path, **environment: Any) -> None:
    """The artifact with another environment in its manifest."""
    path = project / "kernels_of" / "net" / "manifest.json"
    data = json.loads(path.read_text())
    path.write_text(json.dumps({**data, "environment": {**data["environment"], **environment}}))


@dataclass(frozen=True)
class Found:
    """A project with an artifact as a search with the GPU pretended would write it for this very model, what that
    search captured, and its workers."""

    root: Path
    session: Session
    captured: Captured
    versions: dict[str, Any]
    worker: Worker
    interpreter: Worker
    compiler: Worker

    def gates_1_and_2(self, project: Path) -> search_verify.Outcome:
        """What `verify` does with a project's artifact once it has captured this model. Raises _Stale."""
        texts = Path(tempfile.mkdtemp(dir=self.session.folder))
        checks = search_verify._Verification(
            self.session, self.worker, read(project / "kernels_of" / "net", texts), TARGET)
        checks.versions = self.versions
        checks.kernels(self.captured, checks.candidates(self.captured.program), self.compiler, self.interpreter, None)
        return checks.outcome()


@pytest.fixture(scope="module")
def found_here(original: Path, here: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Found]:
    if here["gpu"] is not None:
        pytest.skip("the GPU is pretended")
    root = tmp_path_factory.mktemp("found") / "project"
    shutil.copytree(original, root)
    config = Config.model_validate({"version": 1, "device": "cpu"})
    session = begun(root, tmp_path_factory.mktemp("run"), config, TARGET, jail=ProcessJail())
    with (session.model_worker("model") as worker, session.kernel_worker("interpret", interpret=True) as interpreter,
          session.compiling_worker() as compiler):
        load(session, worker, TARGET)
        answer = worker.call("capture", {"lane": "pretend", "options": {}, "save_limit_bytes": 1 << 20}, timeout=120)
        captured = capturing.made(pretend_lever.recorded(answer, worker, interpreter), "net", "pretend",
                                  pretend_lever.DEVICE, here, {})
        place = places(captured, None, roofs.pretended())[0]
        site = configured(place, compiler.call("compile_baseline", {
            "source": place.site.kernel.source, "target": {"arch": 90}}, timeout=120))
        candidate = next(c for _, technique in ranked(site) for c in technique.propose(site))
        write_artifact(root / "kernels_of" / "net", class_name="Model", program=captured.program,
                       kernels=[AdoptedKernel(candidate)], recipe=Recipe.of({"triton.cudagraphs": True}),
                       environment={**GPU, "torch": here["torch"], "triton": here["triton"]})
        yield Found(root, session, captured, here, worker, interpreter, compiler)


@pytest.mark.slow
def test_other_versions_are_stale(project: Path, here: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    moved(project, torch="2.0.0")
    code, answer = verify(project, capsys)
    assert (code, answer["state"]) == (1, "stale") and "verified with torch 2.0.0" in answer["reason"]


@pytest.mark.slow
def test_a_kernel_for_another_program_is_stale(project: Path, found_here: Found) -> None:
    """The artifact is for a layer norm of another size than the target's."""
    with pytest.raises(search_verify._Stale) as caught:
        found_here.gates_1_and_2(project)
    assert "no longer found in net" in caught.value.reason


@pytest.mark.slow
def test_an_artifact_of_options_goes_through_every_gate(project: Path, here: dict[str, Any],
                                                        capsys: pytest.CaptureFixture[str]) -> None:
    if here["gpu"] is not None:
        pytest.skip("the recipe is one for a CPU")
    (project / ".kernelopt.yml").write_text("version: 1\ngates: { seeds: 1, inits: 1 }\n")
    folder = project / "kernels_of" / "net"
    program = Program("net", "cpu", (), here["torch"], here["triton"], here["cpu"], {})
    write_artifact(folder, class_name="Model", program=program, kernels=[], recipe=Recipe.of({"cpp_wrapper": True}),
                   environment={"torch": here["torch"], "triton": here["triton"], "device": here["cpu"]})
    code, answer = verify(project, capsys)
    # Whether it is faster is this machine's business; all that can be wrong with the artifact has passed.
    assert answer["state"] in ("verified", "regressed", "not measured"), answer
    assert code == (0 if answer["state"] == "verified" else 1)
    gates = {v["gate"]: v["status"] for v in answer["verdicts"]}
    assert [gates[g] for g in ("static", "correctness", "model")] == ["pass"] * 3 and "performance" in gates


@pytest.mark.slow
def test_a_kernel_goes_through_gates_1_and_2_without_a_gpu(found_here: Found,
                                                          capsys: pytest.CaptureFixture[str]) -> None:
    code, answer = verify(found_here.root, capsys)
    assert (code, answer["state"]) == (1, "not measured"), answer
    assert answer["reason"] == "whole: performance gate: no GPU"
    assert [(v["gate"], v["status"]) for v in answer["verdicts"]] == [
        ("static", "pass"), ("correctness", "pass"), ("performance", "not measured")]


@pytest.mark.slow
def test_a_wrong_kernel_fails_gate_2(found_here: Found, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All hashes are as this release would write them: only running the kernel shows that its epsilon is another."""
    root = tmp_path / "project"
    shutil.copytree(found_here.root, root)
    path, manifest = kernel(root), root / "kernels_of" / "net" / "manifest.json"
    source = path.read_text()
    assert source.count("1e-05") == 1
    path.write_text(source.replace("1e-05", "1e-02"))
    data = json.loads(manifest.read_text())
    data["runs"][0]["source_hash"] = kernel_hash(path.read_text())
    manifest.write_text(json.dumps(data))
    code, answer = verify(root, capsys)
    assert (code, answer["state"]) == (1, "failed") and "correctness gate" in answer["reason"], answer
