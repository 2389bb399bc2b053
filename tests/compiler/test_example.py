"""The test that comes with an artifact, run by pytest in a small repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kernelopt_bot.compiler.artifact import Recipe, write_artifact
from kernelopt_bot.compiler.example import Example, name_of_test, text_of_test
from kernelopt_bot.compiler.program import Program
from kernelopt_bot.search.committed import Modified, read

MODEL = """from torch import nn
from shop.parts import scaled


class Encoder(nn.Module):
    def __init__(self, width, scale):
        super().__init__()
        self.norm, self.scale = nn.LayerNorm(width), scale

    def forward(self, x, *, shift):
        return {"y": scaled(self.norm(x), self.scale) + shift, "n": x.argmax(dim=-1)}
"""
FILES = {
    "src/shop/__init__.py": "", "src/shop/net.py": MODEL,
    "src/shop/parts.py": "def scaled(x, scale):\n    return (x * scale).relu()\n",
    "examples/data.py": "import torch\n\n\ndef batch():\n"
                        "    return {'x': torch.randn(4, 32), 'shift': torch.ones(32)}\n\n\n"
                        "def sizes():\n    return [32, 2.0]\n"}
EXAMPLE = Example("src/shop/net.py", "examples/data.py:batch", "examples/data.py:sizes", ("src",))
GPU = {"torch": "2.11.0", "triton": "3.6.0", "device": "NVIDIA H200", "capability": [9, 0]}


def write(folder: Path, environment: dict[str, object]) -> Path:
    program = Program(folder.name, "cpu", (), "2.11.0", "3.6.0", "cpu", {})
    return write_artifact(folder, class_name="Encoder", program=program, kernels=[], recipe=Recipe.of({}),
                          environment=environment, example=EXAMPLE)


def test_in_a_repository_of_a_user(tmp_path: Path) -> None:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    kernels = tmp_path / "src/shop/kernels"
    versions = {"torch": "2.11.0", "triton": "3.6.0", "device": "cpu"}
    write(kernels / "net", versions)
    write(kernels / "of_gpu", GPU)
    wrong = write(kernels / "wrong", versions)
    text = (wrong / "__init__.py").read_text()
    (wrong / "__init__.py").write_text(text.replace(
        "return _artifact().optimize(model, on_miss)",
        "import os\n    if not os.environ.get('KERNELOPT_DISABLE'):\n"
        "        model.norm.register_forward_hook(lambda m, i, o: o * 1.01)\n"
        "    return _artifact().optimize(model, on_miss)"))
    environment = {**{k: v for k, v in os.environ.items() if not k.startswith(("PYTEST", "KERNELOPT"))},
                   "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run([sys.executable, "-m", "pytest", "-q", "-rsf", "-p", "no:cacheprovider", "src/shop/kernels"],
                          cwd=tmp_path, capture_output=True, text=True, timeout=240, env=environment)
    assert "1 failed, 4 passed, 1 skipped" in done.stdout, done.stdout[-4000:] + done.stderr[-1000:]
    assert "FAILED src/shop/kernels/wrong/test_kernelopt_wrong.py::test_same_outputs_as_eager" in done.stdout
    assert "the kernels need a GPU" in done.stdout


def test_an_edited_test_or_example_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "net", GPU)
    (tmp_path / "scratch").mkdir()
    assert read(folder, tmp_path / "scratch").example == EXAMPLE
    path = folder / name_of_test("net")
    kept = path.read_text()
    path.write_text(kept.replace("import copy", "import os"))
    with pytest.raises(Modified, match=r"test_kernelopt_net\.py: not what this release writes"):
        read(folder, tmp_path / "scratch")
    path.write_text(kept)
    shutil.copy(path, folder / name_of_test("other"))
    with pytest.raises(Modified, match="a file that no run"):
        read(folder, tmp_path / "scratch")
    (folder / name_of_test("other")).unlink()
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace("src/shop/net.py", "../../net.py"))
    with pytest.raises(Modified, match="leads out of the repository"):
        read(folder, tmp_path / "scratch")


@pytest.mark.parametrize("change", [
    {"path": 3}, {"path": "/etc/x.py"}, {"inputs": ""}, {"inputs": "a.py:f()"}, {"inputs": "../a.py:f"},
    {"init": "f\nimport os"}, {"roots": ["../up"]}, {"roots": "src"}, {"roots": ["a"] * 51}, {"more": 1},
])
def test_an_example_of_unknown_origin(change: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="example"):
        Example.from_json({**EXAMPLE.to_json(), **change})


def test_a_path_becomes_a_literal() -> None:
    text = text_of_test(Example('a"b/\'x.py', "f"), "Net", {})
    compile(text, "test", "exec")
    assert "a\"b/\\'x.py" in text
