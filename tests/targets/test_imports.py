"""The import closure, held against what Python itself imports."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from kernelopt_bot.targets.imports import Closure, ImportGraph
from kernelopt_bot.targets.source import FolderSource, Trees


def write(root: Path, files: Mapping[str, str]) -> ImportGraph:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return ImportGraph(Trees(FolderSource(root)))


def closure(root: Path, files: Mapping[str, str], path: str) -> Closure:
    return write(root, files).closure(path)


LAYOUTS: dict[str, tuple[dict[str, str], str, str]] = {
    "absolute and submodules": ({
        "net.py": "import pkg.a\nfrom pkg import b\nfrom pkg.c import thing\n", "pkg/__init__.py": "", "pkg/a.py": "",
        "pkg/b.py": "", "pkg/c.py": "from pkg.d import x as thing\n", "pkg/d.py": "x = 1", "pkg/unused.py": "",
    }, "net.py", "net"),
    "relative": ({
        "pkg/__init__.py": "from . import setup\n", "pkg/setup.py": "", "pkg/sub/__init__.py": "",
        "pkg/sub/net.py": "from . import side\nfrom .. import top\nfrom ..other.deep import y\n",
        "pkg/sub/side.py": "", "pkg/top.py": "", "pkg/other/__init__.py": "from .extra import *\n",
        "pkg/other/extra.py": "", "pkg/other/deep.py": "y = 2", "pkg/unused.py": "",
    }, "pkg/sub/net.py", "pkg.sub.net"),
    "namespace packages": ({
        "net.py": "import space.inner.a\nfrom space import b\n", "space/inner/a.py": "from .. import c\n",
        "space/b.py": "", "space/c.py": "", "space/unused.py": "",
    }, "net.py", "net"),
    "cycle": ({
        "a.py": "import b\n", "b.py": "import c\n", "c.py": "import a\n", "d.py": "",
    }, "a.py", "a"),
    "by name at run time": ({
        "net.py": "import importlib\nimportlib.import_module('pkg.a')\n__import__('b')\n"
                  "from importlib import import_module\nimport_module('.c', 'pkg')\n",
        "pkg/__init__.py": "", "pkg/a.py": "import importlib\nimportlib.import_module('.d', __package__)\n", "b.py": "",
        "pkg/c.py": "", "pkg/d.py": "", "c.py": "", "d.py": "",
    }, "net.py", "net"),
    "star with __all__": ({
        "net.py": "from pkg import *\n", "pkg/__init__.py": "__all__ = ['a', 'NAME']\nNAME = 1\n", "pkg/a.py": "",
        "pkg/b.py": "",
    }, "net.py", "net"),
    "try and fall back": ({
        "net.py": "try:\n    import missing_thing\nexcept ImportError:\n    import fallback\n", "fallback.py": "",
    }, "net.py", "net"),
    "inside a function": ({
        "net.py": "def f():\n    from pkg import late\nf()\n", "pkg/__init__.py": "", "pkg/late.py": "",
    }, "net.py", "net"),
    "module beats namespace": ({
        "net.py": "import models.net2\n", "models/readme.txt": "", "src/models/__init__.py": "",
        "src/models/net2.py": "",
    }, "net.py", "net"),
    "package beats module": ({
        "net.py": "import a\n", "a.py": "", "a/__init__.py": "import b\n", "b.py": "",
    }, "net.py", "net"),
    "src layout": ({
        "src/pkg/__init__.py": "", "src/pkg/net.py": "from pkg.layers import x\n", "src/pkg/layers.py": "x = 1",
        "layers.py": "",
    }, "src/pkg/net.py", "pkg.net"),
    "lib layout from outside": ({
        "bench/net.py": "import pkg.net\n", "lib/pkg/__init__.py": "", "lib/pkg/net.py": "",
    }, "bench/net.py", "bench.net"),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_the_closure_is_what_python_imports(tmp_path: Path, name: str) -> None:
    files, path, module = LAYOUTS[name]
    found = closure(tmp_path, files, path)
    program = (
        "import sys, os, json, importlib\n"
        f"sys.path[:0] = [{str(tmp_path)!r}] + [os.path.join({str(tmp_path)!r}, r) for r in {list(found.roots)!r}]\n"
        "importlib.import_module(sys.argv[1])\n"
        "files = {os.path.realpath(m.__file__) for m in sys.modules.values() if getattr(m, '__file__', None)}\n"
        "print(json.dumps(sorted(files)))\n")
    run = subprocess.run([sys.executable, "-I", "-B", "-c", program, module], capture_output=True, text=True,
                         timeout=60, check=True)
    root = tmp_path.resolve()
    python = {str(Path(f).relative_to(root)) for f in json.loads(run.stdout) if Path(f).is_relative_to(root)}
    assert set(found.files) == python
    assert found.broken == ()


def test_what_only_type_checkers_read_does_not_count(tmp_path: Path) -> None:
    found = closure(tmp_path, {
        "net.py": "import typing\nfrom typing import TYPE_CHECKING\n"
                  "if TYPE_CHECKING:\n    import a\nelse:\n    import b\n"
                  "if typing.TYPE_CHECKING:\n    import a\n", "a.py": "", "b.py": ""}, "net.py")
    assert found.files == ("b.py", "net.py")


def test_both_branches_count(tmp_path: Path) -> None:
    found = closure(tmp_path, {"net.py": "import sys\nif sys.flags.debug:\n    import a\nelse:\n    import b\n",
                               "a.py": "", "b.py": ""}, "net.py")
    assert found.files == ("a.py", "b.py", "net.py")


def test_a_file_that_does_not_parse_is_told_and_not_fatal(tmp_path: Path) -> None:
    found = closure(tmp_path, {"net.py": "import a\nimport b\n", "a.py": "def (\n", "b.py": "import c\n", "c.py": ""},
                    "net.py")
    assert found.files == ("a.py", "b.py", "c.py", "net.py")
    [(path, reason)] = found.broken
    assert path == "a.py"
    assert reason.startswith("line 1: ")


def test_the_roots_that_were_used(tmp_path: Path) -> None:
    files = {"src/pkg/__init__.py": "", "src/pkg/net.py": "import pkg.a\n", "src/pkg/a.py": "",
             "sub/project/lib/util.py": "", "sub/project/net.py": "import util\n", "top.py": "import top2\n",
             "top2.py": ""}
    graph = write(tmp_path, files)
    assert graph.closure("src/pkg/net.py").roots == ("src",)
    assert graph.closure("sub/project/net.py").roots == ("sub/project/lib",)
    assert graph.closure("top.py").roots == ()


def test_a_package_folder_is_no_root(tmp_path: Path) -> None:
    # pkg/torch.py must not stand for torch in pkg/net.py.
    found = closure(tmp_path, {"pkg/__init__.py": "", "pkg/net.py": "import torch\n", "pkg/torch.py": ""}, "pkg/net.py")
    assert found.files == ("pkg/__init__.py", "pkg/net.py")


def test_imports_beyond_the_root_lead_nowhere(tmp_path: Path) -> None:
    (tmp_path / "outside.py").write_text("")
    found = closure(tmp_path / "root", {"net.py": "from ... import outside\nfrom .... import x\nimport a\n",
                                        "a.py": "from .. import outside\n"}, "net.py")
    assert found.files == ("a.py", "net.py")


def test_a_link_out_of_the_root_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("import net\n")
    root = tmp_path / "root"
    graph = write(root, {"net.py": "import secret\n"})
    (root / "secret.py").symlink_to("../secret.py")
    assert graph.closure("net.py").files == ("net.py",)
