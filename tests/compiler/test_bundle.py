from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

from kernelopt_bot.compiler import _runtime, bundle


@pytest.fixture
def shipped(tmp_path: Path) -> ModuleType:
    path = tmp_path / "shipped_runtime.py"
    path.write_text(bundle.runtime_text())
    spec = importlib.util.spec_from_file_location("shipped_runtime", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["shipped_runtime"] = module
    spec.loader.exec_module(module)
    return module


def test_one_file_does_what_the_package_does(shipped: ModuleType, inference: str) -> None:
    from tests.compiler import candidates

    run = candidates.layer_norm_run(inference)
    mine = _runtime.substitute(inference, {run.hash: run})
    theirs = shipped.substitute(inference, {run.hash: shipped.Run(run.hash, 1, run.source, run.plan)})
    assert theirs.text == mine.text != inference
    assert set(_runtime.__all__) <= set(vars(shipped))


def test_only_the_standard_library_at_the_top() -> None:
    tree = ast.parse(bundle.runtime_text())
    imported = {a.name.split(".")[0] for n in tree.body if isinstance(n, ast.Import) for a in n.names}
    imported |= {(n.module or "").split(".")[0] for n in tree.body if isinstance(n, ast.ImportFrom)}
    assert imported <= sys.stdlib_module_names
    anywhere = {(n.module or "").split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.ImportFrom)}
    anywhere |= {a.name.split(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names}
    assert anywhere <= sys.stdlib_module_names | {"torch"}


def test_every_module_is_in_it() -> None:
    folder = Path(bundle.__file__).parent / "shipped"
    assert {p.stem for p in folder.glob("*.py")} - {"__init__"} == set(bundle.MODULES)
    for name in bundle.MODULES:
        tree = ast.parse((folder / f"{name}.py").read_text())
        defined = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
        assert all(bundle.runtime_text().count(f" {d}(") >= 1 or f"class {d}:" in bundle.runtime_text()
                   for d in defined)


def test_no_two_modules_define_the_same_name() -> None:
    tree = ast.parse(bundle.runtime_text())
    names = [n.name for n in tree.body if isinstance(n, (ast.FunctionDef, ast.ClassDef))]
    names += [t.id for n in tree.body if isinstance(n, ast.Assign) for t in n.targets if isinstance(t, ast.Name)]
    assert len(names) == len(set(names))
