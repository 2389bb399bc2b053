"""Targets by convention, configuration and by hand."""

from __future__ import annotations

import keyword
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.discover import Finder, by_hand, name_of, unique
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.target import Target
from tests.targets.conftest import MODEL

NET = "import torch.nn as nn\nclass Net(nn.Module): pass\ndef batch(): return []\n"

TWO = "import torch.nn as nn\nclass A(nn.Module): pass\nclass B(A): pass\ndef get_inputs(): pass\n"


def refused(call: Callable[[], object]) -> InputError:
    with pytest.raises(InputError) as caught:
        call()
    assert caught.value.exit_code == 2
    assert caught.value.where
    assert caught.value.fix
    return caught.value


def write(root: Path, **files: str) -> Path:
    for name, text in files.items():
        (root / name.replace("__", "/")).parent.mkdir(parents=True, exist_ok=True)
        (root / f"{name.replace('__', '/')}.py").write_text(text)
    return root


@pytest.mark.parametrize(("text", "reason"), [
    ("def (", "does not parse: line 1"),
    ("import torch.nn as nn\nclass Model(nn.Module): pass\n", "no example inputs: add `def get_inputs()"),
    ("def get_inputs(): pass\nclass Net: pass\n", "has get_inputs but no class Model"),
    ("def get_inputs(): pass\nclass Model: pass\n", "does not derive from torch.nn.Module"),
])
def test_why_a_file_is_no_target(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "a.py").write_text(text)
    answer = Finder(FolderSource(tmp_path)).by_convention("a.py")
    assert isinstance(answer, str)
    assert reason in answer


@pytest.mark.parametrize(("text", "init"), [
    (MODEL, ""), (MODEL + "def get_init_inputs(): return []\n", "get_init_inputs"),
    ("from somewhere import Base\nfrom data import get_inputs\nclass Model(Base): pass\n", ""),
    ("from torch import nn\nclass Net(nn.Module): pass\nModel = Net\ndef get_inputs(): pass\n", ""),
])
def test_targets_by_convention(tmp_path: Path, text: str, init: str) -> None:
    (tmp_path / "a.py").write_text(text)
    target = Finder(FolderSource(tmp_path)).by_convention("a.py")
    line = 1 + next((i for i, x in enumerate(text.splitlines()) if x.startswith("class Model")), 0)
    assert target == Target("a", "a.py", "Model", "get_inputs", init, closure=("a.py",), line=line)


@pytest.mark.parametrize(("path", "entry", "name"), [
    ("models/net.py", "Model", "models_net"), ("models/net.py", "Encoder", "models_net_Encoder"),
    ("1_Square.py", "Model", "target_1_Square"), ("pkg/__init__.py", "Model", "pkg"),
    ("import.py", "Model", "target_import"),
    ("a-b/c d.py", "Model", "a_b_c_d"), ("größe.py", "Größe", "gr_e_Gr__e"),
])
def test_names(path: str, entry: str, name: str) -> None:
    assert name_of(path, entry) == name


@given(st.text(min_size=1, max_size=150), st.text(min_size=1, max_size=150))
def test_names_are_always_importable(path: str, entry: str) -> None:
    name = name_of(path + ".py", entry)
    assert name.isidentifier() and name.isascii() and not keyword.iskeyword(name)
    assert len(name) <= 110


def test_equal_names_are_told_apart_and_stay() -> None:
    one, two = Target("a_b", "a/b.py", "Model", "f"), Target("a_b", "a_b.py", "Model", "f")
    names = [t.name for t in unique([two, one])]
    assert len(set(names)) == 2
    assert names == [t.name for t in unique([one, two, Target("c", "c.py", "Model", "f")])][:2]
    configured = Target("a_b", "z.py", "Model", "f", origin="config")
    assert [t.path for t in unique([one, configured]) if t.name == "a_b"] == ["z.py"]


class TestByHand:
    def test_by_convention(self, tmp_path: Path) -> None:
        write(tmp_path, net=MODEL)
        assert by_hand(str(tmp_path / "net.py")) == (tmp_path, Target(
            "net", "net.py", "Model", "get_inputs", origin="command", closure=("net.py",), line=5))

    def test_a_named_class(self, tmp_path: Path) -> None:
        write(tmp_path, net=TWO)
        _, target = by_hand(f"{tmp_path / 'net.py'}:B")
        assert (target.entry, target.name, target.origin) == ("B", "net_B", "command")

    @pytest.mark.parametrize(("text", "line"), [
        ("def make(): return nn.Sequential()\n", 2), ("make = nn.Sequential\n", 1)])
    def test_what_builds_a_model_may_be_named(self, tmp_path: Path, text: str, line: int) -> None:
        """A function, or a library's class by another name."""
        write(tmp_path, net="import torch.nn as nn\n" + text + "def get_inputs(): return []\n")
        _, target = by_hand(f"{tmp_path / 'net.py'}:make", root=tmp_path)
        assert (target.entry, target.inputs, target.line) == ("make", "get_inputs", line)

    def test_the_only_class_need_not_be_named(self, tmp_path: Path) -> None:
        write(tmp_path, net="import torch.nn as nn\nclass Only(nn.Module): pass\ndef get_inputs(): pass\n")
        assert by_hand(str(tmp_path / "net.py"))[1].entry == "Only"

    def test_one_of_many_must_be_named(self, tmp_path: Path) -> None:
        write(tmp_path, net=TWO)
        error = refused(lambda: by_hand(str(tmp_path / "net.py")))
        assert error.fix.endswith("net.py:B")
        assert "2 models" in error.what

    @pytest.mark.parametrize("mark", [".git", ".kernelopt.yml", "pyproject.toml"])
    def test_the_root_is_where_the_project_begins(self, tmp_path: Path, mark: str) -> None:
        (tmp_path / mark).touch()
        write(tmp_path, pkg__sub__net="from pkg.sub.side import x\n" + MODEL, pkg__sub__side="x = 1")
        root, target = by_hand(str(tmp_path / "pkg" / "sub" / "net.py"))
        assert root == tmp_path
        assert (target.path, target.name) == ("pkg/sub/net.py", "pkg_sub_net")
        assert target.closure == ("pkg/sub/net.py", "pkg/sub/side.py")

    def test_relative_to_the_current_folder(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, sub__net=MODEL)
        (tmp_path / "pyproject.toml").touch()
        monkeypatch.chdir(tmp_path / "sub")
        assert by_hand("net.py")[1].path == "sub/net.py"

    def test_configured_inputs_are_used(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        write(tmp_path, net=NET)
        (tmp_path / ".kernelopt.yml").write_text("targets: [{path: net.py, entry: Net, inputs: batch, name: mine}]\n")
        for spec in (f"{tmp_path}/net.py", f"{tmp_path}/net.py:Net"):
            target = by_hand(spec)[1]
            assert (target.name, target.inputs, target.origin) == ("mine", "batch", "config")
        monkeypatch.chdir(tmp_path)
        assert by_hand("mine") == by_hand("net.py")

    def test_no_file(self, tmp_path: Path) -> None:
        write(tmp_path, network=MODEL)
        error = refused(lambda: by_hand(f"{tmp_path}/netwrok.py:Model"))
        assert "there is no file" in error.what
        assert error.fix == f"did you mean {tmp_path}/network.py?"

    def test_no_class(self, tmp_path: Path) -> None:
        write(tmp_path, net=MODEL)
        error = refused(lambda: by_hand(f"{tmp_path}/net.py:Modle"))
        assert error.what == "net.py has no class Modle"
        assert error.fix == "did you mean Model?"

    def test_a_file_that_does_not_parse(self, tmp_path: Path) -> None:
        write(tmp_path, net="class Model(\n")
        error = refused(lambda: by_hand(f"{tmp_path}/net.py"))
        assert error.what.startswith("net.py does not parse: line 1: ")

    def test_no_example_inputs(self, tmp_path: Path) -> None:
        write(tmp_path, net="import torch.nn as nn\nclass Model(nn.Module): pass\n")
        error = refused(lambda: by_hand(f"{tmp_path}/net.py"))
        assert error.what == "Model cannot be optimised: no example inputs"
        assert "def get_inputs(): return [example tensors]" in error.fix
        assert "`targets:` in .kernelopt.yml" in error.fix

    def test_no_model(self, tmp_path: Path) -> None:
        write(tmp_path, net="x = 1\n")
        assert "no class that derives" in refused(lambda: by_hand(f"{tmp_path}/net.py")).what

    def test_not_a_model(self, tmp_path: Path) -> None:
        write(tmp_path, net="class Model: pass\ndef get_inputs(): pass\n")
        assert "does not derive" in refused(lambda: by_hand(f"{tmp_path}/net.py:Model")).what

    def test_a_folder(self, tmp_path: Path) -> None:
        assert "not a Python file" in refused(lambda: by_hand(str(tmp_path))).what

    def test_outside_the_root(self, tmp_path: Path) -> None:
        write(tmp_path, net=MODEL)
        (tmp_path / "sub").mkdir()
        assert "not below" in refused(lambda: by_hand(f"{tmp_path}/net.py", root=tmp_path / "sub")).what


class TestByConfig:
    def find(self, root: Path, entry: str) -> Target:
        (root / ".kernelopt.yml").write_text(f"version: 1\ntargets:\n  - {{path: net.py, {entry}}}\n")
        return by_hand(str(root / "net.py"))[1]

    def test_functions_elsewhere_belong_to_the_closure(self, tmp_path: Path) -> None:
        write(tmp_path, net=NET, data__make="import data.more\ndef batch(): pass\n", data__more="")
        target = self.find(tmp_path, "entry: Net, inputs: 'data/make.py:batch', init: batch")
        assert target.closure == ("data/make.py", "data/more.py", "net.py")
        assert (target.inputs, target.init) == ("data/make.py:batch", "batch")

    def test_the_init_function_of_the_convention_is_found(self, tmp_path: Path) -> None:
        write(tmp_path, net=NET + "def get_init_inputs(): return [1]\n")
        assert self.find(tmp_path, "entry: Net, inputs: batch").init == "get_init_inputs"

    @pytest.mark.parametrize(("entry", "what", "fix"), [
        ("entry: Nett, inputs: batch", "net.py has no class Nett", "did you mean Net?"),
        ("entry: Transformer, inputs: batch", "net.py has no class Transformer", "models in that file: Net"),
        ("entry: Net, inputs: bach", "net.py has no function bach", "did you mean batch?"),
        ("entry: Net, inputs: batch, init: zzz", "net.py has no function zzz", "define it at the top level of net.py"),
        ("entry: Net, inputs: 'd.py:batch'", "there is no file d.py", "correct the path, or commit the file"),
    ])
    def test_what_is_not_there(self, tmp_path: Path, entry: str, what: str, fix: str) -> None:
        write(tmp_path, net=NET)
        error = refused(lambda: self.find(tmp_path, entry))
        assert (error.what, error.where, error.fix) == (what, ".kernelopt.yml:3", fix)

    def test_not_a_model(self, tmp_path: Path) -> None:
        write(tmp_path, net="class Net: pass\ndef batch(): pass\n")
        error = refused(lambda: self.find(tmp_path, "entry: Net, inputs: batch"))
        assert error.what == "Net in net.py does not derive from torch.nn.Module"
