"""YAML text -> plain data, with the line of every key, so that a mistake can be shown where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import yaml

from kernelopt_bot.errors import InputError

LIMIT = 64 * 1024
"""Largest configuration in bytes: one that is longer is not a configuration."""

Path = tuple[str | int, ...]


@dataclass(frozen=True)
class Document:
    """`data` is what the text says; `lines` maps the path of each key or item to its line, counted from 1."""

    data: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """Line of the longest known prefix of `path`; 1 where none is known."""
        for end in range(len(path), 0, -1):
            if path[:end] in self.lines:
                return self.lines[path[:end]]
        return 1


def read(text: str, name: str) -> Document:
    """Raises InputError: not YAML, a key given twice, an anchor or alias, over `LIMIT`; each with its line."""
    if len(text.encode()) > LIMIT:
        raise InputError(f"the configuration is longer than {LIMIT // 1024} KiB", where=name,
                         fix="keep only the documented keys: docs/configuration.md")
    try:
        loader = yaml.SafeLoader(text)
        node = loader.get_single_node()
        if node is None:
            return Document({}, {})
        lines: dict[Path, int] = {}
        _walk(node, (), lines, set(), name)
        return Document(loader.construct_document(node), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"{name}:{mark.line + 1}" if mark else name
        raise InputError(f"the configuration is not valid YAML: {error.problem or error.context}", where=where,
                         fix="correct the line; indentation and colons are the usual causes") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        problem = str(error).splitlines()[0] if str(error) else "nested too deeply"
        raise InputError(f"the configuration is not valid YAML: {problem}", where=name,
                         fix="write it as plain UTF-8 text") from error


def _walk(node: yaml.Node, path: Path, lines: dict[Path, int], seen: set[int], name: str) -> None:
    # A shared node is an alias. Expanding those of an untrusted file can take all the memory there is.
    if id(node) in seen:
        raise InputError("anchors and aliases are not supported", where=f"{name}:{lines.get(path, 1)}",
                         fix="write the value out at each place")
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            here = (*path, str(key.value))
            line = key.start_mark.line + 1
            if here in lines:
                raise InputError(f'the key "{key.value}" is given twice', where=f"{name}:{line}",
                                 fix=f"keep one of the lines {lines[here]} and {line}")
            lines[here] = line
            _walk(value, here, lines, seen, name)
    elif isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            lines[*path, index] = item.start_mark.line + 1
            _walk(item, (*path, index), lines, seen, name)
