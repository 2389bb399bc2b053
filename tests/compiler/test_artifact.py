from __future__ import annotations

import dataclasses
import json
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kernelopt_bot.compiler._runtime import ArtifactError, load_manifest
from kernelopt_bot.compiler.artifact import AdoptedKernel, Recipe, stitch, write_artifact
from kernelopt_bot.errors import InputError, Unavailable
from tests.compiler import programs

ENVIRONMENT = {"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200", "capability": [9, 0]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "shop" / "kernelopt_kernels" / "transformer_block"


@pytest.fixture
def written(folder: Path, inference: str) -> Path:
    kernel = AdoptedKernel(programs.layer_norm(inference), {"step_speedup": 1.4})
    return write_artifact(folder, class_name="Block", program=programs.program(inference, inference), kernels=[kernel],
                          recipe=Recipe.of({"triton.cudagraphs": True}), environment=ENVIRONMENT,
                          evidence={"speedup": 1.2, "low": 1.18, "high": 1.22})


def test_what_is_in_the_folder(written: Path) -> None:
    files = {str(p.relative_to(written)) for p in written.rglob("*") if p.is_file()}
    assert files == {".gitattributes", "README.md", "__init__.py", "_runtime.py", "manifest.json",
                     "kernels/native_layer_norm_0.py"}
    assert [p.name for p in written.parent.iterdir()] == ["transformer_block"]
    for name in files:
        text = (written / name).read_text()
        compile(text, name, "exec") if name.endswith(".py") else None
        if name.endswith(".py"):
            assert {"# ruff: noqa", "# fmt: off", "# mypy: ignore-errors"} <= set(text.split("\n"))
    assert "1.20x" in (written / "README.md").read_text()


def test_the_kernel_says_what_it_replaces_and_why_it_is_faster(written: Path) -> None:
    text = (written / "kernels" / "native_layer_norm_0.py").read_text()
    assert "# Replaces: triton_per_fused_native_layer_norm_0" in text
    assert "#   Four rows a program: [31mfewer launches of small work." in text
    assert "1.40x" in text and "\x1b" not in text


def test_the_manifest(written: Path, inference: str) -> None:
    data = json.loads((written / "manifest.json").read_text())
    assert data["recipe"] == {"options": {"triton.cudagraphs": True}, "clone_outputs": True}
    (run,) = data["runs"]
    assert (run["count"], run["graphs"], run["steps"]) == (2, [1, 1], 1)
    assert run["replaces"] == ["triton_per_fused_native_layer_norm_0"]
    manifest = load_manifest(written)
    assert manifest.capability == 90 and manifest.edited == ()
    loaded = manifest.runs[run["hash"]]
    assert loaded.source.startswith("import triton\n") and loaded.counts == (1, 1)


def test_formatting_a_kernel_is_harmless_and_editing_it_is_not(written: Path) -> None:
    path = written / "kernels" / "native_layer_norm_0.py"
    text = path.read_text()
    path.write_text(text.replace("    mean = ", "    # the mean\n\n    mean = "))
    assert load_manifest(written).edited == ()
    path.write_text(text.replace("1e-05", "1e-06"))
    manifest = load_manifest(written)
    assert manifest.edited == ("kernels/native_layer_norm_0.py",) and manifest.runs == {}


def test_writing_again_replaces_everything(written: Path, inference: str) -> None:
    (written / "stale.py").write_text("")
    write_artifact(written, class_name="Block", program=programs.program(inference), kernels=[],
                   recipe=Recipe({"max_fusion_size": 8}), environment={"torch": "2.13.0"})
    assert not (written / "stale.py").exists() and not (written / "kernels").exists()
    assert load_manifest(written).options == {"max_fusion_size": 8}
    assert "Not measured here" in (written / "README.md").read_text()


def test_the_same_input_gives_the_same_bytes(written: Path, folder: Path, inference: str) -> None:
    before = {p: p.read_bytes() for p in written.rglob("*") if p.is_file()}
    kernel = AdoptedKernel(programs.layer_norm(inference), {"step_speedup": 1.4})
    write_artifact(folder, class_name="Block", program=programs.program(inference, inference), kernels=[kernel],
                   recipe=Recipe.of({"triton.cudagraphs": True}), environment=ENVIRONMENT,
                   evidence={"speedup": 1.2, "low": 1.18, "high": 1.22})
    assert before == {p: p.read_bytes() for p in written.rglob("*") if p.is_file()}


def test_a_kernel_that_replaces_nothing_is_refused(folder: Path, inference: str, backward: str) -> None:
    kernel = AdoptedKernel(programs.layer_norm(inference))
    with pytest.raises(InputError, match="replaces nothing"):
        write_artifact(folder, class_name="B", program=programs.program(backward), kernels=[kernel], recipe=Recipe(),
                       environment={})
    wide = dataclasses.replace(kernel.candidate.plan.launches[0], num_ctas=2)
    broken = dataclasses.replace(kernel.candidate, plan=dataclasses.replace(kernel.candidate.plan, launches=(wide,)))
    with pytest.raises(InputError) as caught:
        write_artifact(folder, class_name="B", program=programs.program(inference), kernels=[AdoptedKernel(broken)],
                       recipe=Recipe(), environment={})
    assert "num_ctas" in caught.value.where
    with pytest.raises(InputError, match="same run"):
        write_artifact(folder, class_name="B", program=programs.program(inference), kernels=[kernel, kernel],
                       recipe=Recipe(), environment={})
    assert not folder.exists()


def test_a_failed_write_leaves_what_was_there(written: Path, inference: str) -> None:
    before = (written / "manifest.json").read_bytes()
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The runtime is longer than this: its write fails half-way.
    resource.setrlimit(resource.RLIMIT_FSIZE, (8192, old[1]))
    try:
        with pytest.raises(InputError, match="cannot be written"):
            write_artifact(written, class_name="B", program=programs.program(inference), kernels=[], recipe=Recipe(),
                           environment={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, old)
    assert (written / "manifest.json").read_bytes() == before
    assert [p.name for p in written.parent.iterdir()] == ["transformer_block"]


def test_a_full_disk(tmp_path: Path, inference: str) -> None:
    place = tmp_path / "small"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=32k", "tmpfs", str(place)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True, check=False, timeout=30).returncode:
        pytest.skip("no right to mount a small file system")
    try:
        with pytest.raises(Unavailable, match="disk is full"):
            write_artifact(place / "block", class_name="B", program=programs.program(inference), kernels=[],
                           recipe=Recipe(), environment={})
        assert list(place.iterdir()) == []
    finally:
        subprocess.run(["umount", str(place)], check=True, timeout=30)


def test_a_folder_that_cannot_be_made(tmp_path: Path, inference: str) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError) as caught:
        write_artifact(tmp_path / "file" / "block", class_name="B", program=programs.program(inference), kernels=[],
                       recipe=Recipe(), environment={})
    assert "artifact.root" in caught.value.fix


def test_stitched_text_for_reading(inference: str) -> None:
    (text,) = stitch(programs.program(inference), [AdoptedKernel(programs.layer_norm(inference))])
    assert "kernelopt_" in text and "def layer_norm(" in text


@pytest.mark.parametrize("change", [
    lambda d: d.update(schema=2), lambda d: d.update(runs={}), lambda d: d.update(recipe=[]),
    lambda d: d["recipe"].update(options={"a": {}}), lambda d: d["environment"].update(capability=[9]),
    lambda d: d["environment"].update(capability="90"), lambda d: d["runs"][0].update(hash="short"),
    lambda d: d["runs"][0].update(kernel="../outside.py"), lambda d: d["runs"][0].update(kernel="/etc/passwd.py"),
    lambda d: d["runs"][0].update(kernel="kernels/../__init__.py"), lambda d: d["runs"][0].update(kernel=7),
    lambda d: d["runs"][0].update(kernel="kernels/missing.py"), lambda d: d["runs"][0].update(kernel="manifest.json"),
    lambda d: d["runs"][0].update(steps=0), lambda d: d["runs"][0].update(graphs=[-1]),
    lambda d: d["runs"][0].update(plan=None), lambda d: d["runs"][0]["plan"].update(launches=[]),
    lambda d: d["runs"][0]["plan"]["launches"][0].update(grid="1"),
    lambda d: d["runs"][0]["plan"]["launches"][0].update(constexprs={"a": []}),
    lambda d: d["runs"][0]["plan"]["launches"][0].update(num_warps=10**9),
    lambda d: d["runs"][0]["plan"].update(parameters=[{"name": 1}]),
    lambda d: d["runs"][0]["plan"].update(parameters=[{"name": "a"}]),
    lambda d: d["recipe"].update(options={"cpp.cxx": "/tmp/evil.sh"}),
    lambda d: d["recipe"].update(options={"use_fast_math": True}),
    lambda d: d["recipe"].update(options={"triton.cudagraphs": 1}),
    lambda d: d["recipe"].update(options={"triton.multi_kernel": True}),
    lambda d: d["recipe"].update(options={"max_fusion_size": 7}),
    lambda d: d["recipe"].update(options={"max_fusion_size": 8.0}),
    lambda d: d["recipe"].update(clone_outputs="no"), lambda d: d.update(target=[]), lambda d: d.update(evidence=3),
    lambda d: d["runs"][0].update(kernel="kernels/a\u0000.py"),
    lambda d: d["runs"][0].update(kernel="kernels/\ud800.py"),
    lambda d: d["runs"][0].update(kernel="kernels/" + "a" * 5000 + ".py"),
    lambda d: d["runs"][0].update(hash="x = __import__('os') # "[:24].ljust(24))])
def test_a_hostile_manifest_is_refused(written: Path, change: Any) -> None:
    path = written / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ArtifactError, match="write the artifact anew"):
        load_manifest(written)


@pytest.mark.parametrize("change", [
    lambda d: d.update(target="\ud800"), lambda d: d["evidence"].update({"\udfff": 1}),
    lambda d: d["recipe"].update(options={"max_fusion_size": float("nan")}),
    lambda d: d["runs"][0]["plan"]["launches"][0].update(constexprs={"a": float("inf")})])
def test_what_only_python_takes_for_json_is_refused(written: Path, change: Any) -> None:
    path = written / "manifest.json"
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))
    with pytest.raises(ArtifactError, match="not JSON"):
        load_manifest(written)


def test_a_manifest_that_is_no_json_or_missing(written: Path, tmp_path: Path) -> None:
    (written / "manifest.json").write_text("{" * 100_000)
    with pytest.raises(ArtifactError, match="not JSON"):
        load_manifest(written)
    with pytest.raises(ArtifactError, match="cannot read"):
        load_manifest(tmp_path / "nowhere")


def test_a_link_out_of_the_folder_is_refused(written: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside.py"
    outside.write_text("import os\n")
    path = written / "kernels" / "native_layer_norm_0.py"
    path.unlink()
    path.symlink_to(outside)
    with pytest.raises(ArtifactError, match="not in kernels"):
        load_manifest(written)


def test_a_linked_kernels_folder_is_refused(written: Path, tmp_path: Path) -> None:
    for goal in (tmp_path / "elsewhere", written / "moved"):
        (written / "kernels").rename(goal)
        (written / "kernels").symlink_to(goal)
        with pytest.raises(ArtifactError, match="not in kernels"):
            load_manifest(written)
        (written / "kernels").unlink()
        goal.rename(written / "kernels")
    link = tmp_path / "link"
    link.symlink_to(written)
    assert len(load_manifest(link).runs) == 1


def test_a_pipe_is_not_waited_for(written: Path) -> None:
    path = written / "kernels" / "native_layer_norm_0.py"
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(ArtifactError, match="no regular file"):
        load_manifest(written)


def test_a_whole_wrapper_with_the_artifact_in_place_computes_the_same(tmp_path: Path) -> None:
    script = Path(__file__).with_name("interpreted.py")
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "TRITON_INTERPRET": "1"}
    done = subprocess.run([sys.executable, str(script), str(tmp_path)], env=environment, capture_output=True, text=True,
                          timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    found = json.loads(done.stdout.strip().split("\n")[-1])
    assert found["replaced"] == 1 and found["callees"][0].startswith("kernelopt_")
    # rows of 32 float32 values of unit size
    assert found["error"] < 1e-5


USE = """
import os, sys, warnings, torch
from shop.kernelopt_kernels.transformer_block import optimize, status
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(32, 32, bias=False)
    def forward(self, x):
        return self.linear(x)
torch.manual_seed(0)
net, x = Net().eval(), torch.randn(4, 32)
if sys.argv[1] == "plain":
    with torch.no_grad():
        torch.compile(net)(x)
else:
    with torch.no_grad(), warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        expected = net(x)
        torch.testing.assert_close(optimize(net)(x), expected)
    print(status(net)["graphs"], sum("verified kernels" in str(w.message) for w in seen))
"""


@pytest.mark.slow
def test_a_warm_cache_never_skips_the_hook(written: Path, tmp_path: Path) -> None:
    """In processes of their own: plain torch.compile fills the caches, then the shipped package uses them. The graph is
    one vendor call: there is no C++ to compile."""
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "cache"),
                   "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    for name in (written.parents[1], written.parent):
        (name / "__init__.py").write_text("")

    def process(how: str) -> str:
        done = subprocess.run([sys.executable, "-c", USE, how], env=environment, capture_output=True, text=True,
                              timeout=240, check=False)
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    process("plain")
    assert any((tmp_path / "cache").rglob("fxgraph/**/*")), "the cache is cold: the test would prove nothing"
    assert process("artifact") == "1 1"
