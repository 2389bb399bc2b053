"""Targets by convention, by configuration and by hand. Found by syntax; nothing is executed.

The convention is KernelBench's: a class `Model`, a function `get_inputs` and, where the constructor takes arguments, a
function `get_init_inputs`, all in one file.
"""

from __future__ import annotations

import ast
import difflib
import hashlib
import keyword
import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from kernelopt_bot.config import FILES, TargetConfig, Traced, load_traced, nearest
from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.imports import Closure, ImportGraph
from kernelopt_bot.targets.source import FolderSource, Source, Trees
from kernelopt_bot.targets.symbols import Symbols
from kernelopt_bot.targets.target import Target

ENTRY, INPUTS, INIT = "Model", "get_inputs", "get_init_inputs"
"""Names of the convention."""

HOW_TO_ADD = (
    f"add `def {INPUTS}(): return [example tensors]` to the file (and `def {INIT}()` if the constructor takes "
    f"arguments), or list the class under `targets:` in {FILES[0]}")


class Finder:
    """Finds the targets of one source."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.trees = Trees(source)
        self.graph = ImportGraph(self.trees)
        self.symbols = Symbols(self.graph)

    def by_convention(self, path: str, entry: str = ENTRY) -> Target | str:
        """The target in a file, or why there is none."""
        if not path.isprintable():
            return "its name has characters that a report or a log would not show as they are: rename it"
        if self.trees.get(path) is None:
            return f"does not parse: {self.trees.broken[path]}"
        if not self.symbols.binds(path, INPUTS):
            return f"no example inputs: {HOW_TO_ADD}"
        if not self.symbols.has(path, entry):
            return (f"has {INPUTS} but no class {entry}: name the class under `targets:` in {FILES[0]}")
        if self.symbols.is_module(self.symbols.resolve(path, (entry,))) is False:
            return f"the class {entry} does not derive from torch.nn.Module"
        init = INIT if self.symbols.binds(path, INIT) else ""
        return self._complete(Target(name_of(path, entry), path, entry, INPUTS, init))

    def by_config(self, wanted: TargetConfig, where: str) -> Target:
        """The configured target. Raises InputError: no such file, class or function (with the nearest there is)."""
        self.must_parse(wanted.path, where)
        self.must_bind(wanted.path, wanted.entry, "class", where)
        if self.symbols.is_module(self.symbols.resolve(wanted.path, (wanted.entry,))) is False:
            raise InputError(f"{wanted.entry} in {wanted.path} does not derive from torch.nn.Module", where=where,
                             fix="name the class of the model")
        init = wanted.init or (INIT if self.symbols.binds(wanted.path, INIT) else "")
        for function in filter(None, (wanted.inputs, init)):
            file, _, name = function.rpartition(":")
            self.must_parse(file or wanted.path, where)
            self.must_bind(file or wanted.path, name, "function", where)
        target = Target(wanted.name or name_of(wanted.path, wanted.entry), wanted.path, wanted.entry, wanted.inputs,
                        init, wanted.mode, "config", wire=wanted.wire)
        return self._complete(target)

    def _complete(self, target: Target) -> Target:
        closure = self.closure_of(target)
        return replace(target, closure=closure.files, roots=closure.roots, line=self._line(target))

    def _line(self, target: Target) -> int:
        tree = self.trees.get(target.path)
        kinds = (ast.ClassDef, ast.FunctionDef)
        classes = [n for n in tree.body if isinstance(n, kinds)] if tree is not None else []
        # Of two, the later one is what the name means.
        return next((n.lineno for n in reversed(classes) if n.name == target.entry), 1)

    def closure_of(self, target: Target) -> Closure:
        """Of the target's file and of those of its functions, or of its test."""
        return self.graph.closure(target.path, *(f for f in target.elsewhere if self.source.is_file(f)))

    def must_parse(self, path: str, where: str) -> None:
        if self.trees.get(path) is not None:
            return
        if not self.source.is_file(path):
            raise InputError(f"there is no file {path}", where=where, fix="correct the path, or commit the file")
        raise Broken(f"{path} does not parse: {self.trees.broken[path]}", where=path,
                     fix="correct the file; every other target is looked at all the same")

    def must_bind(self, path: str, name: str, kind: str, where: str) -> None:
        if self.symbols.has(path, name):
            return
        near = nearest(name, list(self.symbols.bound(path)))
        known = self.symbols.models(path) if kind == "class" else ()
        fix = (f"did you mean {near}?" if near else f"models in that file: {', '.join(known)}" if known
               else f"define it at the top level of {path}")
        raise InputError(f"{path} has no {kind} {name}", where=where, fix=fix)


class Broken(InputError):
    """A file does not parse. Fatal for its own target only."""


def name_of(path: str, entry: str) -> str:
    """Name of a target without one: path and class, made importable. It depends on nothing else, so it stays."""
    stem = path.removesuffix(".py").removesuffix("/__init__")
    parts = re.findall(r"[A-Za-z0-9]+", stem) + ([] if entry == ENTRY else [entry])
    name = re.sub(r"[^A-Za-z0-9_]", "_", "_".join(parts))[-100:].lstrip("_")
    return f"target_{name}" if not name[:1].isalpha() or keyword.iskeyword(name) else name


def unique(targets: Iterable[Target]) -> tuple[Target, ...]:
    """Sorted by name; a name that two have gets the beginning of a hash of path and class."""
    found = sorted(targets, key=lambda t: (t.name, t.origin != "config", t.path, t.entry))
    names = [t.name for t in found]
    return tuple(
        t if names.count(t.name) == 1 or (t.origin == "config" and names.index(t.name) == i)
        else replace(t, name=f"{t.name}_{hashlib.sha256(f'{t.path}:{t.entry}'.encode()).hexdigest()[:6]}")
        for i, t in enumerate(found))


def root_of(path: Path) -> Path:
    """The folder that imports start from: the nearest one above with a repository, a configuration or a project file;
    else the file's own."""
    marks = (".git", *FILES, "pyproject.toml", "setup.py")
    for folder in path.resolve().parents:
        if any((folder / mark).exists() for mark in marks):
            return folder
    return path.resolve().parent


def by_hand(spec: str, *, root: Path | None = None) -> tuple[Path, Target]:
    """Root folder and target of `path.py`, `path.py:CLASS`, or the name of a configured target; git is not needed.

    Raises InputError: no such file or class (with the nearest there is), a file that does not parse, a class that is no
    model, no example inputs.
    """
    name, colon, entry = spec.rpartition(":")
    file, entry = (Path(name), entry) if colon and not Path(spec).exists() else (Path(spec), "")
    if not file.exists():
        configured = _by_name(spec, root or root_of(Path.cwd() / "_"))
        if configured:
            return configured
        raise _no_file(file)
    if file.is_dir() or file.suffix != ".py":
        raise InputError(f"{file} is not a Python file", where=spec, fix="give PATH.py or PATH.py:CLASS")
    top = (root or root_of(file)).resolve()
    if not file.resolve().is_relative_to(top):
        raise InputError(f"{file} is not below the root", where=str(top), fix="give another root, or none")
    finder = Finder(FolderSource(top))
    path = file.resolve().relative_to(top).as_posix()
    finder.must_parse(path, spec)
    traced = load_traced(top)
    listed = [(i, t) for i, t in enumerate(traced.config.targets) if t.path == path and entry in ("", t.entry)]
    if len(listed) == 1:
        return top, finder.by_config(listed[0][1], place(traced, listed[0][0]))
    entry = entry or _only(finder, path, spec)
    finder.must_bind(path, entry, "class", spec)
    found = finder.by_convention(path, entry)
    if isinstance(found, str):
        raise InputError(f"{entry} cannot be optimised: {found.partition(': ')[0]}", where=spec,
                         fix=found.partition(": ")[2] or "name the class of a model")
    return top, replace(found, origin="command")


def by_name(name: str, root: Path) -> Target:
    """The target of that name below `root`: a configured one, else the class and file that the name comes from.

    Raises InputError: there is none, or its file does not do as a target."""
    root = root.resolve()
    configured = _by_name(name, root)
    if configured:
        return configured[1]
    for file in sorted(root.rglob("*.py")):
        path = file.relative_to(root).as_posix()
        short = name_of(path, ENTRY)
        if "/." in f"/{path}" or not f"{name}_".startswith(f"{short}_"):
            continue
        entries = [ENTRY] if name == short else Finder(FolderSource(root)).symbols.models(path)
        for entry in entries:
            if name_of(path, entry) == name:
                return by_hand(f"{file}:{entry}", root=root)[1]
    raise InputError(f"there is no target {name}", where=str(root), fix="name its file with --target PATH[:CLASS]")


def place(traced: Traced, index: int) -> str:
    """Where a configured target stands: `.kernelopt.yml:12`."""
    return traced.origin(("targets", index))


def _by_name(name: str, root: Path) -> tuple[Path, Target] | None:
    traced = load_traced(root)
    finder = Finder(FolderSource(root))
    for index, wanted in enumerate(traced.config.targets):
        if name == (wanted.name or name_of(wanted.path, wanted.entry)):
            return root, finder.by_config(wanted, place(traced, index))
    return None


def _no_file(file: Path) -> InputError:
    there = sorted(p.name for p in file.parent.glob("*.py")) if file.parent.is_dir() else []
    near = difflib.get_close_matches(file.name, there, n=1)
    return InputError(f"there is no file {file}", where=str(file.parent),
                      fix=f"did you mean {file.parent / near[0]}?" if near else "give PATH.py or PATH.py:CLASS")


def _only(finder: Finder, path: str, spec: str) -> str:
    """The class that is meant when none is named: `Model`, else the only model there is."""
    models = finder.symbols.models(path)
    if finder.symbols.has(path, ENTRY) and (finder.symbols.binds(path, ENTRY) or not models):
        return ENTRY
    if len(models) == 1:
        return models[0]
    if not models:
        raise InputError("the file has no class that derives from torch.nn.Module", where=path, fix="name another file")
    raise InputError(f"the file has {len(models)} models and none is called {ENTRY}", where=path,
                     fix="name one: " + ", ".join(f"{spec}:{m}" for m in models))
