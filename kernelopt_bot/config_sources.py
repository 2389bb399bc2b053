"""Which file says what: the policy from one place, targets and kernels from another, and those of each of `roots`.

What a pull request says about the policy is never read: its author must not set the budget, the gates, the jail or who
may ask. Its targets are untrusted data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path, PurePosixPath

from kernelopt_bot.config import (
    FILES,
    LISTS,
    Config,
    KernelConfig,
    TargetConfig,
    Traced,
    both_files,
    parse,
    parse_targets,
)
from kernelopt_bot.errors import InputError

Reader = Callable[[str], bytes | None]
"""The content of a POSIX path relative to the root; None where there is no such file. May raise InputError."""


def joined(policy: Reader, head: Reader) -> Traced:
    """The policy of `policy` with the targets and kernels of `head`. Raises InputError for a faulty file in either.

    `Traced.file` is the policy's. With the same reader for both, it is the configuration of one commit or folder.
    """
    found = _text(policy, FILES)
    rules = parse(found[1], found[0]) if found else Traced(Config())
    return _with_targets(rules, [("", rules), *_below_roots(rules, head)]) if head is policy else listed(rules, head)


def listed(rules: Traced, head: Reader) -> Traced:
    """The policy `rules` with the targets and kernels of `head`. Raises InputError for a faulty file in `head`."""
    found = _text(head, FILES)
    own = [("", parse_targets(found[1], found[0]))] if found else []
    return _with_targets(rules, [*own, *_below_roots(rules, head)])


def _below_roots(rules: Traced, head: Reader) -> list[tuple[str, Traced]]:
    sources = []
    for root in rules.config.roots:
        own = _text(head, (f"{root}/{FILES[0]}",))
        if own:
            sources.append((root, parse_targets(own[1], own[0], alone=True)))
    return sources


def target_files(config: Config) -> tuple[str, ...]:
    """Every file that may list targets and kernels under that policy."""
    return (*FILES, *(f"{root}/{FILES[0]}" for root in config.roots))


def folder_reader(root: Path) -> Reader:
    """Reads a folder as it is. A link out of it is an error."""

    def read(path: str) -> bytes | None:
        full = root / path
        if not full.is_file():
            return None
        if not full.resolve().is_relative_to(root.resolve()):
            raise InputError("the configuration is a link that leaves the repository", where=path,
                             fix="put the file itself there")
        try:
            return full.read_bytes()
        except OSError as error:
            raise InputError("the configuration cannot be read", where=path, fix="check its permissions") from error

    return read


def mapping_reader(files: Mapping[str, bytes]) -> Reader:
    """Reads what is at hand already, such as files of a commit."""
    return files.get


def _text(reader: Reader, names: tuple[str, ...]) -> tuple[str, str] | None:
    """(name, text) of the one of `names` that is there."""
    found = [(name, content) for name in names if (content := reader(name)) is not None]
    if len(found) > 1:
        raise both_files()
    for name, content in found:
        try:
            return name, content.decode()
        except UnicodeDecodeError as error:
            raise InputError("the configuration cannot be read as UTF-8 text", where=name,
                             fix="save it as UTF-8") from error
    return None


def _with_targets(rules: Traced, sources: list[tuple[str, Traced]]) -> Traced:
    lines = {path: line for path, line in rules.lines.items() if path[0] not in LISTS or len(path) == 1}
    files: dict[tuple[str, int], str] = {}
    found: dict[str, tuple[TargetConfig | KernelConfig, ...]] = {
        key: _together(key, sources, lines, files) for key in LISTS}
    return replace(rules, config=rules.config.model_copy(update=found), lines=lines, files=files)


def _together(key: str, sources: list[tuple[str, Traced]], lines: dict[tuple[str | int, ...], int],
              files: dict[tuple[str, int], str]) -> tuple[TargetConfig | KernelConfig, ...]:
    """The list `key` of all files; `lines` and `files` are filled. Raises InputError for a name that is there twice."""
    together: list[TargetConfig | KernelConfig] = []
    for root, source in sources:
        for index, one in enumerate(getattr(source.config, key)):
            here = len(together)
            files[key, here] = source.file
            lines |= {(key, here, *path[2:]): line for path, line in source.lines.items() if path[:2] == (key, index)}
            twice = next((i for i, t in enumerate(together) if one.name and t.name == one.name), None)
            if twice is not None:
                raise InputError(f"the name {one.name} is given to more than one target",
                                 where=f"{source.file}:{lines[(key, here)]}",
                                 fix=f"{files[key, twice]}:{lines[(key, twice)]} has it already: choose another")
            together.append(_below(one, root) if root else one)
    return tuple(together)


def _below(one: TargetConfig | KernelConfig, root: str) -> TargetConfig | KernelConfig:
    """The target or kernel with paths that start at the repository root."""

    def place(path: str) -> str:
        return str(PurePosixPath(root) / path)

    changed = {"path": place(one.path)}
    for name in ("inputs", "init", "wire"):
        value = getattr(one, name, "")
        if ":" in value:
            changed[name] = place(value)
    if isinstance(one, KernelConfig) and one.record:
        file, _, test = one.record.partition("::")
        changed["record"] = f"{place(file)}::{test}"
    return one.model_copy(update=changed)
