"""Standalone Triton kernels as targets. Found by syntax; nothing is executed.

A kernel is a function at the top level of a file under `@triton.jit`, with `@triton.autotune` or
`@triton.heuristics` above it or not. What launches it is a function of the repository (`inputs`) or a test
(`record`): from the configuration's `kernels`, or from a marker in the file:

    # kernelopt: inputs=make_inputs
    # kernelopt: record=tests/test_ops.py::test_softmax

directly above a kernel's decorators, else for every kernel of the file that has none of its own.
"""

from __future__ import annotations

import ast
import codecs
import io
import re
import tokenize
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from kernelopt_bot.config import FILES, KernelConfig, load_traced, nearest
from kernelopt_bot.contract.body import dotted
from kernelopt_bot.errors import InputError
from kernelopt_bot.targets.discover import Finder, name_of, root_of
from kernelopt_bot.targets.imports import join, parents
from kernelopt_bot.targets.source import FolderSource
from kernelopt_bot.targets.target import Target

HOW_TO_RUN = ("write `# kernelopt: inputs=FUNCTION` above the kernel, where FUNCTION of that file calls what launches "
              f"it, or `# kernelopt: record=tests/FILE.py::TEST`, or list the kernel under `kernels:` in {FILES[0]}")
_MARKER = re.compile(r"^[ \t\f]*#[ \t]*kernelopt:[ \t]*(inputs|record)=(\S+)[ \t]*$")
_LINE_END = re.compile(r"\r\n|\r|\n")
"""Python's own; `str.splitlines` knows more, and would number the lines otherwise."""


@dataclass(frozen=True)
class TritonTarget(Target):
    """A kernel of the user's. `entry` is the kernel, `inputs` the function that makes it launch."""

    record: str = ""
    """A pytest node id that makes it launch, instead of `inputs`, which is '' then."""

    @property
    def elsewhere(self) -> tuple[str, ...]:
        if not self.record:
            return super().elsewhere
        file = self.record.partition("::")[0]
        return file, *(join(folder, "conftest.py") for folder in parents(file))


@dataclass(frozen=True)
class Found:
    """A kernel in a file's text."""

    name: str
    node: ast.FunctionDef
    decorators: Mapping[str, ast.expr]
    """Of Triton: `jit`, `autotune`, `heuristics`; the outermost of each."""

    @property
    def first_line(self) -> int:
        """Of its decorators, from 1."""
        return min(d.lineno for d in self.node.decorator_list)


def imported(tree: ast.Module) -> dict[str, str]:
    """Names that the file imports at its top level -> what they are, dotted: `tl` -> `triton.language`."""
    names: dict[str, str] = {}
    for node in top(tree.body):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.partition(".")[0]: a.name if a.asname else a.name.partition(".")[0]
                      for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            start = "." * node.level + (node.module or "")
            names |= {a.asname or a.name: f"{start}.{a.name}" for a in node.names}
    return names


def full_name(node: ast.expr, names: Mapping[str, str]) -> str:
    """`triton.jit` for whatever the file calls it; '' for anything but a chain of names."""
    root, dot, rest = dotted(node).partition(".")
    return f"{names.get(root, root)}{dot}{rest}"


def kernels(tree: ast.Module) -> dict[str, Found]:
    """The kernels of a file by name; of two with one name the later, which is what the name means."""
    names, found = imported(tree), {}
    for node in top(tree.body):
        if not isinstance(node, ast.FunctionDef):
            continue
        decorators: dict[str, ast.expr] = {}
        for decorator in node.decorator_list:
            called = decorator.func if isinstance(decorator, ast.Call) else decorator
            package, _, kind = full_name(called, names).rpartition(".")
            if package in ("triton", "triton.runtime") and kind in ("jit", "autotune", "heuristics"):
                decorators.setdefault(kind, decorator)
        if "jit" in decorators:
            found[node.name] = Found(node.name, node, decorators)
    return found


def top(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """Statements at the top level in order, those behind `if`, `try` and `with` included."""
    # No recursion: a chain of `elif` is as deep as it is long.
    stack = [*reversed(body)]
    while stack:
        node = stack.pop()
        yield node
        if isinstance(node, ast.If | ast.Try | ast.With):
            inner = [*node.body, *getattr(node, "orelse", ()), *getattr(node, "finalbody", ())]
            stack += reversed(inner)


def decoded(text: bytes) -> str:
    """A file's text as Python reads it, without a byte order mark. Raises UnicodeDecodeError, SyntaxError (of an
    unknown encoding)."""
    encoding, _ = tokenize.detect_encoding(io.BytesIO(text).readline)
    return text.removeprefix(codecs.BOM_UTF8).decode(encoding)


def marker(text: str, found: Found, others: Mapping[str, Found]) -> tuple[str, str]:
    """(inputs, record) that the file's marker names for the kernel; ('', '') without one."""
    lines = _LINE_END.split(text)
    for number in _in_strings(text):
        lines[number] = ""
    above = {name: set(_comments_above(lines, f.first_line)) for name, f in others.items()}
    taken = set().union(*above.values()) if above else set()
    own = [n for n in sorted(above[found.name]) if _MARKER.match(lines[n])]
    free = [n for n, line in enumerate(lines) if _MARKER.match(line) and n not in taken]
    match = _MARKER.match(lines[(own or free)[0]]) if own or free else None
    if match is None:
        return "", ""
    return (match[2], "") if match[1] == "inputs" else ("", match[2])


def _in_strings(text: str) -> set[int]:
    """Numbers from 0 of the lines that begin inside a string: what looks like a comment there is none."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return set()
    strings = (n for n in ast.walk(tree) if isinstance(n, ast.JoinedStr)
               or (isinstance(n, ast.Constant) and isinstance(n.value, str | bytes)))
    return {number for n in strings for number in range(n.lineno, n.end_lineno or n.lineno)}


def _comments_above(lines: list[str], first: int) -> Iterator[int]:
    """Numbers from 0 of the comment lines directly above line `first` (from 1)."""
    number = first - 2
    while number >= 0 and lines[number].lstrip().startswith("#"):
        yield number
        number -= 1


def triton_by_hand(spec: str, *, root: Path | None = None) -> tuple[Path, TritonTarget] | None:
    """Root folder and target of `path.py:KERNEL`, or of a listed kernel's name; None where that is no Triton kernel, so
    that it may be a model.

    Raises InputError: the file does not parse, or nothing says what launches the kernel.
    """
    name, colon, entry = spec.rpartition(":")
    if spec.isidentifier() and not Path(spec).exists():
        return _by_name(spec, root or root_of(Path.cwd() / "_"))
    file, entry = (Path(name), entry) if colon and not Path(spec).exists() else (Path(spec), "")
    if (entry and not entry.isidentifier()) or file.suffix != ".py" or not file.is_file():
        return None
    folder = (root or root_of(file)).resolve()
    if not file.resolve().is_relative_to(folder):
        return None
    finder = Finder(FolderSource(folder))
    path = file.resolve().relative_to(folder).as_posix()
    if not entry and finder.trees.get(path) is None:
        return None
    finder.must_parse(path, spec)
    tree = finder.trees.get(path)
    present = kernels(tree) if tree is not None else {}
    if not entry:
        if present and not finder.symbols.models(path) and not finder.symbols.has(path, "Model"):
            raise InputError(f"{path} has no model, and its Triton kernels are asked for by name", where=spec,
                             fix=f"name one: {', '.join(f'{spec}:{k}' for k in present)}")
        return None
    if entry not in present:
        host = tree is not None and any(isinstance(n, ast.FunctionDef) and n.name == entry for n in top(tree.body))
        if not present or (finder.symbols.has(path, entry) and not host):
            return None
        raise _missing(path, entry, present, spec)
    traced = load_traced(folder)
    listed = [(i, k) for i, k in enumerate(traced.config.kernels) if (k.path, k.kernel) == (path, entry)]
    if listed:
        index, wanted = listed[0]
        return folder, named_by(finder, wanted, traced.origin(("kernels", index)))
    target = marked(finder, path, entry, "command")
    if target is None:
        raise InputError(f"nothing says what launches the kernel {entry}", where=path, fix=HOW_TO_RUN)
    return folder, target


def _by_name(name: str, root: Path) -> tuple[Path, TritonTarget] | None:
    traced = load_traced(root)
    for index, wanted in enumerate(traced.config.kernels):
        if name == (wanted.name or name_of(wanted.path, wanted.kernel)):
            return root, named_by(Finder(FolderSource(root)), wanted, traced.origin(("kernels", index)))
    return None


def named_by(finder: Finder, wanted: KernelConfig, where: str) -> TritonTarget:
    """The listed kernel. Raises InputError: no such file, kernel, function or test; Broken: a file does not parse."""
    finder.must_parse(wanted.path, where)
    tree = finder.trees.get(wanted.path)
    present = kernels(tree) if tree is not None else {}
    if wanted.kernel not in present:
        raise _missing(wanted.path, wanted.kernel, present, where)
    return _target(finder, wanted, present[wanted.kernel], "config", where)


def marked(finder: Finder, path: str, entry: str, origin: Literal["convention", "command"]) -> TritonTarget | None:
    """The kernel `entry` of a file that has it and parses, by its marker; None without one. Raises InputError for a
    marker that names nothing."""
    tree = finder.trees.get(path)
    present = kernels(tree) if tree is not None else {}
    inputs, record = marker(decoded(finder.source.read(path)), present[entry], present)
    if not inputs and not record:
        return None
    return _target(finder, _marked(path, entry, inputs, record), present[entry], origin, path)


def _marked(path: str, entry: str, inputs: str, record: str) -> KernelConfig:
    """A marker as an entry of the configuration, under the same rules. Raises InputError."""
    try:
        return KernelConfig(path=path, kernel=entry, inputs=inputs, record=record)
    except ValidationError as e:
        reason = str(e.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")
        raise InputError(f"the marker's {'inputs' if inputs else 'record'}, {inputs or record!r}: {reason}", where=path,
                         fix=HOW_TO_RUN) from e


def _missing(path: str, entry: str, present: Mapping[str, Found], where: str) -> InputError:
    near = nearest(entry, list(present))
    return InputError(f"{path} has no Triton kernel {entry}", where=where,
                      fix=f"did you mean {near}?" if near else f"kernels in that file: {', '.join(present)}" if present
                      else "name a function under @triton.jit")


def _target(finder: Finder, wanted: KernelConfig, found: Found,
            origin: Literal["convention", "config", "command"], where: str) -> TritonTarget:
    """Raises InputError where the function or the test's file is not there."""
    if wanted.inputs:
        file, _, function = wanted.inputs.rpartition(":")
        if not function.isidentifier():
            raise InputError(f"{wanted.inputs!r} is not the name of a function", where=where, fix=HOW_TO_RUN)
        finder.must_parse(file or wanted.path, where)
        finder.must_bind(file or wanted.path, function, "function", where)
    else:
        file = wanted.record.partition("::")[0]
        if not file.endswith(".py") or "::" not in wanted.record:
            raise InputError(f"{wanted.record!r} is not a test", where=where,
                             fix="name it as pytest does: tests/test_ops.py::test_softmax")
        finder.must_parse(file, where)
    target = TritonTarget(wanted.name or name_of(wanted.path, wanted.kernel), wanted.path, wanted.kernel, wanted.inputs,
                          origin=origin, line=found.node.lineno, record=wanted.record)
    closure = finder.closure_of(target)
    return replace(target, closure=closure.files, roots=closure.roots)
