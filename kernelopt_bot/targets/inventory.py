"""Every model and kernel below a folder, by syntax: what could become a target. Nothing is executed."""

from __future__ import annotations

import ast
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kernelopt_bot.config import FILES, Config
from kernelopt_bot.targets.discover import ENTRY, Finder
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.symbols import External, dotted
from kernelopt_bot.targets.target import Target

MOST_FILES = 20_000
"""Python files that are looked at; a folder with more is no project."""
NOT_OURS = frozenset({"node_modules", "__pycache__", "site-packages", "build", "dist"})
_KERNELS: dict[str, Literal["triton", "helion"]] = {
    "triton.jit": "triton", "triton.runtime.jit.jit": "triton", "helion.kernel": "helion", "helion.jit": "helion"}
"""Decorators by their import names."""


@dataclass(frozen=True)
class Found:
    """A class or function at the top level of a file."""

    path: str
    """POSIX, relative to the root."""
    name: str
    line: int
    kind: Literal["module", "triton", "helion"]
    target: bool = False
    """It can be optimised as it is: by convention, or since the configuration lists it."""
    missing: str = ""
    """For a module that is no target yet: what keeps it from being one."""
    forward: tuple[str, ...] = ()
    """Parameters of `forward` without `self`, as written; those of base classes are not looked up."""
    init: tuple[str, ...] = ()
    """Parameters of `__init__` likewise."""


@dataclass(frozen=True)
class Inventory:
    found: tuple[Found, ...]
    broken: tuple[tuple[str, str], ...] = ()
    """(file, reason) of those that do not parse."""


def inventory(root: Path, config: Config) -> Inventory:
    """Sorted by path and line. Left out: hidden folders, virtual environments, what is installed, our artifacts."""
    finder = Finder(FolderSource(root))
    listed = {(t.path, t.entry) for t in config.targets}
    found: list[Found] = []
    for path in files(root, config.artifact.root):
        tree = finder.trees.get(path)
        if tree is None:
            continue
        models = set(finder.symbols.models(path))
        for node in tree.body:
            if isinstance(node, ast.ClassDef) and node.name in models:
                found.append(_module(finder, path, node, (path, node.name) in listed))
            elif isinstance(node, ast.FunctionDef) and (kind := _kernel(finder, path, node)):
                found.append(Found(path, node.name, node.lineno, kind))
    return Inventory(tuple(found), tuple(sorted(finder.trees.broken.items())))


def files(root: Path, artifacts: str) -> Iterator[str]:
    """The Python files of `inventory`; `artifacts` is the folder of ours."""
    count = 0
    for here, folders, names in os.walk(root):
        below = Path(here).relative_to(root)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and f not in NOT_OURS
                            and not (Path(here) / f / "pyvenv.cfg").exists() and (below / f).as_posix() != artifacts)
        for name in sorted(names):
            if name.endswith(".py") and name.isprintable():
                count += 1
                if count > MOST_FILES:
                    return
                yield (below / name).as_posix()


def _module(finder: Finder, path: str, node: ast.ClassDef, listed: bool) -> Found:
    # What a file's get_inputs returns is meant for its class Model; another class has to be listed.
    answer = finder.by_convention(path, node.name) if node.name == ENTRY else f"not listed in {FILES[0]}"
    ready = listed or isinstance(answer, Target)
    return Found(path, node.name, node.lineno, "module", ready, "" if ready else str(answer).partition(": ")[0],
                 _parameters(node, "forward"), _parameters(node, "__init__"))


def _parameters(node: ast.ClassDef, method: str) -> tuple[str, ...]:
    for item in node.body:
        if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef) and item.name == method:
            given = item.args
            plain = [*given.posonlyargs, *given.args]
            defaults = [None] * (len(plain) - len(given.defaults)) + list(given.defaults)
            pairs = [*zip(plain, defaults, strict=True), *zip(given.kwonlyargs, given.kw_defaults, strict=True)]
            return tuple(a.arg + (f"={ast.unparse(d)}" if d is not None else "") for a, d in pairs[1:])
    return ()


def _kernel(finder: Finder, path: str, node: ast.FunctionDef) -> Literal["triton", "helion"] | None:
    """By any of its decorators, with or without arguments: `@triton.autotune(...)` stands above `@triton.jit`."""
    for decorator in node.decorator_list:
        goal = finder.symbols.resolve(path, dotted(decorator.func if isinstance(decorator, ast.Call) else decorator))
        if isinstance(goal, External) and goal.name in _KERNELS:
            return _KERNELS[goal.name]
    return None
