"""What a file imports inside the repository, transitively, by syntax alone.

Errs on the side of too much (imports inside functions, branches and `try` count), so that a change is never missed;
only what stands below `if TYPE_CHECKING:` never runs and does not count.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

from kernelopt_bot.targets.source import Trees

LAYOUTS = ("src", "lib")
"""Folders that projects put on `sys.path` beside their root."""


@dataclass(frozen=True)
class Import:
    """One import statement. `module` is '' for `from . import x`; `level` counts the leading dots."""

    module: str
    level: int = 0
    names: tuple[tuple[str, str], ...] = ()
    """(name, local name) after `from ... import`; ('*', '*') for all."""
    alias: str = ""
    """Local name of `import module as alias`, or the first part of `import module`."""


@dataclass(frozen=True)
class Closure:
    files: tuple[str, ...]
    """POSIX, sorted, the file itself included."""
    broken: tuple[tuple[str, str], ...]
    """(file, reason) of those that do not parse: what they import is unknown."""
    roots: tuple[str, ...]
    """Folders other than the root itself that absolute imports were resolved from, `src` for example."""


@dataclass(frozen=True)
class _Found:
    files: tuple[str, ...]
    module: str
    """File of the module itself; '' for a namespace package."""
    folder: str | None
    """Folder of a package; None for a plain module."""
    root: str


def statements(tree: ast.Module) -> Iterator[Import]:
    """Every import of a module that can run, literal `import_module` and `__import__` calls among them."""
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.If) and _type_checking(node.test):
            pending.extend(reversed(node.orelse))
            continue
        if isinstance(node, ast.Import):
            for name in node.names:
                yield Import(name.name, alias=name.asname or name.name.partition(".")[0])
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", node.level, tuple((n.name, n.asname or n.name) for n in node.names))
        elif isinstance(node, ast.Call):
            yield from _literal_import(node)
        pending.extend(reversed(list(ast.iter_child_nodes(node))))


def _type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING")


def _literal_import(call: ast.Call) -> Iterator[Import]:
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    words = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
    if name not in ("import_module", "__import__") or not words or not isinstance(call.args[0], ast.Constant):
        return
    module = words[0].lstrip(".")
    level = len(words[0]) - len(module)
    if level and len(words) > 1:
        package = words[1].split(".")
        yield Import(".".join((*package[:len(package) - level + 1], module)))
    else:
        # A second argument that is no literal is `__package__` or `__name__` in practice.
        yield Import(module, level)


def parents(path: str) -> list[str]:
    """Folders of a path, innermost first, the root ('') last."""
    return ["" if str(p) == "." else str(p) for p in PurePosixPath(path).parents]


def join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


class ImportGraph:
    """Imports of a source, each file read once."""

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        self._source = trees.source
        self._direct: dict[str, tuple[frozenset[str], frozenset[str]]] = {}

    def closure(self, path: str, *more: str) -> Closure:
        """Everything in the source that importing `path` (and `more`) runs or reads. Cycles are fine."""
        seen: set[str] = set()
        roots: set[str] = set()
        pending = [path, *more]
        while pending:
            file = pending.pop()
            if file in seen:
                continue
            seen.add(file)
            files, used = self.direct(file)
            roots |= used
            pending.extend(files - seen)
        broken = tuple((f, self.trees.broken[f]) for f in sorted(seen) if f in self.trees.broken)
        return Closure(tuple(sorted(seen)), broken, tuple(sorted(roots - {""})))

    def direct(self, path: str) -> tuple[frozenset[str], frozenset[str]]:
        """Files that `path` imports itself, the initialisers of its own packages among them; and the roots used."""
        if path not in self._direct:
            files: set[str] = set(self._initialisers(path))
            roots: set[str] = set()
            tree = self.trees.get(path)
            for statement in statements(tree) if tree else ():
                for found in self._all(path, statement):
                    files.update(found.files)
                    if not statement.level and found.files:
                        roots.add(found.root)
            self._direct[path] = frozenset(files - {path}), frozenset(roots)
        return self._direct[path]

    def module_file(self, importer: str, module: str, level: int = 0) -> str:
        """File that a module's own code is in, as `importer` would import it; '' if it is not in the source."""
        for found in self._locate(importer, module, level):
            if found.module:
                return found.module
        return ""

    def _all(self, importer: str, statement: Import) -> Iterator[_Found]:
        bases = self._locate(importer, statement.module, statement.level)
        yield from bases
        for name, _ in statement.names:
            if name != "*":
                yield from self._children(bases, (name,))
            else:
                for base in bases:
                    yield from self._children([base], self._exported(base.module))

    def _children(self, bases: list[_Found], names: tuple[str, ...]) -> Iterator[_Found]:
        for base in bases:
            for name in names if base.folder is not None else ():
                found = self._walk(base.root, base.folder or "", [name])
                if found is not None:
                    yield found

    def _exported(self, module: str) -> tuple[str, ...]:
        tree = self.trees.get(module) if module else None
        for node in tree.body if tree else ():
            if isinstance(node, ast.Assign) and any(getattr(t, "id", "") == "__all__" for t in node.targets):
                items = getattr(node.value, "elts", [])
                return tuple(i.value for i in items if isinstance(i, ast.Constant) and isinstance(i.value, str))
        return ()

    def _locate(self, importer: str, module: str, level: int) -> list[_Found]:
        parts = module.split(".") if module else []
        if level:
            folders = parents(importer)
            if level > len(folders):
                return []
            found = self._walk(folders[level - 1], folders[level - 1], parts)
            return [found] if found else []
        namespaces = []
        for root in self._roots(importer):
            found = self._walk(root, root, parts) if parts else None
            if found is None:
                continue
            # As Python does it: the first regular module wins over every namespace package.
            if self._regular(root, parts[0]):
                return [found]
            namespaces.append(found)
        return namespaces

    def _regular(self, root: str, name: str) -> bool:
        folder = join(root, name)
        return self._source.is_file(f"{folder}/__init__.py") or self._source.is_file(f"{folder}.py")

    def _roots(self, importer: str) -> list[str]:
        """Where absolute imports may start: the root, src-like folders, and folders round the file but no package."""
        folders = [f for f in reversed(parents(importer)) if not self._source.is_file(join(f, "__init__.py"))]
        candidates = [join(f, layout) if layout else f for f in folders for layout in ("", *LAYOUTS)]
        return [c for c in dict.fromkeys(candidates) if not c or self._source.is_folder(c)]

    def _walk(self, root: str, folder: str, parts: list[str]) -> _Found | None:
        """From `folder` down the parts of a dotted name; as far as it goes, None if it goes nowhere."""
        start = join(folder, "__init__.py")
        files = [start] if folder != root and self._source.is_file(start) else []
        module = start if self._source.is_file(start) else ""
        for index, part in enumerate(parts):
            inner = join(folder, part)
            if self._source.is_file(f"{inner}/__init__.py"):
                folder, module = inner, f"{inner}/__init__.py"
                files.append(module)
            elif self._source.is_file(f"{inner}.py"):
                return _Found((*files, f"{inner}.py"), f"{inner}.py", None, root)
            elif self._source.is_folder(inner):
                folder, module = inner, ""
            else:
                return _Found(tuple(files), "", None, root) if index else None
        return _Found(tuple(files), module, folder, root)

    def _initialisers(self, path: str) -> Iterator[str]:
        for folder in parents(path):
            initialiser = join(folder, "__init__.py")
            if not self._source.is_file(initialiser):
                return
            yield initialiser
