"""Which classes are models, by syntax; held against Python where torch is at hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from kernelopt_bot.targets.imports import ImportGraph
from kernelopt_bot.targets.source import FolderSource, Trees
from kernelopt_bot.targets.symbols import Symbols


def symbols(root: Path, **files: str) -> Symbols:
    for name, text in files.items():
        path = root / f"{name.replace('__', '/', 1) if not name.startswith('__') else name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Symbols(ImportGraph(Trees(FolderSource(root))))


@pytest.mark.parametrize("text", [
    "import torch\nclass M(torch.nn.Module): pass", "import torch.nn as nn\nclass M(nn.Module): pass",
    "from torch import nn\nclass M(nn.Module): pass", "from torch.nn import Module as Base\nclass M(Base): pass",
    "from torch.nn.modules.module import Module\nclass M(Module): pass",
    "import torch as t\nclass M(t.nn.Module): pass",
    "from torch.nn import *\nclass M(Module): pass", "import torch.nn\nclass M(torch.nn.Sequential): pass",
    "from torch import nn\nclass M(nn.Linear): pass", "from torch import nn as n\nB = n.Module\nclass M(B): pass",
    "from torch import nn\nfrom typing import Generic, TypeVar\nT = TypeVar('T')\nclass M(nn.Module, Generic[T]): pass",
    "from torch import nn\nclass A(nn.Module): pass\nclass B(A): pass\nclass M(B): pass",
    "try:\n    from torch import nn\nexcept ImportError:\n    raise\nif True:\n    class M(nn.Module): pass",
    "from torch import nn\nclass M(nn.modules.conv.Conv2d): pass",
    "from lightning import LightningModule\nclass M(LightningModule): pass",
])
def test_models(tmp_path: Path, text: str) -> None:
    found = symbols(tmp_path, net=text)
    assert "M" in found.models("net.py")


@pytest.mark.parametrize("text", [
    "class M: pass", "class M(object): pass", "from torch import nn\nclass M(nn.Parameter): pass",
    "import abc\nclass M(abc.ABC): pass", "class M(M): pass", "class A(M): pass\nclass M(A): pass",
    "from torch import nn\nM = nn.Module", "from torch import nn\ndef f():\n    class M(nn.Module): pass",
    "from torch import nn\nclass M(nn.init.Foo): pass", "class M(Exception): pass", "class M(f()): pass",
])
def test_no_models(tmp_path: Path, text: str) -> None:
    assert "M" not in symbols(tmp_path, net=text).models("net.py")


def test_a_base_that_is_not_at_hand_leaves_it_open(tmp_path: Path) -> None:
    found = symbols(tmp_path, net="from somewhere import Base\nclass M(Base): pass\nclass N: pass")
    assert found.is_module(found.resolve("net.py", ("M",))) is None
    assert found.is_module(found.resolve("net.py", ("N",))) is False


def test_chains_through_other_files(tmp_path: Path) -> None:
    found = symbols(
        tmp_path, base="import torch.nn as nn\nclass Base(nn.Module): pass\n",
        pkg____init__="from .layers import Layer as Exported\nfrom . import more\n",
        pkg__layers="from base import Base\nclass Layer(Base): pass\n", pkg__more="from .layers import *\n",
        net="import pkg\nimport pkg.layers as l\nfrom pkg import Exported, more\nfrom pkg.more import Layer\n"
            "class A(pkg.Exported): pass\nclass B(l.Layer): pass\nclass C(Exported): pass\nclass D(more.Layer): pass\n"
            "class E(Layer): pass\nclass F(pkg.layers.Layer): pass\nclass G(pkg.nothing): pass\n")
    assert (tmp_path / "pkg" / "__init__.py").exists()
    assert found.models("net.py") == ("A", "B", "C", "D", "E", "F")


def test_circular_aliases_and_imports_end(tmp_path: Path) -> None:
    found = symbols(tmp_path, a="from b import X\nclass M(X): pass\nP = Q\nQ = P\nclass N(P): pass\n",
                    b="from a import X\n")
    assert found.models("a.py") == ()


def test_names(tmp_path: Path) -> None:
    found = symbols(tmp_path, net="import os\nfrom a import b as c\nX: int = 1\nY = 2\ndef f(): pass\nclass Z: pass\n"
                                  "if X:\n    g = f\ntry:\n    pass\nexcept E:\n    h = 1\n")
    assert found.bound("net.py") == ("X", "Y", "Z", "c", "f", "g", "h", "os")
    assert found.classes("net.py") == ("Z",)
    assert found.has("net.py", "f")
    assert not found.has("net.py", "nothing")


def test_a_star_import_may_bring_any_name(tmp_path: Path) -> None:
    found = symbols(tmp_path, net="from elsewhere import *\n")
    assert found.has("net.py", "get_inputs")
    assert not found.binds("net.py", "get_inputs")


def test_a_long_chain_of_names_ends(tmp_path: Path) -> None:
    chain = "from torch import nn\nN0 = nn.Module\n" + "".join(f"N{i + 1} = N{i}\n" for i in range(3000))
    found = symbols(tmp_path, net=chain + "class M(N3000): pass\n")
    assert found.models("net.py") in ((), ("M",))
