"""What a worker can import of this package, and that it stands on its own."""

from __future__ import annotations

import ast
import sys

from kernelopt_bot import process
from kernelopt_bot.sandbox.staging import PACKAGE, staged_package


def test_holds_what_workers_need_and_nothing_else() -> None:
    folder = staged_package() / "kernelopt_bot"
    assert staged_package() == staged_package()
    assert (folder / "sandbox" / "worker" / "main.py").read_bytes() == (PACKAGE / "sandbox/worker/main.py").read_bytes()
    assert not (folder / "process.py").exists() and not (folder / "publish").exists()
    assert not (folder / "sandbox" / "client.py").exists()
    assert {path.suffix for path in folder.rglob("*") if path.is_file()} == {".py"}


def test_the_loop_imports_without_any_site_packages() -> None:
    code = f"import sys; sys.path.insert(0, {str(staged_package())!r}); import kernelopt_bot.sandbox.worker.main"
    assert process.run([sys.executable, "-I", "-S", "-c", code], timeout=20, environment={}).code == 0


def imported(text: str) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0
            names |= {node.module or "", *(f"{node.module}.{alias.name}" for alias in node.names)}
    return names


def test_the_import_closure_of_the_worker() -> None:
    folder = staged_package()
    waiting = list((folder / "kernelopt_bot" / "sandbox" / "worker").rglob("*.py"))
    seen = set()
    allowed = sys.stdlib_module_names | {"torch", "triton", "numpy"}
    while waiting:
        file = waiting.pop()
        if file in seen:
            continue
        seen.add(file)
        for name in imported(file.read_text()):
            top = name.partition(".")[0]
            if top != "kernelopt_bot":
                assert top in allowed, f"{file.name} imports {name}"
                continue
            path = folder / name.replace(".", "/")
            found = [p for p in (path.with_suffix(".py"), path / "__init__.py") if p.exists()]
            member = (folder / name.rpartition(".")[0].replace(".", "/")).with_suffix(".py")
            package = folder / name.rpartition(".")[0].replace(".", "/") / "__init__.py"
            assert found or member.exists() or package.exists(), f"{file.name} imports {name}, which is not staged"
            waiting += found
    assert len(seen) > 10
