"""Write requirements.lock and requirements-dev.lock from the versions installed in this environment.

Run by `make lock` in an environment where pyproject.toml's dependencies and tools/requirements-dev.in are installed.
Versions only, no hashes: torch's wheel differs between the CPU and CUDA builds of one version.
"""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
NAME = re.compile(r"^[A-Za-z0-9._-]+")


def canonical(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def closure(requirements: list[str]) -> dict[str, str]:
    """Canonical name -> pinned version of everything that the requirements pull in here."""
    from packaging.requirements import Requirement

    found: dict[str, str] = {}
    todo = [(Requirement(r), frozenset[str]()) for r in requirements]
    while todo:
        requirement, extras = todo.pop()
        if requirement.marker and not any(requirement.marker.evaluate({"extra": e}) for e in (extras or {""})):
            continue
        name = canonical(requirement.name)
        if name in found and not requirement.extras:
            continue
        try:
            distribution = metadata.distribution(name)
        except metadata.PackageNotFoundError:
            continue
        found[name] = distribution.version.split("+")[0]
        todo += [(Requirement(r), frozenset(requirement.extras)) for r in distribution.requires or []]
    return found


def write(path: Path, pins: dict[str, str], head: str) -> None:
    lines = [f"{name}=={version}" for name, version in sorted(pins.items())]
    path.write_text(f"# {head}\n# Made by `make lock`; do not edit.\n" + "\n".join(lines) + "\n")


if __name__ == "__main__":
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    runtime = closure(project["dependencies"])
    dev_in = [line for line in (ROOT / "tools/requirements-dev.in").read_text().splitlines() if NAME.match(line)]
    development = {k: v for k, v in closure(dev_in).items() if k not in runtime}
    write(ROOT / "requirements.lock", runtime, "What the bot runs with (torch in its CPU build where there is no GPU).")
    write(ROOT / "requirements-dev.lock", development, "What its tests and linters need besides requirements.lock.")
