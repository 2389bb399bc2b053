"""Models and kernels of a folder, by syntax."""

from __future__ import annotations

from pathlib import Path

from kernelopt_bot.config import Config
from kernelopt_bot.targets.inventory import Found, inventory

NET = """import helion
import triton as t
from torch import nn
from base import Base

raise SystemExit("nothing is executed")


class Encoder(Base):
    def __init__(self, width, *, depth=2):
        pass

    def forward(self, x, mask=None):
        return x


class Model(nn.Module):
    def forward(self, x):
        return x


class Plain:
    pass


def get_inputs():
    return []


@t.autotune(configs=[], key=[])
@t.jit
def add(x):
    pass


@helion.kernel()
def mul(x):
    return x


def plain(x):
    return x
"""


def test_every_model_and_kernel(tmp_path: Path) -> None:
    files = {"net.py": NET, "base.py": "import torch\n\n\nclass Base(torch.nn.Module):\n    pass\n",
             "bad.py": "def (\n", ".venv/lib/x.py": NET,
             "env/pyvenv.cfg": "", "env/x.py": NET, "kernelopt_kernels/net/x.py": NET,
             "node_modules/x.py": NET}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    seen = inventory(tmp_path, Config())
    assert seen.found == (
        Found("base.py", "Base", 4, "module", False, "not listed in .kernelopt.yml"),
        Found("net.py", "Encoder", 9, "module", False, "not listed in .kernelopt.yml", ("x", "mask=None"),
              ("width", "depth=2")),
        Found("net.py", "Model", 17, "module", True, "", ("x",)),
        Found("net.py", "add", 32, "triton"), Found("net.py", "mul", 37, "helion"))
    assert [path for path, _ in seen.broken] == ["bad.py"]
    listed = Config.model_validate({"targets": [{"path": "net.py", "entry": "Encoder"}]})
    assert next(f for f in inventory(tmp_path, listed).found if f.name == "Encoder").target
