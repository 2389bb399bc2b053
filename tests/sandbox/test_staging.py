"""What a worker can import of this package, and that it stands on its own."""

from __future__ import annotations

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
