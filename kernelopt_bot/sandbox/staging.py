"""A copy of this package's source for the workers, so that nothing else of the bot's environment is on their path.

It lies outside every scratch folder: jailed code reads it and cannot change it.
"""

from __future__ import annotations

import atexit
import functools
import shutil
import tempfile
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

PARTS = ("__init__.py", "sandbox/__init__.py", "sandbox/worker", "contract", "compiler")
"""What workers may import, relative to the package."""


@functools.cache
def staged_package() -> Path:
    """The folder to put on the worker's `sys.path`: made once a process, removed at its end."""
    folder = Path(tempfile.mkdtemp(prefix="kernelopt-package-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    for part in PARTS:
        source = PACKAGE / part
        for file in sorted(source.rglob("*.py")) if source.is_dir() else [source]:
            target = folder / PACKAGE.name / file.relative_to(PACKAGE)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, target)
    for path in [folder, *folder.rglob("*")]:
        path.chmod(0o755 if path.is_dir() else 0o644)
    return folder
