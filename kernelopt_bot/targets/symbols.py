"""Names of modules, and which classes derive from `torch.nn.Module`, by syntax alone."""

from __future__ import annotations

import ast
import builtins
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field

from kernelopt_bot.targets.imports import Import, ImportGraph

MODULE_CLASSES = frozenset({
    "torch.nn.Module", "torch.nn.modules.Module", "torch.nn.modules.module.Module", "torch.jit.ScriptModule",
    "lightning.LightningModule", "lightning.pytorch.LightningModule", "pytorch_lightning.LightningModule",
    "transformers.PreTrainedModel", "transformers.modeling_utils.PreTrainedModel",
    "diffusers.ModelMixin", "diffusers.models.modeling_utils.ModelMixin",
})
"""Classes outside the repository that are known to derive from `torch.nn.Module`, by their import names."""

NOT_MODULES = frozenset({"Parameter", "Buffer", "UninitializedParameter", "UninitializedBuffer"})
"""The classes of `torch.nn` that are no modules."""


DEPTH = 50
"""So many steps from name to name are followed; no real program needs more."""


@dataclass(frozen=True)
class LocalClass:
    """A class that stands in the source."""

    path: str
    node: ast.ClassDef


@dataclass(frozen=True)
class External:
    """A name that leads out of the source, spelled in full: `torch.nn.Module`."""

    name: str


@dataclass
class _Names:
    classes: dict[str, ast.ClassDef] = field(default_factory=dict)
    functions: set[str] = field(default_factory=set)
    imports: dict[str, tuple[Import, str]] = field(default_factory=dict)
    """Local name -> (statement, name after `from ... import`; '' for `import module`)."""
    aliases: dict[str, ast.expr] = field(default_factory=dict)
    stars: list[Import] = field(default_factory=list)


class Symbols:
    def __init__(self, graph: ImportGraph) -> None:
        self.graph = graph
        self._names: dict[str, _Names] = {}

    def classes(self, path: str) -> tuple[str, ...]:
        """Classes written at the top level of a file, in order."""
        return tuple(self._of(path).classes)

    def models(self, path: str) -> tuple[str, ...]:
        """Those of `classes` that are known to derive from `torch.nn.Module`."""
        return tuple(n for n, node in self._of(path).classes.items() if self.is_module(LocalClass(path, node)))

    def bound(self, path: str) -> tuple[str, ...]:
        """Every name that the top level of a file binds, sorted; what star imports bring is not among them."""
        names = self._of(path)
        return tuple(sorted({*names.classes, *names.functions, *names.imports, *names.aliases}))

    def has(self, path: str, name: str) -> bool:
        """Whether the name is bound there, or may come from a star import."""
        return self.binds(path, name) or bool(self._of(path).stars)

    def binds(self, path: str, name: str) -> bool:
        """Whether the top level of the file binds the name itself."""
        return name in self.bound(path)

    def is_module(self, found: LocalClass | External | None, seen: frozenset[int] = frozenset()) -> bool | None:
        """Whether it derives from `torch.nn.Module`; None if that depends on code that is not at hand."""
        if found is None:
            return None
        if isinstance(found, External):
            return _external_module(found.name)
        if id(found.node) in seen or len(seen) > DEPTH:
            return False
        answers = [self.is_module(self._base(found.path, base), seen | {id(found.node)}) for base in found.node.bases]
        if True in answers:
            return True
        return None if None in answers else False

    def _base(self, path: str, base: ast.expr) -> LocalClass | External | None:
        # class Encoder(Base[int]): the subscript only names the type parameters.
        parts = dotted(base.value if isinstance(base, ast.Subscript) else base)
        return self.resolve(path, parts) if parts else None

    def resolve(self, path: str, parts: tuple[str, ...], seen: frozenset[tuple[str, tuple[str, ...]]] = frozenset()
                ) -> LocalClass | External | None:
        """What a dotted name in a file stands for; None where that cannot be told."""
        if (path, parts) in seen or len(seen) > DEPTH or not parts:
            return None
        seen |= {(path, parts)}
        names, (head, *rest) = self._of(path), parts
        if head in names.classes:
            return LocalClass(path, names.classes[head]) if not rest else None
        if head in names.aliases:
            goal = dotted(names.aliases[head])
            return self.resolve(path, (*goal, *rest), seen) if goal else None
        if head in names.imports:
            statement, name = names.imports[head]
            if not name:
                return self._below(path, statement.module, 0, tuple(rest), seen)
            return self._below(path, statement.module, statement.level, (name, *rest), seen)
        for star in names.stars:
            found = self._below(path, star.module, star.level, parts, seen)
            if isinstance(found, LocalClass) or (found is not None and self.is_module(found)):
                return found
        return External(f"builtins.{head}") if not rest and hasattr(builtins, head) else None

    def _below(self, path: str, module: str, level: int, parts: tuple[str, ...],
               seen: frozenset[tuple[str, tuple[str, ...]]]) -> LocalClass | External | None:
        """`parts` as attributes of a module that `path` imports, submodules of it among them."""
        local = False
        for count in range(len(parts) - 1, -1, -1):
            name = ".".join(filter(None, (module, *parts[:count])))
            file = self.graph.module_file(path, name, level) if name or level else ""
            local = local or bool(file)
            if file:
                found = self.resolve(file, parts[count:], seen)
                if found is not None:
                    return found
        if local or level or not parts:
            return None
        return External(".".join((module, *parts)))

    def _of(self, path: str) -> _Names:
        if path not in self._names:
            names = self._names[path] = _Names()
            tree = self.graph.trees.get(path)
            for node in _top_level(tree.body) if tree else ():
                _bind(node, names)
        return self._names[path]


def _external_module(name: str) -> bool | None:
    package, _, last = name.rpartition(".")
    if name in MODULE_CLASSES:
        return True
    if package == "torch.nn" or package.startswith("torch.nn.modules"):
        return last[:1].isupper() and last not in NOT_MODULES
    return False if name.partition(".")[0] in sys.stdlib_module_names else None


def dotted(node: ast.expr) -> tuple[str, ...]:
    """('torch', 'nn', 'Module') of `torch.nn.Module`; () of anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return (node.id, *reversed(parts)) if isinstance(node, ast.Name) else ()


def _top_level(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements that run when the module is imported, those of its branches among them."""
    for node in body:
        yield node
        for name in ("body", "orelse", "finalbody") if not isinstance(node, ast.ClassDef | ast.FunctionDef) else ():
            inner = getattr(node, name, [])
            yield from _top_level(inner) if isinstance(inner, list) else ()
        for handler in getattr(node, "handlers", []):
            yield from _top_level(handler.body)


def _bind(node: ast.stmt, names: _Names) -> None:
    if isinstance(node, ast.ClassDef):
        names.classes[node.name] = node
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        names.functions.add(node.name)
    elif isinstance(node, ast.Import):
        for name in node.names:
            alias = name.asname or name.name.partition(".")[0]
            names.imports[alias] = Import(name.name if name.asname else alias, alias=alias), ""
    elif isinstance(node, ast.ImportFrom):
        statement = Import(node.module or "", node.level)
        for name in node.names:
            if name.name == "*":
                names.stars.append(statement)
            else:
                names.imports[name.asname or name.name] = statement, name.name
    elif isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            if isinstance(target, ast.Name):
                names.aliases[target.id] = node.value
