"""The test that an artifact brings: the model with its kernels against eager, on the example inputs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import PurePosixPath
from typing import Any

from kernelopt_bot import __version__
from kernelopt_bot.report.templates import environment as templates

LONGEST = 4096
MOST_ROOTS = 50


@dataclass(frozen=True)
class Example:
    """Where the model and its inputs are, as in `targets.Target`. Paths are POSIX, relative to the repository root."""

    path: str
    inputs: str
    init: str = ""
    """'' for a constructor without arguments."""
    roots: tuple[str, ...] = ()

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "roots": list(self.roots)}

    @classmethod
    def from_json(cls, data: object) -> Example:
        """From a manifest that nobody vouches for. Raises ValueError."""
        if not isinstance(data, dict) or set(data) != {"path", "inputs", "init", "roots"}:
            raise ValueError("example has other keys")
        roots = data["roots"]
        if not isinstance(roots, list) or len(roots) > MOST_ROOTS:
            raise ValueError("example.roots is no list of folders")
        for value in (data["path"], data["inputs"], data["init"], *roots):
            if not isinstance(value, str) or len(value) > LONGEST or not value.isprintable():
                raise ValueError("example holds what is no plain text")
        functions = [f.rpartition(":") for f in (data["inputs"], data["init"]) if f]
        if not data["inputs"] or not all(name.isidentifier() for _, _, name in functions):
            raise ValueError("example names no function")
        files = [data["path"], *(file for file, _, _ in functions if file)]
        if not all(file.endswith(".py") for file in files) or not all(_confined(p) for p in (*files, *roots)):
            raise ValueError("example leads out of the repository")
        return cls(data["path"], data["inputs"], data["init"], tuple(roots))


def name_of_test(target: str) -> str:
    """Name of the file in the artifact."""
    return f"test_kernelopt_{target}.py"


def text_of_test(example: Example, class_name: str, environment: Mapping[str, Any]) -> str:
    """Its text. `environment` is the manifest's: kernels and options that were verified on a GPU need one."""
    template = templates("artifact").get_template("test_kernelopt.py.j2")
    # ascii(): a path is data, and becomes a literal.
    return template.render(
        release=__version__, class_name=class_name, path=ascii(example.path), entry=ascii(class_name),
        inputs=ascii(example.inputs), init=ascii(example.init), roots=ascii(example.roots),
        needs_gpu="capability" in environment).rstrip() + "\n"


def _confined(path: str) -> bool:
    parts = PurePosixPath(path).parts
    return bool(parts) and not path.startswith("/") and ".." not in parts and "\\" not in path
